"""Java programs with the squeezer in them."""

import os
import pathlib
import subprocess
import tempfile
import time

from client import Client

BUILD = pathlib.Path(os.environ["HOTSPOT_BUILD"])
AGENT = BUILD / "libsqueezer.so"
UNSAFE_AGENT = BUILD / "libsqueezer_unsafe.so"
CLASSES = BUILD / "classes"
# Nothing here takes that long; a program that does has come to a halt.
PATIENCE_SECONDS = 120
# No core dumps: the tests let some of them crash.
QUIET = ["-XX:-CreateCoredumpOnCrash", "-XX:ErrorFile=error.log", "-Xmx256m"]


class Program:
    """One JVM in a directory of its own, which has its socket unless `environment` says otherwise."""

    def __init__(self, java, *flags, squeezer=AGENT, main="Workload", arguments=(), environment=None, wrapper=()):
        self.directory = tempfile.TemporaryDirectory(prefix="squeezy-hotspot-")
        self.path = pathlib.Path(self.directory.name)
        self.socket = self.path / "squeeze.sock"
        environment = {"SQUEEZER_SOCKET": str(self.socket)} if environment is None else environment
        clean = {name: value for name, value in os.environ.items()
                 if name not in ("SQUEEZER_SOCKET", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")}
        load = [f"-agentpath:{squeezer}"] if squeezer else []
        self.errors = open(self.path / "errors", "w+")
        self.process = subprocess.Popen(
            [*wrapper, java, *load, *QUIET, *flags, "-cp", CLASSES, main, *arguments],
            cwd=self.path, env={**clean, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, text=True)
        self.output = []
        self.wait_for("ready")

    def wait_for(self, line):
        for found in self.process.stdout:
            self.output.append(found.strip())
            if found.strip() == line:
                return
        raise AssertionError(f"the program ended without '{line}': {self.output}, {self.stderr()}")

    def do(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def client(self):
        return Client(self.socket)

    def squeeze(self, **wanted):
        with self.client() as client:
            return client.ask(**wanted)

    def stderr(self):
        self.errors.flush()
        return (self.path / "errors").read_text()

    def resident_bytes(self):
        """Of the whole process, as the kernel counts it."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no Rss in smaps_rollup")

    def quit(self):
        """The status that it ends with when it is told to."""
        self.process.stdin.write("quit\n")
        self.process.stdin.flush()
        return self.wait()

    def wait(self):
        status = self.process.wait(PATIENCE_SECONDS)
        self.output += self.process.stdout.read().split("\n")
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            try:
                file.close()
            except BrokenPipeError:
                pass
        self.directory.cleanup()


def eventually(condition):
    """Waits until it is true; for what happens after the squeezer or the JVM has answered already."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not come about")
        time.sleep(0.02)
