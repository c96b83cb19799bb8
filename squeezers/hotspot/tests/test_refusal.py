"""JVMs that the squeezer does not touch, and says so."""

import subprocess
import unittest

from matrix import JDKS
from program import Program

# Flags, the collector's name, what the reason names.
REFUSED = [
    (["-XX:+UseZGC"], "z", "UseZGC"),
    (["-XX:+UseShenandoahGC"], "shenandoah", "UseShenandoahGC"),
    (["-XX:+UseEpsilonGC"], "epsilon", "UseEpsilonGC"),
    (["-XX:+UseConcMarkSweepGC"], "cms", "UseConcMarkSweepGC"),
    # The disk has to have room for the whole heap, which is a quarter of all memory unless it is limited.
    (["-XX:+UseG1GC", "-XX:AllocateHeapAt=/tmp", "-Xmx64m"], "g1", "AllocateHeapAt"),
    (["-XX:+UseSerialGC", "-XX:AllocateHeapAt=/tmp", "-Xmx64m"], "serial", "AllocateHeapAt"),
    (["-XX:+UseParallelGC", "-XX:+UseNUMA", "-XX:+ForceNUMA"], "parallel", "UseNUMA"),
    # Only where somebody has set huge pages aside; elsewhere the JVM does without them.
    (["-XX:+UseG1GC", "-XX:+UseLargePages", "-Xms16m", "-Xmx16m"], "g1", "hugetlb"),
]
UNLOCK = ["-XX:+UnlockExperimentalVMOptions", "-XX:+UnlockDiagnosticVMOptions"]


def value(java, flags, name):
    """What the JVM makes of a flag; None if it does not start with these."""
    result = subprocess.run([java, *flags, "-XX:+PrintFlagsFinal", "-version"], capture_output=True, text=True)
    if result.returncode:
        return None
    return next((line.split()[3] for line in result.stdout.splitlines() if line.split()[1:2] == [name]), None)


class Refusal(unittest.TestCase):
    def refused(self, java, flags, collector, reason):
        with Program(java, *flags) as program:
            with program.client() as client:
                self.assertEqual(client.hello["collector"], collector)
                self.assertIn(reason, client.hello["refused"])
                for _ in range(2):
                    answer = client.squeeze()
                    self.assertEqual(answer["error"], client.hello["refused"])
                    self.assertEqual(answer["advised_bytes"], 0)
                client.send(b"nonsense\n")
                self.assertNotIn(reason, client.line().decode())
                self.assertEqual(client.line(), b"")
            self.assertEqual(program.do("hold 1"), "held")
            self.assertEqual(program.do("check"), "right")
            self.assertEqual(program.quit(), 0)

    def test_refused(self):
        tried = set()
        for version, home in JDKS:
            java = home + "/bin/java"
            for flags, collector, reason in REFUSED:
                if "-XX:+UseLargePages" in flags and value(java, UNLOCK + flags, "UseLargePages") != "true":
                    continue
                if value(java, UNLOCK + flags, "UseSerialGC") is None:
                    continue
                tried.add(reason)
                with self.subTest(version=version, flags=flags):
                    self.refused(java, UNLOCK + flags, collector, reason)
        self.assertGreaterEqual(tried, {"UseZGC", "UseShenandoahGC", "UseEpsilonGC", "UseConcMarkSweepGC",
                                        "AllocateHeapAt", "UseNUMA"})

    def test_version_and_build(self):
        """JDK 11 lets its command line say which version and build it is."""
        java = dict(JDKS)["11"] + "/bin/java"
        self.refused(java, ["-Djava.vm.specification.version=12"], None, "JDK 12 is not known")
        self.refused(java, ["-Djdk.debug=fastdebug"], "g1", "debug build")
