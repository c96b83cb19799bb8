"""Programs with the squeezer in them, and clients of it."""
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRELOAD = os.path.join(FOLDER, "preload")

# The Python that is tested, and the client of squeezers/client.
PYTHON = os.environ["SQUEEZY_TEST_PYTHON"]
CLIENT = os.environ["SQUEEZY_TEST_CLIENT"]

# How long anything may take before a test is lost; nothing is measured by it.
PATIENCE_SECONDS = 60

NUMBERS = {"before_bytes", "after_bytes", "live_bytes", "advised_bytes", "pause_ns", "cpu_ns"}


def ask_python(expression, python=PYTHON):
    """The value of an expression in the Python that is tested, without the squeezer."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    output = subprocess.run([python, "-c", f"import sys; print({expression})"], env=environment,
                            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    return output.stdout.strip()


FULL_VERSION = tuple(int(number) for number in ask_python("'%d %d %d' % sys.version_info[:3]").split())
VERSION = FULL_VERSION[:2]

# Python warns of a fork of a process with threads since 3.12; these count after the fork, when the
# squeezer's thread is there again (https://github.com/python/cpython/issues/137109).
MISCOUNTS_THREADS = (3, 13, 0) <= FULL_VERSION < (3, 13, 10) or FULL_VERSION == (3, 14, 0)
WARNINGS = "ignore" if MISCOUNTS_THREADS else "always"


class Program:
    """A program that runs lines of Python, and says a line when it has come so far."""

    def __init__(self, source, *, python=PYTHON, arguments=(), **environment):
        self.path = environment.get("SQUEEZER_SOCKET")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        inherited.update(PYTHONPATH=PRELOAD, PYTHONDONTWRITEBYTECODE="1")
        inherited.update(environment)
        self.process = subprocess.Popen(
            [python, *arguments, "-c", source], env=inherited, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.pid = self.process.pid
        self.said = b""

    def line(self):
        """The next line that it says."""
        while b"\n" not in self.said:
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_SECONDS)
            said = os.read(self.process.stdout.fileno(), 4096) if ready else b""
            if not said:
                raise AssertionError(f"the program {'ended' if ready else 'hangs'}: {self.kill()}")
            self.said += said
        line, _, self.said = self.said.partition(b"\n")
        return line.decode()

    def say(self, line=""):
        """Says a line to it, for which it may wait."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self):
        """Lets it end; what it has written to standard error."""
        _, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        if self.process.returncode != 0:
            raise AssertionError(f"status {self.process.returncode}: {errors}")
        return errors

    def kill(self):
        """Kills it. Its children end because there is nobody to say a line to them any more."""
        if self.process.stdin.closed:
            return ""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        errors = self.process.stderr.read()
        self.process.stderr.close()
        self.process.stdout.close()
        return errors


class Client:
    """A connection to a squeezer, that can also say what no client should."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        # With a timeout, a queue that is full would be an error and not waited for.
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        self.socket.settimeout(PATIENCE_SECONDS)
        self.file = self.socket.makefile("rb")

    def line(self):
        """The next line, from JSON; None at the end."""
        try:
            line = self.file.readline()
        except ConnectionResetError:  # it closed with words of ours unread
            return None
        return json.loads(line) if line else None

    def send(self, data):
        """Sends bytes, of which the squeezer may have closed its ears to some."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def squeeze(self, **what):
        self.send(json.dumps({"squeeze": what}).encode() + b"\n")
        return self.line()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()


def run_client(*arguments):
    """Runs the client of squeezers/client."""
    return subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def client_answer(*arguments):
    """What the client of squeezers/client prints as JSON."""
    done = run_client(*arguments, "--json")
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def child_answer(pid):
    """The same of a child of a fork, which has a socket only when it has lived for a while."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while f"no squeezer in process {pid}" in run_client(pid, "--no-heap", "--no-trim").stderr:
        if time.monotonic() > limit:
            raise AssertionError(f"process {pid} has no squeezer")
        time.sleep(0.05)
    return client_answer(pid)


class AgentTest(unittest.TestCase):
    """A test with a folder of its own, whose programs end with it."""

    maxDiff = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="squeezer-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = os.path.join(self.folder, "socket")

    def start(self, source, **environment):
        """A program whose squeezer listens at self.path."""
        environment.setdefault("SQUEEZER_SOCKET", self.path)
        program = Program(source, **environment)
        self.addCleanup(program.kill)
        return program

    def connect(self, path=None):
        client = Client(path or self.path)
        self.addCleanup(client.__exit__)
        return client

    def assert_answer(self, answer):
        """That this is an answer without an error."""
        self.assertEqual(set(answer), NUMBERS | {"error"})
        self.assertIsNone(answer["error"])
        for name in NUMBERS:
            self.assertIs(type(answer[name]), int, name)
            self.assertGreaterEqual(answer[name], 0, name)


# Says that it has come so far, and waits to be told to go on.
HERE = "print('here', flush=True); sys.stdin.readline()\n"
