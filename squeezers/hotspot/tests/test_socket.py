"""Where the socket is, and what becomes of its file."""

import os
import pathlib
import shutil
import socket
import stat
import unittest

from client import Client
from matrix import java
from program import AGENT, Program, eventually


def default_path(pid):
    return pathlib.Path(f"/tmp/squeezer-{pid}.sock")


class Socket(unittest.TestCase):
    def assertGoesOn(self, program):
        """The program does without the squeezer."""
        self.assertEqual(program.do("hold 1"), "held")
        self.assertEqual(program.do("check"), "right")
        self.assertEqual(program.quit(), 0)

    def refused(self, path, reason):
        with Program(java(17), environment={"SQUEEZER_SOCKET": str(path)}) as program:
            self.assertEqual(program.stderr().count("\n"), 1)
            self.assertIn(reason, program.stderr())
            self.assertGoesOn(program)

    def test_mode_and_end(self):
        with Program(java(17)) as program:
            status = program.socket.lstat()
            self.assertTrue(stat.S_ISSOCK(status.st_mode))
            self.assertEqual(stat.S_IMODE(status.st_mode), 0o600)
            self.assertGoesOn(program)
            self.assertFalse(program.socket.exists())
            self.assertEqual(program.stderr(), "")

    def test_mode_whatever_the_umask_is(self):
        old = os.umask(0)
        try:
            with Program(java(17)) as program:
                self.assertEqual(stat.S_IMODE(program.socket.lstat().st_mode), 0o600)
        finally:
            os.umask(old)

    def test_default_path(self):
        with Program(java(17), environment={}) as program:
            path = default_path(program.process.pid)
            with Client(path) as client:
                self.assertIsNone(client.ask()["error"])
            self.assertGoesOn(program)
            self.assertFalse(path.exists())

    def test_file_of_an_earlier_process(self):
        with Program(java(17)) as first:
            os.link(first.socket, first.path / "left behind")
            left = first.path / "left behind"
            first.process.kill()
            first.process.wait()
            self.assertTrue(left.exists())
            with Program(java(17), environment={"SQUEEZER_SOCKET": str(left)}) as second:
                with Client(left) as client:
                    self.assertEqual(client.hello["pid"], second.process.pid)
                self.assertGoesOn(second)
            self.assertFalse(left.exists())

    def test_path_of_a_living_process(self):
        with Program(java(17)) as first:
            self.refused(first.socket, "another process listens there")
            self.assertIsNone(first.squeeze()["error"])

    def test_path_of_a_living_process_with_a_full_backlog(self):
        with Program(java(17)) as first, socket.socket(socket.AF_UNIX) as full:
            path = first.path / "full"
            full.bind(str(path))
            full.listen(0)
            waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
            try:
                for client in waiting:
                    client.setblocking(False)
                    try:
                        client.connect(str(path))
                    except BlockingIOError:
                        pass
                self.refused(path, "another process listens there")
                self.assertTrue(path.exists())
            finally:
                for client in waiting:
                    client.close()

    def test_file_of_another_kind(self):
        with Program(java(17)) as other:
            file = other.path / "file"
            file.write_text("precious")
            self.refused(file, "no socket")
            self.assertEqual(file.read_text(), "precious")
            link = other.path / "link"
            link.symlink_to(other.socket)
            self.refused(link, "no socket")
            self.assertTrue(link.is_symlink())
            self.refused(other.path, "no socket")

    def test_impossible_paths(self):
        self.refused("/nonexistent/squeeze.sock", "No such file or directory")
        self.refused("/tmp/" + "x" * 103, "too long")

    def test_longest_path(self):
        with Program(java(17), squeezer=None) as other:
            path = other.path / ("x" * (107 - len(str(other.path)) - 1))
            with Program(java(17), environment={"SQUEEZER_SOCKET": str(path)}) as program:
                with Client(path) as client:
                    self.assertIsNone(client.ask()["error"])
                self.assertGoesOn(program)

    def test_folder_goes_away(self):
        with Program(java(17), squeezer=None) as other:
            folder = other.path / "folder"
            folder.mkdir()
            path = folder / "squeeze.sock"
            with Program(java(17), environment={"SQUEEZER_SOCKET": str(path)}) as program:
                with Client(path) as client:
                    shutil.rmtree(folder)
                    # Who is connected does not need the path.
                    self.assertIsNone(client.ask()["error"])
                self.assertGoesOn(program)
                self.assertEqual(program.stderr(), "")

    def test_file_of_somebody_else_is_left(self):
        with Program(java(17)) as program, socket.socket(socket.AF_UNIX) as other:
            program.socket.unlink()
            other.bind(str(program.socket))
            self.assertGoesOn(program)
            self.assertTrue(program.socket.exists())

    def test_loaded_twice(self):
        with Program(java(17), f"-agentpath:{AGENT}") as program:
            self.assertEqual(program.stderr(), "squeezer: the squeezer is in this process already\n")
            self.assertIsNone(program.squeeze()["error"])
            self.assertGoesOn(program)

    def test_loaded_from_two_files(self):
        with Program(java(17), squeezer=None) as other:
            copy = other.path / "copy.so"
            shutil.copy(AGENT, copy)
            with Program(java(17), f"-agentpath:{copy}") as program:
                self.assertIn("another process listens there", program.stderr())
                self.assertIsNone(program.squeeze()["error"])
                self.assertGoesOn(program)

    def test_tool_options(self):
        with Program(java(17), squeezer=None) as other:
            path = other.path / "squeeze.sock"
            environment = {"JAVA_TOOL_OPTIONS": f"-agentpath:{AGENT}", "SQUEEZER_SOCKET": str(path)}
            with Program(java(17), squeezer=None, environment=environment) as program:
                with Client(path) as client:
                    self.assertIsNone(client.ask()["error"])
                self.assertGoesOn(program)

    def test_killed_by_sigterm(self):
        with Program(java(17)) as program:
            program.process.terminate()
            program.wait()
            eventually(lambda: not program.socket.exists())

    def test_agent_with_options(self):
        with Program(java(17), squeezer=f"{AGENT}=nonsense") as program:
            self.assertIn("takes no options", program.stderr())
            self.assertIsNone(program.squeeze()["error"])
            self.assertGoesOn(program)
