"""Processes that a program makes of itself."""
import glob
import os
import time
import unittest

from conformance.client import Client
from conformance.program import default_path
from support import HERE, MISCOUNTS_THREADS, VERSION, WARNINGS, ProgramTest, child_answer

# A child says its number, and lives until there is a line on standard input, which all of them share.
WORKERS = """
import os, sys
def work():
    print(os.getpid(), flush=True)
    os.read(0, 1)
"""


def sockets_of(pids):
    """Which of these processes have a socket file of their own."""
    return [pid for pid in pids if os.path.lexists(default_path(pid))]


def socket_files():
    """The socket files of all processes, each with what tells it from another at the same path."""
    files = set()
    for path in glob.glob(str(default_path("*"))):
        try:
            status = os.lstat(path)
        except FileNotFoundError:  # its process has just ended
            continue
        files.add((path, (status.st_ino, status.st_ctime_ns)))
    return files


class Fork(ProgramTest):
    def each_is_served(self, *pids):
        for pid in pids:
            report = child_answer(pid)
            self.assertEqual(report["hello"]["pid"], pid)
            self.assert_answer({**report["answer"], "error": None})

    def test_workers_that_are_forked_before_they_serve(self):
        program = self.start(WORKERS + """
gone = []
for _ in range(4):
    child = os.fork()
    if not child:
        work()
        sys.exit(0)
    gone.append(child)
for child in gone:
    assert os.waitpid(child, 0)[1] == 0
""" + HERE, PYTHONWARNINGS=WARNINGS)
        workers = [int(program.line()) for _ in range(4)]
        self.each_is_served(program.pid, *workers)
        self.assertEqual(sockets_of(workers), workers)
        # The parent's is at the path that it was told.
        with Client(self.path) as client:
            self.assertEqual(client.hello["pid"], program.pid)
        for _ in workers:
            program.say()
        self.assertEqual(program.line(), "here")
        self.assertEqual(sockets_of(workers), [])
        self.each_is_served(program.pid)
        program.say()
        self.assert_ends(program)

    def test_a_child_of_a_child_that_outlives_both(self):
        program = self.start(WORKERS + """
if os.fork():
    os.wait()
    sys.exit(0)
if os.fork():
    os._exit(0)
work()
""")
        daemon = int(program.line())
        # Its parent has ended without a word, and so has left its file.
        while os.path.lexists(self.path):
            time.sleep(0.01)
        self.each_is_served(daemon)
        program.say()
        self.errors_at_end(program)
        self.assertEqual(sockets_of([daemon]), [])

    def test_multiprocessing(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method):
                script = os.path.join(self.folder, f"{method}.py")
                with open(script, "w") as file:
                    file.write(f"""
import multiprocessing, os, sys
def work(connection):
    connection.send(os.getpid())
    connection.recv()
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    pairs = [context.Pipe() for _ in range(2)]
    processes = [context.Process(target=work, args=(end,)) for _, end in pairs]
    for process in processes:
        process.start()
    for mine, _ in pairs:
        print(mine.recv(), flush=True)
    os.read(0, 1)
    for mine, _ in pairs:
        mine.send("end")
    for process in processes:
        process.join()
        assert process.exitcode == 0
""")
                program = self.start(f"import runpy, sys; sys.argv = [{script!r}]\n"
                                     f"runpy.run_path({script!r}, run_name='__main__')", PYTHONWARNINGS=WARNINGS)
                workers = [int(program.line()) for _ in range(2)]
                self.each_is_served(program.pid, *workers)
                program.say()
                self.assert_ends(program)
                self.assertEqual(sockets_of(workers), [])

    @unittest.skipIf(VERSION < (3, 12), "does not apply: Python warns since 3.12")
    @unittest.skipIf(MISCOUNTS_THREADS, "does not apply: this Python counts threads too late")
    def test_python_does_not_warn_of_our_thread(self):
        source = """
import os, sys, threading
{}
for _ in range(50):
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
"""
        program = self.start(source.format(""), PYTHONWARNINGS="always")
        self.assert_ends(program)
        # Of one that the program has itself, it does.
        own = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
        program = self.start(source.format(own), PYTHONWARNINGS="always")
        self.assertIn("multi-threaded, use of fork", self.errors_at_end(program))

    def test_forks_from_many_threads_while_it_squeezes(self):
        program = self.start(WORKERS + """
import threading, warnings
warnings.simplefilter("ignore")
def forks():
    while not ended:
        child = os.fork()
        if not child:
            os._exit(len(garbage) % 2)
        if os.waitpid(child, 0)[1]:
            failed.append(child)
ended, failed, garbage = [], [], []
threads = [threading.Thread(target=forks) for _ in range(3)]
for thread in threads:
    thread.start()
print("here", flush=True)
sys.stdin.readline()
ended.append(True)
for thread in threads:
    thread.join()
print(failed, flush=True)
""")
        program.line()
        with Client(self.path) as client:
            for _ in range(100):
                self.assert_answer(client.squeeze())
        program.say()
        self.assertEqual(program.line(), "[]")
        self.assert_ends(program)

    def test_children_that_soon_end_leave_nothing(self):
        # A process that was killed leaves its file, and a number comes round again.
        stale = socket_files()
        program = self.start("""
import os, time
for _ in range(50):
    start = time.monotonic()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    print(child, time.monotonic() - start, flush=True)
""")
        lines = [program.line().split() for _ in range(50)]
        self.errors_at_end(program)
        # On a busy machine one may live for the second after which it gets a socket.
        soon = [int(child) for child, seconds in lines if float(seconds) < 0.9]
        self.assertGreater(len(soon), 25)
        left = socket_files() - stale
        self.assertEqual([pid for pid in soon if any(path == str(default_path(pid)) for path, _ in left)], [])

    def test_programs_that_it_starts_have_their_own(self):
        program = self.start("""
import subprocess, sys
child = "import os, sys; print(os.getpid(), flush=True); sys.stdin.readline()"
subprocess.run([sys.executable, "-c", child], check=True)
""")
        child = int(program.line())
        self.each_is_served(program.pid, child)
        program.say()
        self.assert_ends(program)
        self.assertEqual(sockets_of([child]), [])

    def test_a_fork_while_finalizers_run_leaves_a_child_that_can_collect(self):
        program = self.start(WORKERS + """
import gc, threading, time, weakref
class Slow:
    def __init__(self):
        self.self = self
    def __del__(self):
        time.sleep(0.001)
def collects():
    lost = Slow()
    reference = weakref.ref(lost)
    del lost
    gc.collect()
    return reference() is None
gc.disable()
# A fork waits for a collection for 5 s. This one takes less on a busy machine, too, where a millisecond takes ten.
for _ in range(200):
    Slow()
print("here", flush=True)
while not os.path.exists(os.environ["END"]):
    child = os.fork()
    if not child:
        gc.set_threshold(0)
        os._exit(not collects())
    if os.waitpid(child, 0)[1]:
        print("a child cannot collect", flush=True)
        os._exit(1)
    for _ in range(5):
        Slow()
print("right", flush=True)
""", PYTHONWARNINGS="ignore", END=os.path.join(self.folder, "end"))
        program.line()
        with Client(self.path) as client:
            for _ in range(5):
                self.assert_answer(client.squeeze())
        open(os.path.join(self.folder, "end"), "x").close()
        self.assertEqual(program.line(), "right")
        self.assert_ends(program)

    def test_a_fork_is_not_held_up_for_ever_by_a_finalizer(self):
        """One that waits for a lock which the thread that forks has."""
        program = self.start("""
import gc, os, sys, threading
gc.disable()
lock = threading.Lock()
class Waiting:
    def __init__(self):
        self.self = self
    def __del__(self):
        print("waits", flush=True)
        with lock:
            pass
Waiting()
with lock:
    print("here", flush=True)
    sys.stdin.readline()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
print("forked", flush=True)
""", PYTHONWARNINGS="ignore")
        program.line()
        with Client(self.path) as client:
            client.send(b'{"squeeze":{}}\n')
            self.assertEqual(program.line(), "waits")
            program.say()
            self.assertEqual(program.line(), "forked")
            self.assert_ends(program)
