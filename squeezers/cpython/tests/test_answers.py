"""What is given back, and whether the numbers are right."""
from conformance.client import Client
from support import HERE, ProgramTest, client_answer

MIB = 1 << 20

# Garbage that only the collector finds: lists that hold themselves, and each a string of 1000 bytes.
GARBAGE = """
import gc, sys
gc.disable()
def litter(count):
    for number in range(count):
        cycle = [str(number) * 200]
        cycle.append(cycle)
"""

# 60 MiB of blocks and of small objects, of which every 64th stays: neither malloc nor pymalloc finds
# its memory free at an end.
FRAGMENTS = """
import sys
blocks = [bytes([number % 256]) * 20_000 for number in range(2000)]
objects = [(str(number), float(number)) for number in range(150_000)]
blocks, objects = blocks[::64], objects[::64]
"""


class Answers(ProgramTest):
    def test_garbage_is_collected_and_its_memory_given_back(self):
        for allocator in ("pymalloc", "malloc"):
            with self.subTest(allocator):
                program = self.start(GARBAGE + "litter(100_000)\n" + HERE, PYTHONMALLOC=allocator)
                program.line()
                report = client_answer(program.pid)
                answer = report["answer"]
                given_back = answer["before_bytes"] - answer["after_bytes"]
                # 100,000 strings of a thousand bytes, most of them.
                self.assertGreater(given_back, 60 * MIB)
                self.assertGreaterEqual(answer["advised_bytes"], given_back)
                self.assertGreater(report["before"]["uss_bytes"] - report["after"]["uss_bytes"], 60 * MIB)
                self.assertLess(answer["live_bytes"], answer["after_bytes"] + MIB)
                self.assertGreater(answer["pause_ns"], 0)
                self.assertGreater(answer["cpu_ns"], 0)
                program.kill()

    def test_only_what_is_asked_for(self):
        source = GARBAGE + """
litter(50_000)
for _ in range(4):
    print(len(gc.get_objects()) > 50_000, flush=True)
    sys.stdin.readline()
"""
        for request, stays in (({"heap": False}, "True"), ({"heap": False, "trim": False}, "True"), ({}, "False")):
            with self.subTest(request):
                program = self.start(source)
                self.assertEqual(program.line(), "True")
                with Client(self.path) as client:
                    self.assert_answer(client.squeeze(**request))
                program.say()
                self.assertEqual(program.line(), stays)
                program.kill()

    def test_malloc_gives_back_what_is_free_in_the_middle(self):
        program = self.start(FRAGMENTS + HERE, PYTHONMALLOC="malloc")
        program.line()
        with Client(self.path) as client:
            untrimmed = client.squeeze(trim=False)
            trimmed = client.squeeze()
        self.assert_answer(untrimmed)
        self.assert_answer(trimmed)
        self.assertGreater(trimmed["before_bytes"], 50 * MIB)
        self.assertLess(trimmed["after_bytes"], 30 * MIB)

    def test_live_is_what_the_program_holds(self):
        source = """
import sys
kept = []
for size, count in ((100, 200_000), (5000, 4000), (10_000_000, 2)):
    print('here', flush=True)
    sys.stdin.readline()
    kept.append([bytes(size) for _ in range(count)])
""" + HERE
        for allocator in ("pymalloc", "malloc"):
            with self.subTest(allocator):
                program = self.start(source, PYTHONMALLOC=allocator)
                program.line()
                live = []
                for step in range(4):
                    with Client(self.path) as client:
                        answer = client.squeeze()
                        self.assert_answer(answer)
                        live.append(answer["live_bytes"])
                    if step < 3:
                        program.say()
                        program.line()
                # The objects, their headers of 33 bytes and the lists: within a tenth.
                for (size, count), before, after in zip(
                    ((100, 200_000), (5000, 4000), (10_000_000, 2)), live, live[1:]
                ):
                    expected = count * (size + 33 + 8)
                    self.assertAlmostEqual(after - before, expected, delta=expected / 10 + MIB / 4)
                program.kill()

    def test_resident_is_what_the_system_counts(self):
        program = self.start("import sys\nkept = [bytes([1]) * 1_000_000 for _ in range(50)]\n" + HERE)
        program.line()
        report = client_answer(program.pid)
        with open(f"/proc/{program.pid}/smaps_rollup") as rollup:
            anonymous = next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Anonymous:"))
        self.assertGreater(report["answer"]["after_bytes"], 50_000_000)
        self.assertAlmostEqual(report["answer"]["after_bytes"], anonymous, delta=2 * MIB)

    def test_a_second_time_there_is_little_left(self):
        program = self.start(GARBAGE + "litter(50_000)\n" + HERE, PYTHONMALLOC="malloc")
        program.line()
        with Client(self.path) as client:
            first, second = client.squeeze(), client.squeeze()
        self.assertGreater(first["before_bytes"] - first["after_bytes"], 30 * MIB)
        self.assertAlmostEqual(second["before_bytes"], second["after_bytes"], delta=2 * MIB)

    def test_all_empties_caches_and_keep_does_not(self):
        program = self.start("""
import re, sys
compiled = re.compile("squeezy+")
for _ in range(3):
    print(re.compile("squeezy+") is compiled, flush=True)
    sys.stdin.readline()
""")
        for level in ("keep", "all"):
            self.assertEqual(program.line(), "True")
            with Client(self.path) as client:
                self.assert_answer(client.squeeze(level=level))
            program.say()
        self.assertEqual(program.line(), "False")

    def test_what_was_frozen_stays_frozen(self):
        program = self.start(GARBAGE + "litter(1000)\ngc.freeze()\nprint(gc.get_freeze_count() > 1000)\n" + HERE
                             + "print(gc.get_freeze_count() > 1000, gc.isenabled())\n")
        self.assertEqual(program.line(), "True")
        program.line()
        client_answer(program.pid)
        program.say()
        self.assertEqual(program.line(), "True False")

    def test_finalizers_may_do_as_they_please(self):
        source = """
import sys, threading
class Cycle:
    def __init__(self):
        self.self = self
    def __del__(self):
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        raise ValueError("nobody must stumble over this")
import gc
gc.disable()
for _ in range(10):
    Cycle()
""" + HERE
        program = self.start(source)
        program.line()
        client_answer(program.pid)
        client_answer(program.pid)
        program.say()
        self.assertIn("nobody must stumble over this", self.errors_at_end(program))
