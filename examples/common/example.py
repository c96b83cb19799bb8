"""A server of an example, started from the files of its image as an instance is: for its tests.

EXAMPLE_TREE is where these files are, EXAMPLE_DEFINITION the function.toml that was made with them.
"""

import http.client
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import tomllib
import unittest

MARKER = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX\n"
TREE = pathlib.Path(os.environ["EXAMPLE_TREE"])
DEFINITION = tomllib.loads(pathlib.Path(os.environ["EXAMPLE_DEFINITION"]).read_text())
# For its start, its end and each answer. Seconds.
TIMEOUT = 120


def sandbox():
    """Return a command line that runs the function's command as an instance: as user 0 without any
    capability, in these files, which it cannot change."""
    line = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"]
    for entry in sorted(TREE.iterdir()):
        if entry.is_symlink():
            line += ["--symlink", os.readlink(entry), f"/{entry.name}"]
        else:
            line += ["--ro-bind", str(entry), f"/{entry.name}"]
    line += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--clearenv"]
    for name, setting in DEFINITION["environment"].items():
        line += ["--setenv", name, setting]
    return [*line, "--chdir", DEFINITION["working_directory"], *DEFINITION["command"]]


class ServerTest(unittest.TestCase):
    """Each test has a server of its own, as /init comes only once."""

    def setUp(self):
        self.output = [tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")]
        self.server = subprocess.Popen(
            sandbox(), stdin=subprocess.DEVNULL, stdout=self.output[0], stderr=self.output[1]
        )
        self.addCleanup(self.stop)
        self.wait_until(lambda: self.listens() or self.server.poll() is not None, "it does not listen")
        self.assertIsNone(self.server.poll(), f"it ended before it listened: {self.said()}")

    def stop(self):
        self.server.kill()
        self.server.wait()
        # The server ends a moment after the sandbox.
        self.wait_until(lambda: not self.listens(), "it goes on")
        for file in self.output:
            file.close()

    def listens(self):
        """Return whether something takes connections on the server's port."""
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", DEFINITION["port"])) == 0

    def wait_until(self, condition, otherwise):
        """Wait until the condition holds."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"{otherwise}: {self.said()}")
            time.sleep(0.02)

    def said(self):
        """Return what it has written to its standard output and error."""
        for file in self.output:
            file.seek(0)
        return [file.read() for file in self.output]

    def request(self, method, path, body=b""):
        """Return the status of the answer, and its JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", DEFINITION["port"], timeout=TIMEOUT)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def init(self, **value):
        """POST /init; return the answer."""
        return self.request("POST", "/init", json.dumps({"value": value}))

    def run_with(self, activation="a1", **value):
        """POST /run; return the answer."""
        body = {"value": value, "activation_id": activation, "deadline": "1"}
        return self.request("POST", "/run", json.dumps(body))
