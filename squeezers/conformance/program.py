"""Programs with a squeezer in them."""

import contextlib
import os
import pathlib
import select
import shutil
import socket
import subprocess
import tempfile
import time

from conformance.client import Client

# How long anything may take before a test is lost; nothing is measured with it.
PATIENCE_SECONDS = 120


def default_path(pid):
    """Where the squeezer of a process listens that was told no path."""
    return pathlib.Path(f"/tmp/squeezer-{pid}.sock")


def listens(path):
    """Whether somebody takes connections there."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def remove_left_behind():
    """Removes the sockets at default paths of processes that have ended, one of which may have had the next one's PID.

    Who is killed, or is a child that ends at once, leaves its own behind, and PIDs come again after some minutes.
    """
    for path in pathlib.Path("/tmp").glob("squeezer-*.sock"):
        pid = path.stem.removeprefix("squeezer-")
        # One of another PID namespace is not known by its number.
        if not pathlib.Path("/proc", pid).exists() and not listens(path):
            path.unlink(missing_ok=True)


def wait_until(condition, what="it does not come about"):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(what)
        time.sleep(0.01)


def environment_without(*prefixes):
    """The environment of the tests without the variables that begin with one of these, or are a squeezer's."""
    return {name: value for name, value in os.environ.items() if not name.startswith((*prefixes, "SQUEEZER_"))}


class Program(contextlib.AbstractContextManager):
    """A process with a directory of its own, which is told what to do in lines, and says what it has done in lines."""

    def __init__(self, command, environment, **options):
        """`environment` is all of it. Without SQUEEZER_SOCKET, its socket is in its directory; None is no variable."""
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="squeezer-test-"))
        remove_left_behind()
        path = environment.get("SQUEEZER_SOCKET", self.directory / "squeezer.sock")
        variables = {**environment, "SQUEEZER_SOCKET": path}
        options.setdefault("cwd", self.directory)
        self._errors = self.directory / "standard-error"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                list(map(str, command)), env={name: str(value) for name, value in variables.items() if value is not None},
                text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, **options)
        self.pid = self.process.pid
        self.socket = pathlib.Path(path) if path else default_path(self.pid)
        self._said = b""

    def say(self, line=""):
        """Says a line to it, for which it may wait."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def line(self):
        """The next line that it says."""
        while b"\n" not in self._said:
            if not self._receive():
                raise AssertionError(f"the program ended: {self._said} {self.errors()}")
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def _receive(self):
        """Whether there was more on its standard output."""
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_SECONDS)
        if not ready:
            raise AssertionError(f"the program hangs: {self._said} {self.errors()}")
        said = os.read(self.process.stdout.fileno(), 4096)
        self._said += said
        return bool(said)

    def errors(self):
        """What it has written to standard error."""
        return self._errors.read_text(errors="replace")

    def end(self):
        """Lets it and its children come to their end; its status, and what they have written to standard error."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.wait()

    def wait(self):
        """The same of one that ends by itself."""
        # Its children have this too.
        while self._receive():
            pass
        return self.process.wait(PATIENCE_SECONDS), self.errors()

    def kill(self):
        """Kills it. Its children end because there is nobody to say a line to them any more."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_):
        self.kill()

    def wait_until_ready(self):
        self.wait_for_squeezer()

    def wait_for_squeezer(self):
        """Waits until its squeezer listens."""
        wait_until(lambda: listens(self.socket) or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise AssertionError(f"the program ended: {self.errors()}")

    def client(self):
        return Client(self.socket)

    def squeeze(self, **wanted):
        """An answer without an error."""
        with self.client() as client:
            answer = client.squeeze(**wanted)
        if answer is None or answer["error"] is not None:
            raise AssertionError(answer)
        return answer

    def memory(self, kind):
        """Memory of a kind of smaps_rollup, in bytes, as the kernel counts it."""
        with open(f"/proc/{self.pid}/smaps_rollup", encoding="ascii") as lines:
            return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))
