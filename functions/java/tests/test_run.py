"""What run.sh makes of its arguments and its environment."""

import os
import pathlib
import re
import subprocess
import unittest

from function import HERE, TIMEOUT, Process

FLAGS = "-XX:+PrintFlagsFinal"


class RunTest(unittest.TestCase):
    def flags(self, **environment):
        """Return the JVM's flags, as texts by their names."""
        process = Process("sort", FLAGS, **environment)
        try:
            return dict(re.findall(r"^ *\w+ (\w+) += (\S*)", process.said()[0], re.MULTILINE))
        finally:
            process.end()

    def test_the_process_is_the_jvm(self):
        process = Process("sort")
        self.addCleanup(process.end)
        self.assertEqual(pathlib.Path(os.readlink(f"/proc/{process.process.pid}/exe")).name, "java")

    def test_the_heap_follows_the_limit(self):
        flags = self.flags()
        self.assertEqual(flags["UseSerialGC"], "true")
        self.assertEqual(flags["TieredStopAtLevel"], "1")
        for limit in (256 << 20, 1 << 30):
            flags = self.flags(MEMORY_LIMIT=str(limit))
            # HotSpot rounds to what its collectors can divide: 2 MiB at most here.
            self.assertAlmostEqual(int(flags["MaxHeapSize"]), 0.85 * limit, delta=2 << 20)
            self.assertAlmostEqual(int(flags["InitialHeapSize"]), max(limit / 64, 8 << 20), delta=2 << 20)

    def test_collectors(self):
        for name, flag in (("parallel", "UseParallelGC"), ("g1", "UseG1GC")):
            self.assertEqual(self.flags(JAVA_COLLECTOR=name)[flag], "true")

    def test_options_of_the_jvm_reach_it(self):
        self.assertEqual(self.flags(JAVA_TOOL_OPTIONS="-XX:MaxHeapFreeRatio=61")["MaxHeapFreeRatio"], "61")

    def test_a_port_that_is_taken(self):
        process = Process("sort")
        self.addCleanup(process.end)
        done = subprocess.run([HERE / "run.sh", "sort"], env={**os.environ, "PORT": str(process.port)},
                              capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertIn("cannot listen on port", done.stderr)

    def test_what_it_cannot_do_is_one_line(self):
        for name, environment in (
            ("", {}), ("../sort", {}), ("Sort", {}), ("sort", {"MEMORY_LIMIT": "256M"}),
            ("sort", {"MEMORY_LIMIT": "1"}), ("sort", {"JAVA_COLLECTOR": "zgc"}),
            ("sort", {"JAVA_HOME": "/nonexistent"}), ("sort", {"PORT": "0"}), ("sort", {"PORT": "http"}),
        ):
            done = subprocess.run([HERE / "run.sh", name], env={**os.environ, **environment}, capture_output=True,
                                  text=True, timeout=TIMEOUT)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
