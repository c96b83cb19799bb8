"""One client: its lines, and what they are answered."""
from _socket import AF_UNIX, MSG_NOSIGNAL, SOCK_STREAM, socket
from time import monotonic

from .descriptor import Descriptor

# How long a client may take for a line.
LINE_SECONDS = 5


class Conversation:
    """A connection that has been accepted."""

    def __init__(self, number, refused):
        self._descriptor = Descriptor(number)
        self._socket = socket(AF_UNIX, SOCK_STREAM, 0, self._descriptor.number)
        self._socket.setblocking(False)
        self._refused = refused
        self._received = b""
        self._deadline = 0

    def begin(self):
        """Says hello."""
        # Now, and only in a process that is asked: it takes time and memory to import.
        from . import protocol
        self._protocol = protocol
        self._send(protocol.hello(self._refused))
        self._deadline = monotonic() + LINE_SECONDS

    def waits_for(self):
        return self._descriptor.number, max(self._deadline - monotonic(), 0)

    def go_on(self):
        """Reads what is there, and answers it. False when the conversation is over."""
        if not self._descriptor.is_ours():
            return False
        most = self._protocol.MOST_REQUEST_BYTES
        try:
            received = self._socket.recv(most)
        except BlockingIOError:
            return monotonic() < self._deadline
        if not received:
            return False
        self._received += received
        while True:
            line, newline, rest = self._received.partition(b"\n")
            if len(line) > most:
                return self._reject(f"the line is longer than {most} bytes")
            if not newline:
                return monotonic() < self._deadline
            self._received = rest
            if not self._answer(line):
                return False
            self._deadline = monotonic() + LINE_SECONDS

    def _answer(self, line):
        try:
            request = self._protocol.parse(line)
        except self._protocol.NoRequest as error:
            return self._reject(str(error))
        if self._refused:
            self._say(error=self._refused)
            return True
        try:
            from .squeeze import squeeze
            numbers = squeeze(request)
        except Exception as error:  # memory may be short; the program goes on all the same
            self._say(error=f"it failed: {type(error).__name__}: {error}"[:300])
        else:
            self._say(numbers)
        return True

    def _reject(self, why):
        self._say(error=why)
        return False

    def _say(self, numbers=(), error=None):
        self._send(self._protocol.answer(numbers, error))

    def _send(self, line):
        """For a client that does not read, there is a limit too."""
        self._socket.settimeout(LINE_SECONDS)
        self._socket.sendall(line, MSG_NOSIGNAL)
        self._socket.setblocking(False)

    def close(self):
        if self._descriptor.is_ours():
            self._socket.close()
        else:
            self._socket.detach()
