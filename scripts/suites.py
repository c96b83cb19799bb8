"""Suites of tests that are built once and run side by side; see test-suites.py, test-scripts.py and stress.py.

An emulated VM boots, waits and is asked by turns: alone, it leaves half of two processors idle (measured 2026-11-27).
What a suite prints follows when it has ended, each line with the seconds that had passed when it did.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

# How many seconds pass before it is said again what is running.
SILENCE = 30
# How many of its last lines a suite that has failed says again, at the end of all.
LAST_LINES = 40
# How many seconds one that is told to end has for it.
PATIENCE = 5


class Suite:
    """A program that fails by its exit code, started in `directory` with `environment` besides ours."""

    def __init__(self, name, command, directory, environment=None):
        self.name, self.command, self.directory, self.environment = name, command, directory, environment or {}
        self.process = self.reader = self.begin = None
        self.lines = []

    def start(self):
        self.begin = time.monotonic()
        # A group of its own, so that nothing of it is left when this is told to end.
        self.process = subprocess.Popen(
            self.command,
            cwd=self.directory,
            env=os.environ | {"CARGO_MANIFEST_DIR": self.directory, "RUST_TEST_THREADS": "1"} | self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            errors="replace",
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        with self.process.stdout as output:
            for line in output:
                self.lines.append(f"{time.monotonic() - self.begin:6.1f} {line}")

    def report(self):
        # Not for ever: something that was left running may still have the other end.
        self.reader.join(timeout=5)
        print(f"--- {self.name}\n{''.join(self.lines)}", end="")
        result = "ok" if self.process.returncode == 0 else f"FAILED ({self.process.returncode})"
        print(f"--- {self.name}: {result} after {time.monotonic() - self.begin:.0f} s", flush=True)

    def end(self):
        """Lets a script end what it has in groups of their own and remove its files, and kills what is left then."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=PATIENCE)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def build(*arguments):
    """Builds tests as `cargo test` does with `arguments`, and returns the suites by name: PACKAGE/TEST, PACKAGE/lib."""
    command = ["cargo", "test", *arguments, "--no-run", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    suites = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            directory = str(Path(message["manifest_path"]).parent)
            package = message["package_id"].split("#")[-1].split("@")[0]
            if package[0].isdigit():
                package = Path(message["package_id"].split("#")[0]).name
            kind, target = message["target"]["kind"][0], message["target"]["name"]
            # A package has one library, and programs by their own names.
            name = f"{package}/{kind if kind == 'lib' else target}"
            suites[name] = Suite(name, [message["executable"]], directory)
    return suites


def run(suites, at_once):
    """Runs suites, and returns those that have failed."""
    waiting, running, failed = list(suites), [], []
    said = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
                running[-1].start()
            time.sleep(0.2)
            for suite in [suite for suite in running if suite.process.poll() is not None]:
                running.remove(suite)
                suite.report()
                said = time.monotonic()
                if suite.process.returncode != 0:
                    failed.append(suite)
            if time.monotonic() - said > SILENCE:
                said = time.monotonic()
                names = ", ".join(f"{suite.name} for {said - suite.begin:.0f} s" for suite in running)
                print(f"running: {names}; waiting: {len(waiting)} suites", flush=True)
    finally:
        for suite in running:
            suite.end()
    return failed


def run_all(suites, alone):
    """Runs suites, then those that share the processors with nobody, and exits with a failure if one has failed.

    Why it has is said again at the end: of a long output some only keep that.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    begin = time.monotonic()
    failed = run(suites, os.cpu_count()) + run(alone, 1)
    print(f"{len(suites) + len(alone)} suites after {time.monotonic() - begin:.0f} s")
    for suite in failed:
        print(f"--- {suite.name} has failed, its last lines:\n{''.join(suite.lines[-LAST_LINES:])}", end="", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(suite.name for suite in failed)}")
