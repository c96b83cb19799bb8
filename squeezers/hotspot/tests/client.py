"""A client of the protocol, for the tests."""

import json
import socket

# Longer than the squeezer gives a client, and than any collection here takes.
TIMEOUT_SECONDS = 120


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        # Blocks while others wait for their turn; with a time limit it would give up at once.
        self.socket.connect(str(path))
        self.socket.settimeout(TIMEOUT_SECONDS)
        self.lines = self.socket.makefile("rb")
        self.hello = json.loads(self.line())

    def line(self):
        """The squeezer's next line; empty when it has closed the connection."""
        try:
            return self.lines.readline()
        except ConnectionResetError:
            return b""

    def send(self, data):
        """Whether the squeezer still took it."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def ask(self, **wanted):
        self.send(json.dumps({"squeeze": wanted}).encode() + b"\n")
        return json.loads(self.line())

    def close(self):
        self.lines.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
