"""A client of a squeezer, which can also say what no client should."""

import json
import socket

# Longer than a squeezer gives a client, and than any collection in the tests takes.
TIMEOUT_SECONDS = 120

NUMBERS = ["before_bytes", "after_bytes", "live_bytes", "advised_bytes", "pause_ns", "cpu_ns"]


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            # Blocks while the queue is full; with a time limit that would be an error.
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self.socket.settimeout(TIMEOUT_SECONDS)
        self._lines = self.socket.makefile("rb")
        self._hellos = []

    @property
    def hello(self):
        """What the squeezer begins with; None if it has closed the connection without a word."""
        if not self._hellos:
            self._hellos.append(_message(self._read()))
        return self._hellos[0]

    def line(self):
        """The next line after the hello, as bytes; empty when the squeezer has closed the connection."""
        _ = self.hello
        return self._read()

    def message(self):
        """The next line after the hello; None when the squeezer has closed the connection."""
        return _message(self.line())

    def send(self, data):
        """Whether the squeezer still took it."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def squeeze(self, **wanted):
        """The answer to a request, whatever it is."""
        self.send(json.dumps({"squeeze": wanted}).encode() + b"\n")
        return self.message()

    def _read(self):
        try:
            return self._lines.readline()
        except ConnectionResetError:  # it has closed with bytes of ours unread
            return b""

    def close(self):
        self._lines.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _message(line):
    return json.loads(line) if line else None
