"""Looks through the layers of an image before any of them is unpacked.

umoci keeps within its directory whatever a layer says, and the sandbox around it keeps umoci there.
This is for a clear word, and for what neither of them limits: size.
"""

import gzip
import zlib

import tarball
from problem import Problem

# A VM's image is far below these. Bytes and files of all layers, and as many layers as Docker allows.
MAX_BYTES = 16 << 30
MAX_FILES = 1_000_000
MAX_LAYERS = 127
# What a file takes on the disk is a multiple of this, in bytes.
BLOCK = 4096


class Budget:
    """What the layers of one image may hold together."""

    def __init__(self):
        self.bytes = 0
        self.files = 0
        self._directories = []

    def take(self, name, size):
        """Count a file of so many bytes, and the directories that it may be the first in."""
        *directories, _ = name.rstrip("/").split("/")
        pairs = zip(directories, self._directories, strict=False)
        known = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
        if known is None:
            known = min(len(directories), len(self._directories))
        self._directories = directories
        files = 1 + len(directories) - known
        self.files += files
        self.bytes += -(-size // BLOCK) * BLOCK + files * BLOCK
        if self.bytes > MAX_BYTES:
            raise Problem(f"the image holds more than {MAX_BYTES >> 30} GiB")
        if self.files > MAX_FILES:
            raise Problem(f"the image holds more than {MAX_FILES} files")


def leads_out(name):
    """Whether a name in a layer says that it is outside of the image."""
    return ".." in name.split("/")


def check(path, number, budget):
    """Stop at the first entry of a layer (a file, which is number so-and-so) that no image should have."""
    try:
        with gzip.open(path) as stream:
            for entry in tarball.entries(stream):
                budget.take(entry.name, entry.size)
                if leads_out(entry.name):
                    raise Problem(f"layer {number} has {entry.name!r}, which leads out of the image")
                # A symbolic link may say what it likes: nothing here follows one.
                if entry.hard_link and leads_out(entry.hard_link):
                    raise Problem(
                        f"layer {number} links {entry.name!r} to {entry.hard_link!r}, "
                        "which leads out of the image"
                    )
    except (zlib.error, EOFError, ValueError, gzip.BadGzipFile) as error:
        raise Problem(f"layer {number} is damaged: {error}") from error
