"""Builds the test suites of the workspace that need VMs, and runs several of them at a time.

usage: scripts/test-suites.py [SUITE...]    all without any; a suite is PACKAGE/TEST, e.g. squeezy/serve

Within a suite, one test runs after the other. An emulated VM boots, waits and is asked by turns: alone, it leaves half
of two processors idle (measured 2026-11-27). What a suite prints follows when it has ended, each line with the seconds
that had passed when it did.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

# The longest ones, so that none of them is left at the end.
FIRST = ["squeezy-kernel-tests/selftests", "squeezy/soak", "squeezy-kernel-tests/layouts", "squeezy/code"]
# These see whether processors are divided fairly, so nobody else may take any.
ALONE = ["squeezy/processors"]
# How many seconds pass before it is said again what is running.
SILENCE = 30


class Suite:
    def __init__(self, name, executable, directory):
        self.name, self.executable, self.directory = name, executable, directory
        self.process = self.reader = self.begin = None
        self.lines = []

    def start(self):
        self.begin = time.monotonic()
        # A group of its own, so that nothing of it is left when this is told to end.
        self.process = subprocess.Popen(
            [self.executable],
            cwd=self.directory,
            env=dict(os.environ, CARGO_MANIFEST_DIR=self.directory, RUST_TEST_THREADS="1"),
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

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def build():
    command = ["cargo", "test", "--workspace", "--exclude", "squeezy-llfree-tests", "--test", "*", "--no-run"]
    built = subprocess.run(
        [*command, "--message-format", "json-render-diagnostics"], stdout=subprocess.PIPE, text=True, check=True
    )
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and "test" in message["target"]["kind"]:
            directory = str(Path(message["manifest_path"]).parent)
            package = message["package_id"].split("#")[-1].split("@")[0]
            if package[0].isdigit():
                package = Path(message["package_id"].split("#")[0]).name
            yield Suite(f"{package}/{message['target']['name']}", message["executable"], directory)


def run(suites, at_once):
    """Runs suites, and returns the names of those that have failed."""
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
                    failed.append(suite.name)
            if time.monotonic() - said > SILENCE:
                said = time.monotonic()
                names = ", ".join(f"{suite.name} for {said - suite.begin:.0f} s" for suite in running)
                print(f"running: {names}; waiting: {len(waiting)} suites", flush=True)
    finally:
        for suite in running:
            suite.kill()
    return failed


def main(names):
    suites = {suite.name: suite for suite in build()}
    unknown = [name for name in names + FIRST + ALONE if name not in suites]
    if unknown:
        sys.exit(f"there is no suite {unknown[0]}; there are {', '.join(suites)}")
    chosen = sorted(names or suites, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    begin = time.monotonic()
    failed = run([suites[name] for name in chosen if name not in ALONE], os.cpu_count())
    failed += run([suites[name] for name in chosen if name in ALONE], 1)
    print(f"{len(chosen)} suites after {time.monotonic() - begin:.0f} s")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    main(sys.argv[1:])
