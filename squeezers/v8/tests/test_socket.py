"""What only this squeezer does with the file of its socket."""

import os
import re
import socket
import subprocess

from conformance.case import STRESS, Case
from conformance.client import Client
from conformance.program import PATIENCE_SECONDS, default_path, wait_until
from matrix import NODES, PRELOADS, for_each_node, node
from program import Program, environment, run

NODE = node(next(iter(NODES)))


@for_each_node
class End(Case):
    def each_end(self, node, route):
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


class Race(Case):
    def test_all_at_once(self):
        """Of many that start at once, over what an earlier one has left, one has the path and each other its own."""
        for _ in range(20 if STRESS else 3):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(self.path))
            programs = [self.ends_with_test(Program(NODE, variables={"SQUEEZER_SOCKET": self.path})) for _ in range(12)]
            for program in programs:
                program.wait_for_squeezer()
            with Client(self.path) as client:
                winner = client.hello["pid"]
            for program in programs:
                own = default_path(program.pid)
                if program.pid != winner:
                    wait_until(own.exists, "there is no socket")
                    self.assert_serves(own, program)
            with Client(self.path) as client:
                self.assertEqual(client.hello["pid"], winner)
            self.assertEqual(list(self.folder.iterdir()), [self.path])
            for program in programs:
                program.kill()
            self.path.unlink()


class Meanwhile(Case):
    """What happens to the path just when a program removes what an earlier one has left there."""

    def start(self, meanwhile):
        """A program, with JavaScript for that moment."""
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(self.path))
        hook = self.folder / "hook.js"
        hook.write_text("""
            const fs = require('fs');
            const { renameSync } = fs;
            fs.renameSync = (...these) => {
              fs.renameSync = renameSync;
              fs.unlinkSync(process.env.SQUEEZER_SOCKET);
              MEANWHILE
              renameSync(...these);
            };""".replace("MEANWHILE", meanwhile))
        return self.ends_with_test(Program(NODE, options=["--require", hook], variables={"SQUEEZER_SOCKET": self.path}))

    def test_removed(self):
        program = self.start("")
        program.wait_for_squeezer()
        self.assert_serves(self.path, program)
        self.assert_ends(program)
        self.assertFalse(self.path.exists())

    def test_replaced(self):
        """Another one that listens there keeps the path."""
        other = self.folder / "other.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(other))
            listener.listen()
            program = self.start(f"fs.linkSync('{other}', process.env.SQUEEZER_SOCKET);")
            program.socket = default_path(program.pid)
            program.wait_for_squeezer()
            self.assert_serves(program.socket, program)
            self.assertTrue(os.path.samefile(self.path, other))
            self.assert_ends(program)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["hook.js", "other.sock", self.path.name])


class Folder(Case):
    def test_long_folder(self):
        """The socket is made in a folder in it, which takes place in the path."""
        folder = self.folder / ("b" * (97 - len(str(self.folder)) - 1))
        folder.mkdir()
        self.assertEqual(run(NODE, "-e", "", SQUEEZER_SOCKET=folder / "s").stderr, "")
        path = f"{folder}b/s"
        ended = run(NODE, "-e", "setTimeout(() => console.log('done'), 50)", SQUEEZER_SOCKET=path)
        self.assertEqual((ended.returncode, ended.stdout), (0, "done\n"))
        self.assertEqual(ended.stderr, f"squeezer: no socket at {path}: the path is too long: at most 107 bytes, "
                                       "its folder 97; the process goes on without it\n")
        self.assertEqual(list(self.folder.rglob("*")), [folder])


class LoadedLate(Case):
    def test_replaced_at_once(self):
        """What comes in its place while the squeezer still makes its own stays, too."""
        code = """
            const { rmSync } = fs;
            fs.rmSync = (...these) => {
              fs.rmSync = rmSync;
              rmSync(process.env.SQUEEZER_SOCKET);
              fs.writeFileSync(process.env.SQUEEZER_SOCKET, 'mine');
              rmSync(...these);
            };
            require(process.argv[1]);"""
        ended = subprocess.run([NODE, "-e", code, PRELOADS["addon"]], stdin=subprocess.DEVNULL, capture_output=True,
                               text=True, timeout=PATIENCE_SECONDS, env=environment(SQUEEZER_SOCKET=self.path))
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "", ""))
        self.assertEqual(self.path.read_text(), "mine")
        self.assertEqual(list(self.folder.iterdir()), [self.path])

    def test_both_taken(self):
        """By a program that listens at the path of its own process itself: the squeezer says so, and takes neither."""
        code = """
            const { writeSync } = fs;
            fs.writeSync = (...these) => {
              writeSync(...these);
              process.exit();
            };
            const own = `/tmp/squeezer-${process.pid}.sock`;
            require('net').createServer().listen(own, () => require(process.argv[1]));"""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.path))
            listener.listen()
            ended = subprocess.run([NODE, "-e", code, PRELOADS["addon"]], stdin=subprocess.DEVNULL,
                                   capture_output=True, text=True, timeout=PATIENCE_SECONDS,
                                   env=environment(SQUEEZER_SOCKET=self.path))
        said = re.fullmatch(r"squeezer: no socket at (/tmp/squeezer-\d+\.sock): another process listens "
                            r"there: .*\n", ended.stderr)
        self.assertTrue(said, ended.stderr)
        os.unlink(said[1])
