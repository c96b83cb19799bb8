"""File descriptors in a program that does not know of them."""
import fcntl
import os

# Programs expect to be given low numbers, daemons even certain ones.
_LEAST = 100
_LEAST_OF_FEW = 3


class Descriptor:
    """A number, and the file that it stands for.

    Daemons close all descriptors that they can think of; the number may then be another file's,
    which must neither be used nor closed.
    """

    def __init__(self, number):
        """Takes over an open file, under another number."""
        try:
            self.number = _move(number)
        finally:
            os.close(number)
        self._file = identity(os.fstat(self.number))

    def is_ours(self):
        try:
            return identity(os.fstat(self.number)) == self._file
        except OSError:
            return False

    def close(self):
        if self.is_ours():
            os.close(self.number)


def _move(number):
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _LEAST)
    except OSError:  # more than the process may have
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _LEAST_OF_FEW)


def identity(status):
    """What tells a file from all others."""
    return status.st_dev, status.st_ino
