"""A function that runs as a plain process, started by run.sh: for its tests."""

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

HERE = pathlib.Path(__file__).parent.parent
FUNCTIONS = sorted(path.parent.name for path in HERE.glob("*/function.toml"))
# For its start and each answer, in seconds: one that takes longer has come to a standstill.
TIMEOUT = 300


def definition(name):
    """Return function.toml of the function."""
    return tomllib.loads((HERE / name / "function.toml").read_text())


def reserve_port():
    """Return a socket whose port nobody else is given while it is open. A server may listen there."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


class Process:
    """A function's JVM."""

    def __init__(self, name, *options, **environment):
        self.reserved = reserve_port()
        self.port = self.reserved.getsockname()[1]
        self.output = [tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")]
        self.process = subprocess.Popen(
            [HERE / "run.sh", name, *options], stdin=subprocess.DEVNULL, stdout=self.output[0],
            stderr=self.output[1], env={**os.environ, "PORT": str(self.port), **environment})
        deadline = time.monotonic() + TIMEOUT
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = [text[-2000:] for text in self.said()]
                self.end()
                raise AssertionError(f"{name} does not listen: {said}")
            time.sleep(0.02)

    def listens(self):
        """Return whether something takes connections on the function's port."""
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def said(self):
        """Return what it has written to its standard output and error."""
        for file in self.output:
            file.seek(0)
        return [file.read() for file in self.output]

    def end(self):
        """End it."""
        self.process.kill()
        self.process.wait()
        self.reserved.close()
        for file in self.output:
            file.close()

    def request(self, method, path, body=b""):
        """Return the status of the answer, and its JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def post(self, path, value):
        """POST value; return the status and the answer."""
        return self.request("POST", path, json.dumps({"value": value}))


class FunctionTest(unittest.TestCase):
    """Tests of the function that `name` says, in one process after /init."""

    name = None

    @classmethod
    def setUpClass(cls):
        cls.process = Process(cls.name)
        cls.addClassCleanup(cls.process.end)
        status, answer = cls.process.post("/init", {})
        if (status, answer) != (200, {"ok": True}):
            raise AssertionError(f"/init of {cls.name} was answered {status}, {answer}")

    def run_with(self, **value):
        """POST value to /run; return the answer, which has to be a result."""
        status, answer = self.process.post("/run", value)
        self.assertEqual(status, 200, answer)
        return answer

    def assert_refused(self, about, **value):
        """Assert that these arguments are an error about this, and that the next run works."""
        status, answer = self.process.post("/run", value)
        self.assertEqual(status, 502, answer)
        self.assertIn(about, answer["error"])
