"""Where a squeezer listens, and whose the files are."""

import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import tempfile
import unittest

from client import Client
from matrix import NODES, PRELOADS, STRESS, for_each_node, node
from program import Program, environment, listens, run, wait_for

NODE = node(next(iter(NODES)))
IDLE = "setInterval(() => {}, 1000)"
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# A /tmp that nobody outside has, with the folders of the one outside: what is run may be in one of them.
PRIVATE = """mount --rbind /tmp /mnt && mount -t tmpfs tmpfs /tmp && for folder in /mnt/*/; do
    mkdir "/tmp/${folder#/mnt/}" && mount --rbind "$folder" "/tmp/${folder#/mnt/}" || :
done 2>/dev/null && cd / && exec "$@"
"""
INSIDE = [*UNSHARE, "sh", "-c", PRIVATE, "sh"]


def child(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(children[0]) if children else None


class Socket(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="v8-")
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name) / "squeezer.sock"

    def start(self, node=NODE, route="addon", code=IDLE, **options):
        """A process that listens at self.path, or would."""
        process = subprocess.Popen([node, "--require", PRELOADS[route], "-e", code], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=environment(SQUEEZER_SOCKET=self.path), **options)
        self.addCleanup(self.stop, process)
        return process

    @staticmethod
    def stop(process):
        process.kill()
        process.communicate()

    def pid(self, path=None):
        with Client(path or self.path) as client:
            return client.message()["pid"]


@for_each_node
class Path(Socket):
    def each_mode(self, node, route):
        """Nobody else may connect, whatever the umask allows; with the addon there is not even a moment for it."""
        for _ in range(10 if route == "addon" else 1):
            process = self.start(node, route, umask=0)
            wait_for("socket", self.path.exists)
            if route == "inspector":
                wait_for("squeezer", lambda: listens(self.path))
                wait_for("mode", lambda: stat.S_IMODE(self.path.stat().st_mode) == 0o600)
            self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
            self.assertEqual(self.pid(), process.pid)
            self.assertEqual(list(self.path.parent.iterdir()), [self.path])
            self.stop(process)
            self.path.unlink()

    def each_default(self, node, route):
        process = subprocess.Popen([node, "--require", PRELOADS[route], "-e", IDLE], env=environment())
        self.addCleanup(self.stop, process)
        path = pathlib.Path(f"/tmp/squeezer-{process.pid}.sock")
        self.addCleanup(path.unlink, missing_ok=True)
        wait_for("squeezer", lambda: listens(path))
        self.assertEqual(self.pid(path), process.pid)

    def each_removed(self, node, route):
        """The file goes with the process, where that ends in order; without the addon only with its last task."""
        endings = {"": 0, "setTimeout(() => {}, 20)": 0, "process.chdir('/')": 0}
        if route == "addon":
            endings |= {"process.exit(3)": 3, "setTimeout(() => process.exit(), 20)": 0, "throw 1": 1,
                        "process.exitCode = 4; process.emit('exit'); process.reallyExit(4)": 4}
        for code, status in endings.items():
            with self.subTest(code=code):
                ended = run(node, "-e", f"console.log(fs.existsSync('{self.path}')); {code}", route=route,
                            SQUEEZER_SOCKET=self.path)
                self.assertEqual((ended.stdout, ended.returncode), ("true\n", status))
                self.assertFalse(self.path.exists())

    def each_killed(self, node, route):
        """What a process leaves behind that could not remove it is in nobody's way."""
        first = self.start(node, route)
        wait_for("squeezer", lambda: listens(self.path))
        first.kill()
        first.wait()
        self.assertTrue(self.path.is_socket())
        second = self.start(node, route)
        wait_for("squeezer", lambda: listens(self.path))
        self.assertEqual(self.pid(), second.pid)

    def each_living(self, node, route):
        """A living process keeps its socket; the other one has one of its own."""
        first = self.start(node, route)
        wait_for("squeezer", lambda: listens(self.path))
        second = self.start(node, route)
        own = pathlib.Path(f"/tmp/squeezer-{second.pid}.sock")
        self.addCleanup(own.unlink, missing_ok=True)
        wait_for("squeezer", lambda: listens(own))
        self.assertEqual((self.pid(), self.pid(own)), (first.pid, second.pid))
        self.stop(second)
        self.assertEqual(self.pid(), first.pid)


class Race(Socket):
    def test_all_at_once(self):
        """Of many that start at once, over what an earlier one has left, one has the path and each other its own."""
        for _ in range(20 if STRESS else 3):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(self.path))
            processes = [self.start() for _ in range(12)]
            wait_for("squeezer", lambda: listens(self.path))
            winner = self.pid()
            for process in processes:
                own = pathlib.Path(f"/tmp/squeezer-{process.pid}.sock")
                self.addCleanup(own.unlink, missing_ok=True)
                if process.pid != winner:
                    wait_for("socket", own.exists)
                    self.assertEqual(self.pid(own), process.pid)
            self.assertEqual(self.pid(), winner)
            self.assertEqual(list(self.path.parent.iterdir()), [self.path])
            for process in processes:
                self.stop(process)
            self.path.unlink()


class Obstacle(Socket):
    """Where there can be no socket, the process says so in one line, and goes on."""

    def assertGoesOn(self, path, why):
        ended = run(NODE, "-e", "setTimeout(() => console.log('done'), 50)", SQUEEZER_SOCKET=path)
        self.assertEqual((ended.returncode, ended.stdout), (0, "done\n"))
        self.assertEqual(ended.stderr,
                         f"squeezer: no socket at {path}: {why}; the process goes on without it\n")

    def test_no_folder(self):
        self.assertGoesOn(self.path / "no" / "squeezer.sock", "no such file or directory")

    def test_folder_that_is_a_file(self):
        self.path.write_text("mine")
        self.assertGoesOn(self.path / "squeezer.sock", "not a directory")

    def test_too_long(self):
        longest = self.path.parent / ("a" * (107 - len(str(self.path.parent)) - 1))
        self.assertEqual(run(NODE, "-e", "", SQUEEZER_SOCKET=longest).stderr, "")
        self.assertGoesOn(f"{longest}a", "the path is too long: at most 107 bytes, its folder 97")
        # A character of two bytes.
        self.assertGoesOn(f"{str(longest)[:-1]}ä", "the path is too long: at most 107 bytes, its folder 97")
        folder = self.path.parent / ("b" * (97 - len(str(self.path.parent)) - 1))
        folder.mkdir()
        self.assertEqual(run(NODE, "-e", "", SQUEEZER_SOCKET=folder / "s").stderr, "")
        self.assertGoesOn(f"{folder}b/s", "the path is too long: at most 107 bytes, its folder 97")
        self.assertEqual(list(self.path.parent.rglob("*")), [folder])

    def test_relative(self):
        self.assertGoesOn("squeezer.sock", "the path is not absolute")

    def test_other_files(self):
        """They stay as they are."""
        self.path.write_text("mine")
        self.assertGoesOn(self.path, "there is a file that is no socket")
        self.assertEqual(self.path.read_text(), "mine")
        link = self.path.with_name("link")
        link.symlink_to(self.path.with_name("nothing"))
        self.assertGoesOn(link, "there is a file that is no socket")
        self.assertEqual(os.readlink(link), str(self.path.with_name("nothing")))
        self.assertGoesOn(self.path.parent, "there is a file that is no socket")

    def test_folder_that_takes_none(self):
        self.assertGoesOn("/proc/squeezer.sock", "no such file or directory")

    def test_full_queue(self):
        """Who has no time to take a connection lives, too."""
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
            listener.bind(str(self.path))
            listener.listen(0)
            waiting.connect(str(self.path))
            process = self.start()
            own = pathlib.Path(f"/tmp/squeezer-{process.pid}.sock")
            self.addCleanup(own.unlink, missing_ok=True)
            wait_for("socket", own.exists)
            inode = self.path.stat().st_ino
        self.assertEqual(self.path.stat().st_ino, inode)

    def test_both_taken(self):
        """The path in the variable and that of the process: it says so, and takes neither."""
        code = """
            const listener = require('net').createServer().listen(`/tmp/squeezer-${process.pid}.sock`, () => {
              require(process.argv[1]);
              setTimeout(() => process.exit(), 100);
            });"""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.path))
            listener.listen()
            ended = subprocess.run([NODE, "-e", code, PRELOADS["addon"]], stdin=subprocess.DEVNULL,
                                   capture_output=True, text=True, timeout=60,
                                   env=environment(SQUEEZER_SOCKET=self.path))
        said = re.fullmatch(r"squeezer: no socket at (/tmp/squeezer-\d+\.sock): another process listens "
                            r"there: .*\n", ended.stderr)
        self.assertTrue(said, ended.stderr)
        os.unlink(said[1])

    def test_file_of_another(self):
        """At its end a process removes what it made, not what has come in its place."""
        process = self.start(code=f"{IDLE}; process.on('SIGTERM', () => process.exit()); console.log('ready')")
        self.assertEqual(process.stdout.readline(), "ready\n")
        self.path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(self.path))
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            self.assertTrue(self.path.is_socket())


class Served(unittest.TestCase):
    def test_frozen(self):
        """The socket of a process that is frozen is not taken for one that is left over."""
        with Program(NODE) as program:
            os.kill(program.process.pid, signal.SIGSTOP)
            ended = run(NODE, "-e", "setTimeout(() => {}, 100)", SQUEEZER_SOCKET=program.socket)
            os.kill(program.process.pid, signal.SIGCONT)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""))
            self.assertIsNone(program.squeeze()["error"])


@unittest.skipIf(subprocess.run([*UNSHARE, "true"], capture_output=True).returncode,
                 "this user may not make namespaces")
class Namespace(unittest.TestCase):
    """A process in other namespaces: its socket is where that process sees it."""

    def test_socket_through_proc(self):
        for version in NODES:
            with self.subTest(version=version), subprocess.Popen(
                [*INSIDE, node(version), "--require", PRELOADS["addon"], "-e", IDLE], stdin=subprocess.DEVNULL,
                env=environment()) as process:
                try:
                    wait_for("process inside", lambda process=process: child(process.pid))
                    path = pathlib.Path(f"/proc/{child(process.pid)}/root/tmp/squeezer-1.sock")
                    wait_for("squeezer", lambda path=path: listens(path))
                    self.assertFalse(pathlib.Path("/tmp/squeezer-1.sock").exists())
                    with Client(path) as client:
                        self.assertEqual(client.message()["pid"], 1)
                        self.assertIsNone(client.ask()["error"])
                finally:
                    process.kill()


if __name__ == "__main__":
    unittest.main()
