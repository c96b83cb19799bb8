"""The experimental route: free pools inside of pymalloc's arenas."""
import os
import shutil
import subprocess
import unittest

from conformance.client import Client
from support import FOLDER, HERE, PRELOAD, PYTHON, VERSION, WARNINGS, ProgramTest, ask_python, child_answer

MIB = 1 << 20

# 40 MiB of tuples, of which one run in four stays: an arena is never empty, and most pools are.
SCATTERED = """
import sys
def fill():
    return [(number, str(number) * 8, float(number)) for number in range(200_000)]
rows = fill()
rows = [row for number, row in enumerate(rows) if number // 2000 % 4 == 0]
check = [(row[0], str(row[0]) * 8, float(row[0])) for row in rows]
"""

HAS_POOLS = ask_python("'t' not in sys.abiflags") == "True"


@unittest.skipUnless(HAS_POOLS, "does not apply: a free-threaded build has no pymalloc")
class Pools(ProgramTest):
    def given_back(self, program):
        program.line()
        with Client(self.path) as client:
            answer = client.squeeze()
        self.assert_answer(answer)
        return answer["before_bytes"] - answer["after_bytes"]

    def test_free_pools_are_given_back_and_used_again(self):
        source = SCATTERED + HERE + """
assert rows == check
more = [fill(), fill()]
assert rows == check and more[0] == more[1] == fill()
del more
""" + HERE + "assert rows == check\n"
        plain = self.start(source)
        without = self.given_back(plain)
        plain.kill()
        program = self.start(source, SQUEEZER_EXPERIMENTAL="1")
        self.assertGreater(self.given_back(program), without + 5 * MIB)
        program.say()
        self.assertGreater(self.given_back(program), 5 * MIB)
        program.say()
        self.assert_ends(program)

    def test_off_unless_it_is_asked_for(self):
        for value in ("", "0", "yes"):
            program = self.start("import sys\nprint(open('/proc/self/maps').read().count('libpools'))\n" + HERE,
                                 SQUEEZER_EXPERIMENTAL=value)
            self.assertEqual(program.line(), "0")
            program.kill()

    def test_a_child_of_a_fork_gives_back_its_own(self):
        program = self.start("import os\n" + SCATTERED + """
if os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
rows = rows[:1000]
print(os.getpid(), flush=True)
os.read(0, 1)
assert rows == check[:1000]
assert fill()[:1000] == check[:1000]
""", SQUEEZER_EXPERIMENTAL="1", PYTHONWARNINGS=WARNINGS)
        child = int(program.line())
        answer = child_answer(child)["answer"]
        self.assertGreater(answer["before_bytes"] - answer["after_bytes"], 5 * MIB)
        program.say()
        self.assert_ends(program)

    def test_with_several_interpreters_nothing_is_done(self):
        program = self.start("""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
""" + SCATTERED + "other = interpreters.create()\n" + HERE + "interpreters.destroy(other)\n" + HERE,
                             SQUEEZER_EXPERIMENTAL="1")
        with_two = self.given_back(program)
        program.say()
        self.assertGreater(self.given_back(program), with_two + 5 * MIB)

    def test_with_malloc_it_changes_nothing(self):
        program = self.start(SCATTERED + HERE + "assert rows == check\n",
                             SQUEEZER_EXPERIMENTAL="1", PYTHONMALLOC="malloc")
        self.assertGreater(self.given_back(program), 5 * MIB)
        program.say()
        self.assert_ends(program)

    def test_it_does_not_work_with_anothers_arenas(self):
        library = os.path.join(self.folder, "other.so")
        source = """
#include <stddef.h>
struct allocator { void *context; void *(*allocate)(void *, size_t); void (*release)(void *, void *, size_t); };
extern void PyObject_GetArenaAllocator(struct allocator *), PyObject_SetArenaAllocator(struct allocator *);
static struct allocator original;
static void *allocate(void *c, size_t size) { return original.allocate(c, size); }
static void release(void *c, void *address, size_t size) { original.release(c, address, size); }
void install(void)
{
    struct allocator ours = { NULL, allocate, release };
    PyObject_GetArenaAllocator(&original);
    PyObject_SetArenaAllocator(&ours);
}
"""
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source, text=True, check=True)
        preload = os.path.join(self.folder, "preload")
        shutil.copytree(PRELOAD, preload)
        with open(os.path.join(preload, "sitecustomize.py"), "w") as file:
            file.write(f"import ctypes\nctypes.PyDLL({library!r}).install()\nimport squeezer\nsqueezer.start()\n")
        program = self.start(SCATTERED + HERE, PYTHONPATH=preload, SQUEEZER_EXPERIMENTAL="1")
        self.assertLess(self.given_back(program), 5 * MIB)
        program.say()
        self.assertIn("another allocator of arenas is there already; free pools are not given back", self.errors_at_end(program))

    def test_without_its_library_it_says_so(self):
        preload = os.path.join(self.folder, "preload")
        shutil.copytree(PRELOAD, preload, ignore=shutil.ignore_patterns("*.so"))
        program = self.start(SCATTERED + HERE, PYTHONPATH=preload, SQUEEZER_EXPERIMENTAL="1")
        self.given_back(program)
        program.say()
        self.assertIn("make -C squeezers/cpython builds it; free pools are not given back", self.errors_at_end(program))

    def test_a_version_that_is_not_known_is_refused(self):
        source = """
import sys
sys.version_info = (3, 99, 0, "final", 0)
sys.version = "3.99.0 (main)"
from squeezer import pools
print(pools.install())
"""
        program = self.start(source)
        self.assertEqual(program.line(), "CPython 3.99.0 is not known")

    def test_the_library_is_of_no_version_in_particular(self):
        self.assertIn(VERSION, ((3, 11), (3, 12), (3, 13), (3, 14)), f"add {PYTHON} to pools.py after reading its source")
        needed = subprocess.run(["readelf", "-d", os.path.join(FOLDER, "preload/squeezer/libpools.so")],
                                capture_output=True, text=True, check=True).stdout
        self.assertNotIn("libpython", needed)
