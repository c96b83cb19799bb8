"""Looks around in the files of an image as a process inside would, and puts them in order.

Nothing here follows a link of the image on the host.
"""

import os
import stat
from collections import deque
from typing import NamedTuple

from problem import Problem

# As the kernel.
MAX_LINKS = 40
# Of /etc/passwd and /etc/group, in bytes.
MAX_TABLE = 1 << 20


class User(NamedTuple):
    """Who the image's program is to be."""

    uid: int
    gid: int
    home: str


def resolve(root, path):
    """Return where on the host the image's `path` is, links followed within the image."""
    parts, found, links = deque(path.split("/")), [], 0
    while parts:
        part = parts.popleft()
        if part == "..":
            found = found[:-1]
        elif part not in ("", "."):
            step = os.path.join(root, *found, part)
            if not os.path.islink(step):
                found.append(part)
                continue
            links += 1
            if links > MAX_LINKS:
                raise Problem(f"{path} in the image is a chain of more than {MAX_LINKS} links")
            target = os.readlink(step)
            if target.startswith("/"):
                found = []
            parts.extendleft(reversed(target.split("/")))
    return os.path.join(root, *found)


def find_program(root, name, search, directory):
    """Return the absolute path in the image of the program `name`, or None.

    `search` is PATH, `directory` where relative paths start.
    """
    places = [directory] if "/" in name else search.split(":")
    for place in places:
        path = os.path.normpath(os.path.join("/", directory, place, name))
        file = resolve(root, path)
        if os.path.isfile(file) and os.stat(file).st_mode & 0o111:
            return path
    return None


def table(root, path):
    """Yield the fields of each line of the image's /etc/passwd or /etc/group."""
    file = resolve(root, path)
    # Not a pipe that one would wait for.
    if os.path.isfile(file) and os.stat(file).st_size <= MAX_TABLE:
        with open(file, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                yield line.rstrip("\n").split(":")


def find_user(root, given):
    """Return the User that an image's "name", "uid", "name:group" or "uid:gid" means."""
    name, _, group = given.partition(":")
    name = name or "0"
    uid, gid, home = (int(name), 0, "/") if name.isdecimal() else (None, 0, "/")
    for fields in table(root, "/etc/passwd"):
        if len(fields) >= 6 and name in (fields[0], fields[2]) and fields[2].isdecimal():
            uid, gid, home = int(fields[2]), int(fields[3] if fields[3].isdecimal() else 0), fields[5]
            break
    if uid is None:
        raise Problem(f"the image has no user {name!r}, though it is to run as that")
    if group.isdecimal():
        gid = int(group)
    elif group:
        for fields in table(root, "/etc/group"):
            if len(fields) >= 3 and fields[0] == group and fields[2].isdecimal():
                gid = int(fields[2])
                break
        else:
            raise Problem(f"the image has no group {group!r}, though it is to run as that")
    return User(uid, gid, home)


def make_directory(root, path):
    """Make a directory of the image, if it is not there."""
    try:
        os.makedirs(resolve(root, path), exist_ok=True)
    except OSError as error:
        raise Problem(f"{path} in the image cannot be a directory: {error.strerror}") from error


def put_in_order(root, user):
    """Take away what an instance has of its own or must not have, and give it what is its user's."""
    for name in ("dev", "proc", "sys", "tmp"):
        path = os.path.join(root, name)
        # The agent mounts over these, before it has made the image its root.
        if os.path.islink(path) or (os.path.exists(path) and not os.path.isdir(path)):
            raise Problem(f"/{name} of the image is not a directory")
    for directory, names, files in os.walk(root, onerror=_fail):
        for path in (directory, *(os.path.join(directory, name) for name in names + files)):
            entry = os.lstat(path)
            if stat.S_ISCHR(entry.st_mode) or stat.S_ISBLK(entry.st_mode):
                os.unlink(path)
            else:
                _give(path, entry, user)


def _give(path, entry, user):
    """Give a file of the image's user to user 0, who every instance is, without any capability."""
    uid = 0 if entry.st_uid == user.uid else entry.st_uid
    gid = 0 if entry.st_gid == user.gid else entry.st_gid
    if (uid, gid) != (entry.st_uid, entry.st_gid):
        os.chown(path, uid, gid, follow_symlinks=False)
        # The change of the owner has cleared these.
        if stat.S_ISREG(entry.st_mode) and entry.st_mode & (stat.S_ISUID | stat.S_ISGID):
            os.chmod(path, stat.S_IMODE(entry.st_mode))


def _fail(error):
    raise error
