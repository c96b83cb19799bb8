"""What is resident after a squeeze, and that the program notices nothing."""

import subprocess
import unittest

from conformance.case import STRESS
from matrix import JDKS, for_each_jvm
from program import Program

MIB = 1 << 20
# A count of pages, not a time: each space has one page that is used in part.
MOST = 1.05


@for_each_jvm
class Residency(unittest.TestCase):
    def squeezed(self, program, **wanted):
        answer = program.squeeze(**wanted)
        self.assertIsNone(answer["error"])
        self.assertGreater(answer["live_bytes"], 0)
        self.assertLessEqual(answer["after_bytes"], MOST * answer["live_bytes"])
        return answer

    def each_squeeze(self, java, collector):
        with Program(java, f"-XX:+Use{collector}GC") as program:
            program.do("hold 20")
            program.do("garbage 200")
            resident = program.memory("Rss:")
            answer = self.squeezed(program)
            # What is live is what the program holds, and what the JVM itself does.
            self.assertGreater(answer["live_bytes"], 20 * MIB)
            self.assertLess(answer["live_bytes"], 32 * MIB)
            self.assertGreater(answer["before_bytes"], answer["after_bytes"])
            self.assertGreater(answer["advised_bytes"], answer["before_bytes"] - answer["after_bytes"])
            self.assertGreater(answer["pause_ns"], 0)
            self.assertGreater(answer["cpu_ns"], 0)
            # The kernel says so too.
            freed = answer["before_bytes"] - answer["after_bytes"]
            self.assertLess(program.memory("Rss:"), resident - 0.9 * freed)
            self.assertEqual(program.do("check"), "right")
            # Once more, with holes in what it held.
            program.do("garbage 200")
            program.do("drop 2")
            second = self.squeezed(program)
            self.assertLess(second["live_bytes"], 0.8 * answer["live_bytes"])
            self.assertEqual(program.do("check"), "right")
            self.assertEqual(program.quit(), 0)

    def each_level(self, java, collector):
        with Program(java, f"-XX:+Use{collector}GC") as program:
            program.do("cache 8")
            kept = self.squeezed(program, level="keep", trim=False)
            self.assertEqual(program.do("cached"), "8")
            dropped = self.squeezed(program, level="all")
            self.assertEqual(program.do("cached"), "0")
            self.assertLessEqual(dropped["live_bytes"], kept["live_bytes"] - 7 * MIB)
            # It was for that one collection.
            program.do("cache 8")
            self.squeezed(program)
            self.assertEqual(program.do("cached"), "8")
            self.assertEqual(program.quit(), 0)

    def each_request_without_heap(self, java, collector):
        with Program(java, f"-XX:+Use{collector}GC") as program:
            program.do("hold 20")
            answer = program.squeeze(heap=False)
            self.assertIsNone(answer["error"])
            self.assertEqual((answer["live_bytes"], answer["advised_bytes"], answer["pause_ns"]), (0, 0, 0))
            self.assertGreater(answer["after_bytes"], 20 * MIB)
            self.assertEqual(program.quit(), 0)

    def each_humongous(self, java, collector):
        with Program(java, f"-XX:+Use{collector}GC") as program:
            for mebibytes in (1, 3, 8):
                program.do(f"huge {mebibytes}")
            program.do("garbage 100")
            program.do("drop 2")
            self.squeezed(program)
            self.assertEqual(program.do("check"), "right")
            program.do("huge 5")
            self.squeezed(program)
            self.assertEqual(program.do("check"), "right")
            self.assertEqual(program.quit(), 0)


def knows(java, *flags):
    return subprocess.run([java, *flags, "-version"], capture_output=True).returncode == 0


@unittest.skipUnless(STRESS, "does not apply: variants of the JVM run with --stress")
@for_each_jvm
class Variants(unittest.TestCase):
    """Flags that change how the heap is made or how objects are laid out in it."""

    FLAGS = [
        ["-Xms256m", "-XX:+AlwaysPreTouch"],
        ["-XX:-UseCompressedOops"],
        ["-XX:+UseCompactObjectHeaders"],
        ["-XX:ObjectAlignmentInBytes=32"],
        ["-Xcheck:jni"],
        ["-XX:+DisableExplicitGC", "-XX:+ExplicitGCInvokesConcurrent"],
        ["-Xshare:off"],
        ["-XX:+UseNUMA"],
        ["-XX:+UseStringDeduplication"],
        ["-Xint"],
        ["-XX:TieredStopAtLevel=1"],
        ["-Xmn64m", "-XX:-UseAdaptiveSizePolicy"],
        ["-XX:-ClassUnloading"],
        ["-Xmx3g"],
        ["-Xmx40g"],
        ["-Xmx16m"],
    ]

    def each_variant(self, java, collector):
        for variant in self.FLAGS:
            flags = [f"-XX:+Use{collector}GC", *variant]
            if not knows(java, *flags):
                continue
            with self.subTest(flags=flags), Program(java, *flags) as program:
                program.do("hold 5")
                program.do("garbage 60")
                answer = program.squeeze()
                self.assertIsNone(answer["error"])
                self.assertLessEqual(answer["after_bytes"], MOST * answer["live_bytes"])
                program.do("garbage 60")
                self.assertIsNone(program.squeeze(level="all")["error"])
                self.assertEqual(program.do("check"), "right")
                self.assertEqual(program.quit(), 0)

    def each_transparent_huge_pages(self, java, collector):
        with Program(java, f"-XX:+Use{collector}GC", "-XX:+UseTransparentHugePages") as program:
            program.do("hold 20")
            program.do("garbage 150")
            answer = program.squeeze()
            self.assertIsNone(answer["error"])
            # The first objects after the pause take huge pages at once.
            self.assertLess(answer["after_bytes"], MOST * answer["live_bytes"] + 16 * MIB)
            self.assertEqual(program.do("check"), "right")
            self.assertEqual(program.quit(), 0)


class OldParallel(unittest.TestCase):
    @unittest.skipUnless("11" in dict(JDKS), "does not apply: only JDK 11 has it")
    def test_parallel_with_serial_old_collection(self):
        with Program(dict(JDKS)["11"] + "/bin/java", "-XX:+UseParallelGC", "-XX:-UseParallelOldGC") as program:
            program.do("hold 20")
            program.do("garbage 200")
            answer = program.squeeze()
            self.assertIsNone(answer["error"])
            self.assertLessEqual(answer["after_bytes"], MOST * answer["live_bytes"])
            self.assertEqual(program.do("check"), "right")
            self.assertEqual(program.quit(), 0)
