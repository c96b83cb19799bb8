"""Programs with a squeezer in them."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

from client import Client
from matrix import PRELOADS

PROGRAMS = pathlib.Path(__file__).parent / "programs"
# Until a process has started, or ended. Nothing is measured with it.
PATIENCE_SECONDS = 60


def environment(**variables):
    """That of the tests without what would change a Node, and with these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NODE_", "SQUEEZER"))}
    return {**kept, **{name: str(value) for name, value in variables.items()}}


def wait_for(what, ready):
    end = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} in {PATIENCE_SECONDS} s")
        time.sleep(0.01)


def listens(path):
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def run(node, *arguments, route="addon", **variables):
    """Runs a program with a squeezer in it to its end."""
    return subprocess.run([node, "--require", PRELOADS[route], *map(str, arguments)], env=environment(**variables),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


class Program(contextlib.AbstractContextManager):
    """A running program of programs/, which does what it is told in lines, with a squeezer in it."""

    def __init__(self, node, route="addon", name="served.js", options=(), preload=None):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="v8-"))
        self.socket = self.directory / "squeezer.sock"
        self.process = subprocess.Popen(
            [node, *options, "--require", preload or PRELOADS[route], PROGRAMS / name],
            env=environment(SQUEEZER_SOCKET=self.socket), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for("squeezer", lambda: listens(self.socket) or self.process.poll() is not None)

    def tell(self, *command):
        """Sends a command, and does not wait."""
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise ChildProcessError(f"the program ended with {self.process.wait()}: {self.process.stderr.read()}")
        return json.loads(line)

    def do(self, *command):
        self.tell(*command)
        return self.answer()

    def client(self):
        return Client(self.socket)

    def squeeze(self, **wanted):
        with self.client() as client:
            client.message()
            answer = client.ask(**wanted)
        if answer["error"] is not None:
            raise AssertionError(answer["error"])
        return answer

    def memory(self, kind="Anonymous"):
        """Memory of the process of a kind of smaps_rollup, in bytes: by default what is not from files, its own alone.
        That of files is shared with whatever other Nodes there are just now."""
        with open(f"/proc/{self.process.pid}/smaps_rollup", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{kind}:"))

    def end(self):
        """Lets it come to its end; its status and what it said on standard error."""
        self.process.stdin.close()
        complaints = self.process.stderr.read()
        return self.process.wait(PATIENCE_SECONDS), complaints

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        shutil.rmtree(self.directory)
