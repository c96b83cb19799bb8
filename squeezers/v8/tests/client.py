"""A client of the protocol, for the tests."""

import json
import socket

# Longer than a squeezer gives a client, and than any collection here takes.
TIMEOUT_SECONDS = 60


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_SECONDS)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rb")

    def line(self):
        """The next line of the squeezer; empty when it has closed the connection."""
        try:
            return self.lines.readline()
        except ConnectionResetError:
            return b""

    def message(self):
        return json.loads(self.line())

    def send(self, data):
        """Whether somebody was there to take it."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def ask(self, **wanted):
        self.send(json.dumps({"squeeze": wanted}).encode() + b"\n")
        return self.message()

    def close(self):
        self.lines.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
