"""A function as a process of this machine, and what the tests of all functions share."""

import contextlib
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

FOLDER = pathlib.Path(__file__).resolve().parent.parent
# Node's program: test.sh says which.
NODE = os.environ["JAVASCRIPT_NODE"]
MARKER = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX\n"
# Until something has happened that is sure to. Nothing is measured with it.
PATIENCE_SECONDS = 300


def reserve_port():
    """A socket whose port nobody else is given while it is open. A server may listen there."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


def environment(**variables):
    """That of the tests without what would change a function, and with these."""
    ours = ("NODE", "PORT", "MEMORY_LIMIT", "EAGER_GC", "SQUEEZY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "NODE": NODE, **variables}


class Function(contextlib.AbstractContextManager):
    """A function that run.sh has started, and that listens."""

    def __init__(self, name, **variables):
        self.reserved = reserve_port()
        self.port = self.reserved.getsockname()[1]
        self.output = tempfile.TemporaryFile("w+")
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [FOLDER / "run.sh", name], env=environment(PORT=str(self.port), **variables),
            stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.errors)
        self.wait()

    def wait(self):
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self.process.poll() is not None or time.monotonic() > end:
                raise ChildProcessError(f"the function does not listen: {self.said()[1]}")
            time.sleep(0.02)

    def request(self, method, path, body=None):
        """The status of the answer, and the JSON that it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def post(self, path, body):
        return self.request("POST", path, json.dumps(body))

    def init(self, **value):
        return self.post("/init", {"value": value})

    def run(self, **value):
        return self.post("/run", {"value": value})

    def said(self):
        """What it has written to its standard output and its standard error."""
        text = []
        for stream in (self.output, self.errors):
            stream.seek(0)
            text.append(stream.read())
        return text

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reserved.close()
        self.output.close()
        self.errors.close()


def definition(name):
    return tomllib.loads((FOLDER / name / "function.toml").read_text())


def problems(check, answer):
    """What of an answer is not as function.toml has it."""
    text = answer[check["field"]]
    return [part for part in check.get("contains", []) if part not in text] + [
        part for part in check.get("occurrences", []) if text.count(part["text"]) != part["count"]]


class FunctionTest(unittest.TestCase):
    """What holds for each function: it answers the request of its load correctly, and says what it does not take."""

    name = None
    # Arguments that are refused, and a part of what is said then.
    wrong = ()

    @classmethod
    def setUpClass(cls):
        cls.definition = definition(cls.name)
        cls.function = cls.enterClassContext(Function(cls.name))
        status, answer = cls.function.init(name=cls.name, main="main")
        if (status, answer) != (200, {"ok": True}):
            raise AssertionError(f"/init was answered with {status}: {answer}")

    def answer(self, **value):
        """The answer to arguments that are right."""
        status, answer = self.function.run(**value)
        self.assertEqual(status, 200, answer)
        return answer

    def test_the_request_of_a_load_is_answered_correctly(self):
        for _ in range(5):
            self.assertEqual(problems(self.definition["check"], self.answer(**self.definition["request"])), [])

    def test_wrong_arguments_are_an_error_and_the_next_call_works(self):
        self.assertTrue(self.wrong)
        for arguments, complaint in self.wrong:
            with self.subTest(arguments=arguments):
                status, answer = self.function.run(**arguments)
                self.assertEqual(status, 502, answer)
                self.assertIn(complaint, answer["error"])
        self.answer(**self.definition["request"])
