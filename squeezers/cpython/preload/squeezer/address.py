"""Where a squeezer listens: a socket file, and whose it is."""
import errno
import os
import stat
from _socket import AF_UNIX, SO_PEERCRED, SOCK_STREAM, SOL_SOCKET, socket

from .descriptor import Descriptor, identity

VARIABLE = "SQUEEZER_SOCKET"

# Clients that may wait for their turn.
_QUEUE = 16

# How often another process may come in between looking at a path and taking it.
_TRIES = 3


class NoAddress(Exception):
    """Why nobody can listen there."""


class Served(Exception):
    """This process listens there already: another interpreter in it has a squeezer."""


class Address:
    """A socket that listens, mode 0600, and its file."""

    def __init__(self, path):
        if not os.path.isabs(path):
            raise NoAddress(f"{VARIABLE} is {path!r}, and has to be an absolute path")
        self.path = path
        for _ in range(_TRIES):
            _remove_stale(path)
            if self._listen():
                return
        raise NoAddress(f"the socket {path} cannot be made: other processes make it too")

    def _listen(self):
        """False if another process has taken the path meanwhile."""
        listener = socket(AF_UNIX, SOCK_STREAM)
        try:
            # The file is born with the mode of the socket: there is no moment in between.
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(self.path)
            self._file = identity(os.lstat(self.path))
            listener.listen(_QUEUE)
            self.descriptor = Descriptor(listener.detach())
            return True
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise _cannot_be_made(self.path, error) from error
        finally:
            listener.close()

    def accept(self):
        """The descriptor of the next client; BlockingIOError if there is none."""
        listener = socket(AF_UNIX, SOCK_STREAM, 0, self.descriptor.number)
        try:
            listener.setblocking(False)
            return listener._accept()[0]
        finally:
            listener.detach()

    def remove_file(self):
        """Removes the file, unless it is another process's by now."""
        try:
            if identity(os.lstat(self.path)) == self._file:
                os.unlink(self.path)
        except OSError:
            pass


def of_this_process(may_use_variable):
    """The address that this process was told, or else the one that goes with its number."""
    told = os.environ.get(VARIABLE) if may_use_variable else None
    own = f"/tmp/squeezer-{os.getpid()}.sock"
    if told:
        try:
            return Address(told)
        except _Taken:
            pass
    try:
        return Address(own)
    except _Taken as taken:
        raise NoAddress(str(taken)) from None


class _Taken(Exception):
    """Another process listens there, and lives."""


def _remove_stale(path):
    """Makes place at path."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise NoAddress(f"{path} is there and is not a socket")
        listener = _listener(path)
        if listener == os.getpid():
            raise Served
        if listener is not None:
            raise _Taken(f"another process listens at {path}")
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _cannot_be_made(path, error) from error


def _listener(path):
    """The process that listens at path, 0 if it is not known which; None if nobody does."""
    probe = socket(AF_UNIX, SOCK_STREAM)
    try:
        probe.setblocking(False)
        probe.connect(path)
        return int.from_bytes(probe.getsockopt(SOL_SOCKET, SO_PEERCRED, 4), "little")
    except (BlockingIOError, PermissionError):  # its queue is full; it is another user's
        return 0
    except ConnectionRefusedError:
        return None
    finally:
        probe.close()


def _cannot_be_made(path, error):
    return NoAddress(f"the socket {path} cannot be made: {error.strerror or error}")
