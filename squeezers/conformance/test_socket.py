"""Where the socket is, whose its file is, and when it goes."""

import contextlib
import os
import shutil
import signal
import socket
import stat

from conformance.client import Client
from conformance.program import default_path, wait_until
from conformance.suite import ADAPTER, SuiteCase, for_each_variant, for_one_variant

LONGEST_PATH_BYTES = 107


def left_behind(path):
    """A socket file at which nobody listens."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


@for_each_variant
class Path(SuiteCase):
    def each_mode(self, variant):
        """Nobody else may connect, whatever the umask allows, and there is not even a moment for it."""
        at_once = ADAPTER.is_private_at_once(variant)
        for _ in range(10 if at_once else 1):
            program = self.start(variant, umask=0)
            wait_until(lambda: os.path.lexists(self.path), "there is no socket")
            if not at_once:
                wait_until(lambda: mode(self.path) == 0o600, "others may connect")
            self.assertEqual(mode(self.path), 0o600)
            self.assertTrue(stat.S_ISSOCK(os.lstat(self.path).st_mode))
            program.wait_for_squeezer()
            self.assert_serves(self.path, program)
            self.assertEqual(list(self.folder.iterdir()), [self.path])
            program.kill()
            self.path.unlink()

    def each_end(self, variant):
        """The file goes with the process."""
        program = self.start_served(variant)
        self.assert_ends(program)
        self.assertFalse(os.path.lexists(self.path))

    def each_default_path(self, variant):
        """Without the variable, or with an empty one."""
        for path in (None, ""):
            program = self.start_served(variant, path)
            self.assert_serves(default_path(program.pid), program)
            self.assert_ends(program)
            self.assertFalse(os.path.lexists(default_path(program.pid)))

    def each_file_of_an_earlier_process(self, variant):
        left_behind(self.path)
        first = self.start_served(variant)
        self.assert_serves(self.path, first)
        first.kill()
        self.assertTrue(os.path.lexists(self.path))
        second = self.start_served(variant)
        self.assert_serves(self.path, second)
        self.assert_ends(second)
        self.assertFalse(os.path.lexists(self.path))

    def each_path_of_a_living_process(self, variant):
        """It keeps it; the other one has one of its own."""
        first = self.start_served(variant)
        second = self.start(variant)
        second.socket = default_path(second.pid)
        second.wait_for_squeezer()
        self.assert_serves(self.path, first)
        self.assert_ends_unharmed(second)
        self.assertFalse(os.path.lexists(second.socket))
        self.assert_serves(self.path, first)
        self.assert_ends(first)


@for_one_variant
class Living(SuiteCase):
    """What a process is that does not say hello at once."""

    def assert_kept(self, variant):
        """That a program does not take self.path from whoever has it."""
        before = self.path.stat().st_ino
        program = self.start(variant)
        program.socket = default_path(program.pid)
        program.wait_for_squeezer()
        self.assert_ends_unharmed(program)
        self.assertEqual(self.path.stat().st_ino, before)

    def each_full_queue(self, variant):
        """Who has no time to take a connection lives, too."""
        with contextlib.ExitStack() as sockets:
            listener = sockets.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(self.path))
            listener.listen(0)
            for _ in range(2):
                client = sockets.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    client.connect(str(self.path))
            self.assert_kept(variant)

    def each_frozen_process(self, variant):
        """The socket of a process that is frozen is not taken for one that is left over."""
        first = self.start_served(variant)
        os.kill(first.pid, signal.SIGSTOP)
        self.assert_kept(variant)
        os.kill(first.pid, signal.SIGCONT)
        self.assert_ends_unharmed(first)


@for_one_variant
class File(SuiteCase):
    """A file that goes, and one that comes in its place."""

    def each_file_of_another(self, variant):
        """At its end a process removes what it made, not what has come in its place."""
        program = self.start_served(variant)
        os.rename(self.path, self.path.with_suffix(".old"))
        left_behind(self.path)
        self.assert_ends(program)
        self.assertTrue(os.path.lexists(self.path))

    def each_folder_that_goes(self, variant):
        path = self.folder / "folder" / "squeezer.sock"
        path.parent.mkdir()
        program = self.start_served(variant, path)
        with Client(path) as client:
            shutil.rmtree(path.parent)
            # Who is connected does not need the path.
            self.assert_answer(client.squeeze())
        program.check()
        self.assert_ends(program)


@for_one_variant
class Obstacle(SuiteCase):
    """Where there can be no socket, the process says so in one line, and goes on."""

    def assert_goes_on(self, variant, path, reason, **options):
        program = self.start(variant, path, **options)
        self.assert_says(program, reason, path)
        self.assertFalse(os.path.lexists(default_path(program.pid)))

    def assert_says(self, program, reason, path):
        wait_until(program.errors, "it does not say that there is no socket")
        program.check()
        status, errors = program.end()
        self.assertEqual((status, errors.count("\n")), (0, 1), errors)
        self.assertTrue(errors.startswith("squeezer: "), errors)
        self.assertIn(reason, errors)
        self.assertIn(str(path), errors)

    def each_folder_that_is_not_there(self, variant):
        self.assert_goes_on(variant, self.folder / "no" / "folder" / "squeezer.sock", ADAPTER.no_folder)

    def each_folder_that_takes_none(self, variant):
        self.assert_goes_on(variant, "/proc/squeezer.sock", ADAPTER.no_folder)

    def each_folder_that_is_a_file(self, variant):
        self.path.write_text("mine")
        self.assert_goes_on(variant, self.path / "squeezer.sock", ADAPTER.not_a_folder)
        self.assertEqual(self.path.read_text(), "mine")

    def each_long_path(self, variant):
        longest = self.folder / ("a" * (LONGEST_PATH_BYTES - len(str(self.folder)) - 1))
        program = self.start_served(variant, longest)
        self.assert_serves(longest, program)
        self.assert_ends(program)
        self.assert_goes_on(variant, f"{longest}a", ADAPTER.too_long_path)
        # A character of two bytes.
        self.assert_goes_on(variant, f"{str(longest)[:-1]}ä", ADAPTER.too_long_path)
        self.assertEqual(list(self.folder.iterdir()), [])

    def each_relative_path(self, variant):
        self.assert_goes_on(variant, "squeezer.sock", ADAPTER.relative_path, cwd=self.folder)
        self.assertEqual(list(self.folder.iterdir()), [])

    def each_file_of_another_kind(self, variant):
        """They stay as they are."""
        file, folder, pipe, link = (self.folder / name for name in ("file", "folder", "pipe", "link"))
        file.write_text("mine")
        folder.mkdir()
        os.mkfifo(pipe)
        link.symlink_to("nothing")
        for path in (file, folder, pipe, link):
            with self.subTest(path.name):
                before = os.lstat(path)
                self.assert_goes_on(variant, path, ADAPTER.not_a_socket)
                self.assertEqual(os.lstat(path), before)
        self.assertEqual(file.read_text(), "mine")

    def each_link_to_a_socket(self, variant):
        """It is not followed, whether somebody listens there or not."""
        left_behind(self.folder / "left")
        self.start_served(variant)
        for target in (self.folder / "left", self.path):
            link = self.folder / f"link-to-{target.name}"
            link.symlink_to(target)
            self.assert_goes_on(variant, link, ADAPTER.not_a_socket)
            self.assertEqual(os.readlink(link), str(target))
            self.assertTrue(os.path.lexists(target))

    def each_two_paths_that_are_taken(self, variant):
        """That in the variable and that of the process: it says so, and takes neither."""
        gate = self.folder / "gate"
        os.mkfifo(gate)
        program = self.start(variant, wrapper=["sh", "-c", 'read -r _ <"$0" && exec "$@"', gate])
        with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as own:
            for listener, path in ((named, self.path), (own, default_path(program.pid))):
                listener.bind(str(path))
                listener.listen()
            gate.write_text("go on\n")
            self.assert_says(program, ADAPTER.taken_path, default_path(program.pid))
            self.assertTrue(os.path.lexists(self.path))
            self.assertTrue(os.path.lexists(default_path(program.pid)))

    def each_closed_standard_error(self, variant):
        program = self.start(variant, "relative", wrapper=["sh", "-c", 'exec "$@" 2>&-', "sh"])
        program.check()
        self.assert_ends(program)
