"""Gets a file, if it is the one that is meant: python3 get.py URL SHA256 FILE"""

import hashlib
import os
import sys
import urllib.request

# More than any jar here has, in bytes, and for each answer of the server, in seconds.
MOST = 64 << 20
TIMEOUT = 60


def main():
    url, digest, target = sys.argv[1:]
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            content = answer.read(MOST)
    except OSError as error:
        sys.exit(f"cannot get {url}: {error}; try again, or put the file to {target} by other means")
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        sys.exit(f"{url} is not what it was: its SHA-256 is {found} and has to be {digest}")
    unfinished = f"{target}.{os.getpid()}"
    with open(unfinished, "wb") as file:
        file.write(content)
    os.replace(unfinished, target)


if __name__ == "__main__":
    main()
