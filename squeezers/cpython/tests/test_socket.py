"""The socket file: where it is, whose it is, and when it goes."""
import os
import socket
import stat
import subprocess
import time

from support import HERE, PATIENCE_SECONDS, PRELOAD, PYTHON, AgentTest, Client, client_answer, run_client

IDLE = "import sys\n" + HERE


def default_path(pid):
    return f"/tmp/squeezer-{pid}.sock"


def bind(path):
    """A socket file at which nobody listens."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.close()


class Socket(AgentTest):
    def serves(self, path, pid):
        with Client(path) as client:
            self.assertEqual(client.line()["pid"], pid)
            self.assert_answer(client.squeeze())

    def served_at_last(self):
        """Waits until somebody says hello."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < limit:
            try:
                with Client(self.path) as client:
                    if client.line() is not None:
                        return
            except OSError:
                pass
            time.sleep(0.1)
        self.fail("nobody says hello any more")

    def goes_on_without(self, path, reason):
        """That the program runs, and says in one line why there is no squeezer in it."""
        program = self.start(IDLE, SQUEEZER_SOCKET=path)
        program.line()
        done = run_client(program.pid)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"no squeezer in process {program.pid}", done.stderr)
        errors = program.end()
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertIn(reason, errors)

    def test_only_its_user_may_connect_and_it_goes_with_the_process(self):
        program = self.start("import os\nos.umask(0)\n" + IDLE)
        program.line()
        status = os.lstat(self.path)
        self.assertEqual(stat.S_IMODE(status.st_mode), 0o600)
        self.assertTrue(stat.S_ISSOCK(status.st_mode))
        self.serves(self.path, program.pid)
        program.say()
        self.assertEqual(program.end(), "")
        self.assertFalse(os.path.lexists(self.path))

    def test_without_the_variable_it_is_in_tmp(self):
        for value in ("", None):
            program = self.start(IDLE, SQUEEZER_SOCKET="") if value is None else self.start(
                "import os\n" + IDLE, SQUEEZER_SOCKET=value)
            program.line()
            self.serves(default_path(program.pid), program.pid)
            program.say()
            self.assertEqual(program.end(), "")
            self.assertFalse(os.path.lexists(default_path(program.pid)))

    def test_the_file_of_an_earlier_process_is_removed(self):
        bind(self.path)
        program = self.start(IDLE)
        program.line()
        self.serves(self.path, program.pid)
        program.kill()
        self.assertTrue(os.path.lexists(self.path))
        program = self.start(IDLE)
        program.line()
        self.serves(self.path, program.pid)

    def test_a_file_of_another_kind_is_left_alone(self):
        for make in (lambda path: open(path, "x").close(), os.mkdir, os.mkfifo,
                     lambda path: os.symlink("elsewhere", path)):
            path = os.path.join(self.folder, "kind")
            make(path)
            before = os.lstat(path)
            self.goes_on_without(path, "is there and is not a socket")
            self.assertEqual(os.lstat(path).st_ino, before.st_ino)
            os.rename(path, path + str(before.st_ino))

    def test_a_link_to_a_socket_is_not_followed(self):
        bind(os.path.join(self.folder, "other"))
        os.symlink("other", self.path)
        self.goes_on_without(self.path, "is there and is not a socket")
        self.assertTrue(os.path.lexists(os.path.join(self.folder, "other")))

    def test_paths_that_cannot_be(self):
        self.goes_on_without(os.path.join(self.folder, "no", "folder"), "No such file or directory")
        self.goes_on_without(os.path.join(self.folder, "x" * 200), "cannot be made")
        self.goes_on_without("relative/socket", "has to be an absolute path")

    def test_the_path_of_a_living_process_stays_its_own(self):
        first = self.start(IDLE)
        first.line()
        second = self.start(IDLE)
        second.line()
        self.serves(self.path, first.pid)
        self.serves(default_path(second.pid), second.pid)
        for program in (first, second):
            self.assertEqual(client_answer(program.pid)["hello"]["pid"], program.pid)
        second.say()
        self.assertEqual(second.end(), "")
        self.serves(self.path, first.pid)
        self.assertFalse(os.path.lexists(default_path(second.pid)))

    def test_a_file_that_is_anothers_by_now_stays(self):
        program = self.start(IDLE)
        program.line()
        os.rename(self.path, self.path + ".old")
        bind(self.path)
        program.say()
        self.assertEqual(program.end(), "")
        self.assertTrue(os.path.lexists(self.path))

    def test_loaded_twice_it_serves_once(self):
        program = self.start("""
import os, squeezer, sys, threading
squeezer.start()
print(len(os.listdir('/proc/self/task')), threading.active_count(), flush=True)
""" + IDLE)
        self.assertEqual(program.line(), "2 1")
        program.line()
        self.serves(self.path, program.pid)
        self.assertFalse(os.path.lexists(default_path(program.pid)))

    def test_a_program_that_closes_all_descriptors(self):
        program = self.start("""
import os, socket, sys
os.closerange(3, 256)
mine = [os.open('/dev/null', os.O_RDONLY) for _ in range(8)]
assert mine == list(range(3, 11)), mine
mine += [end.detach() for _ in range(4) for end in socket.socketpair()]
""" + HERE + """
for number in mine:
    os.fstat(number)
""" + HERE + """
for number in mine:
    os.close(number)
""")
        program.line()
        program.say()
        program.line()
        # The squeezer has noticed, and makes a socket anew.
        self.served_at_last()
        self.serves(self.path, program.pid)
        program.say()
        self.assertEqual(program.end(), "")

    def test_a_process_without_free_descriptors(self):
        program = self.start("""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
mine = []
try:
    while True:
        mine.append(os.open('/dev/null', os.O_RDONLY))
except OSError:
    pass
""" + HERE + "os.closerange(mine[0], mine[-1] + 1)\n" + HERE)
        program.line()
        with Client(self.path) as client:
            program.say()
            program.line()
            self.assertIsNotNone(client.line())
            self.assert_answer(client.squeeze())

    def test_standard_error_may_be_closed(self):
        environment = dict(os.environ, PYTHONPATH=PRELOAD, SQUEEZER_SOCKET="relative")
        done = subprocess.run(["sh", "-c", f"exec {PYTHON} -c 'print(6 * 7)' 2>&-"], env=environment,
                              stdout=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "42\n"))
