"""Looks through the layers of an image before any of them is unpacked.

umoci keeps within its directory whatever a layer says, and the sandbox around it keeps umoci there.
This is for a clear word, and for what neither of them limits: size.
"""

import gzip
import tarfile
import zlib

from problem import Problem

# A VM's image is far below both. Bytes, and files of all layers.
MAX_BYTES = 16 << 30
MAX_FILES = 1_000_000


class Budget:
    """What the layers of one image may hold together."""

    def __init__(self):
        self.bytes = MAX_BYTES
        self.files = MAX_FILES

    def take(self, size):
        """Count a file of so many bytes."""
        self.bytes -= size
        self.files -= 1
        if self.bytes < 0:
            raise Problem(f"the image holds more than {MAX_BYTES >> 30} GiB")
        if self.files < 0:
            raise Problem(f"the image holds more than {MAX_FILES} files")


def leads_out(name):
    """Whether a name in a layer says that it is outside of the image."""
    return ".." in name.split("/")


def check(path, number, budget):
    """Stop at the first entry of a layer (a file, which is number so-and-so) that no image should have."""
    try:
        # Not "r|gz", which ends with the first of several streams one after the other.
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as layer:
            for entry in layer:
                budget.take(entry.size)
                if leads_out(entry.name):
                    raise Problem(f"layer {number} has {entry.name!r}, which leads out of the image")
                # A symbolic link may say what it likes: nothing here follows one.
                if entry.islnk() and leads_out(entry.linkname):
                    raise Problem(
                        f"layer {number} links {entry.name!r} to {entry.linkname!r}, "
                        "which leads out of the image"
                    )
                # It remembers every entry otherwise.
                layer.members.clear()
    except (tarfile.TarError, zlib.error, EOFError, ValueError, gzip.BadGzipFile) as error:
        raise Problem(f"layer {number} is damaged: {error}") from error
