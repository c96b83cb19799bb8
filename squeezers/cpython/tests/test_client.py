"""The client of squeezers/client with a real squeezer, and with what is none."""
import os
import signal
import socket
import subprocess
import threading
import time
import unittest

from conformance.program import wait_until
from support import CLIENT, HERE, ProgramTest, client_answer, run_client

IDLE = "import sys\n" + HERE


def state(pid):
    """R, S, T and so on, as ps(1) has it."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


class ClientProgram(ProgramTest):
    def setUp(self):
        super().setUp()
        self.program = self.start(IDLE)
        self.program.line()

    def fails(self, *arguments):
        """The one line of standard error."""
        done = run_client(*arguments)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("squeezer: "))
        return done.stderr

    def stop(self):
        os.kill(self.program.pid, signal.SIGSTOP)
        wait_until(lambda: state(self.program.pid) == "T", "it does not stop")

    def test_by_process_and_by_socket(self):
        for target in (self.program.pid, self.path):
            report = client_answer(target)
            self.assertEqual(report["pid"], self.program.pid)
            self.assertEqual(report["hello"]["runtime"], "cpython")
            self.assertGreater(report["after"]["uss_bytes"], 0)
            self.assertGreater(report["after"]["rss_bytes"], report["after"]["uss_bytes"])
        table = run_client(self.program.pid, "--level", "all", "--no-heap").stdout
        for word in (f"process {self.program.pid}: cpython 3.", "USS", "RSS", "PSS", "heap resident", "live", "pause"):
            self.assertIn(word, table)

    @unittest.skipIf(os.geteuid(), "to evict another process's pages takes root")
    def test_libraries_of_a_running_process(self):
        before = client_answer(self.program.pid)["after"]
        report = client_answer(self.program.pid, "--libraries")
        self.assertNotEqual(state(self.program.pid), "T")
        self.assertEqual(set(report["libraries"]), {"advised_bytes", "mappings", "shared_bytes"})
        self.assertLessEqual(report["after"]["rss_bytes"], before["rss_bytes"])
        client_answer(self.program.pid)

    @unittest.skipIf(os.geteuid(), "to evict another process's pages takes root")
    def test_a_stopped_process_cannot_answer_and_stays_stopped(self):
        self.stop()
        self.assertIn("took longer than the deadline", self.fails(self.program.pid, "--deadline", "0.3"))
        self.assertEqual(state(self.program.pid), "T")
        report = client_answer(self.program.pid, "--libraries", "--no-heap", "--no-trim")
        self.assertIsNone(report["answer"])
        self.assertEqual(state(self.program.pid), "T")
        os.kill(self.program.pid, signal.SIGCONT)
        client_answer(self.program.pid)

    @unittest.skipIf(os.geteuid(), "to evict another process's pages takes root")
    def test_whenever_it_is_interrupted_the_process_goes_on(self):
        for tenth_milliseconds in range(0, 200, 10):
            client = subprocess.Popen([CLIENT, str(self.program.pid), "--libraries", "--no-heap", "--no-trim"],
                                      stdout=subprocess.DEVNULL)
            time.sleep(tenth_milliseconds / 10_000)
            client.send_signal(signal.SIGINT)
            self.assertIn(client.wait(), (0, -signal.SIGINT))
            wait_until(lambda: state(self.program.pid) != "T", f"left stopped after {tenth_milliseconds}")
        client_answer(self.program.pid)

    def test_what_is_not_there(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        self.assertIn(f"there is no process {gone.pid}", self.fails(gone.pid))
        self.assertIn("no squeezer in process", self.fails(os.getpid()))
        self.assertIn("no such file", self.fails(os.path.join(self.folder, "nothing")))
        self.assertIn("not a socket", self.fails("/etc/passwd"))
        self.assertIn("not a socket", self.fails("/"))

    def test_a_process_whose_squeezer_has_no_socket(self):
        program = self.start(IDLE, SQUEEZER_SOCKET="relative")
        program.line()
        self.assertIn(f"no squeezer in process {program.pid}", self.fails(program.pid))

    def test_a_process_that_was_told_the_path_of_another(self):
        second = self.start(IDLE)
        second.line()
        for program in (self.program, second):
            self.assertEqual(client_answer(program.pid)["hello"]["pid"], program.pid)

    def test_a_process_that_points_to_another_ones_squeezer(self):
        other = subprocess.Popen(["sleep", "600"], env={**os.environ, "SQUEEZER_SOCKET": self.path})
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        # Until it has executed sleep, its environment is ours.
        wait_until(lambda: f"process {self.program.pid} listens there" in self.fails(other.pid), "it is asked")

    def test_an_agent_that_says_it_is_another(self):
        """A process that listens where a squeezer would, and says what no squeezer says."""
        path = os.path.join(self.folder, "other")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        self.addCleanup(listener.close)

        def answer():
            for hello in (b'{"squeezer":2}\n', b"220 mail ESMTP\n", b"x" * 70_000, b""):
                connection, _ = listener.accept()
                try:
                    connection.sendall(hello)
                except OSError:
                    pass
                connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        for reason in ("version 2", "its hello", "longer than 65536 bytes", "hung up"):
            self.assertIn(reason, self.fails(path))
        thread.join()

    @unittest.skipIf(os.geteuid(), "to become another user takes root")
    def test_another_user_is_told_what_to_be(self):
        os.chmod(self.folder, 0o755)
        program = os.path.join(self.folder, "squeezer")
        subprocess.run(["cp", CLIENT, program], check=True)
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program,
                               str(self.program.pid)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("be root, or the user of the process", done.stderr)

    def test_arguments(self):
        for arguments in ((), ("java",), ("0",), (1, 2), (1, "--level", "most"), (1, "--deadline", "-1")):
            done = run_client(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        manual = run_client("--help").stdout
        for word in ("--libraries", "SQUEEZER_SOCKET", "Exit status", "Examples"):
            self.assertIn(word, manual)
