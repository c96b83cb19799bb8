"""The socket in programs that do as they like with descriptors, and with the squeezer."""
import os

from conformance.client import Client
from conformance.program import default_path, wait_until
from support import HERE, ProgramTest


class Socket(ProgramTest):
    def is_served(self):
        """Whether somebody says hello."""
        try:
            with Client(self.path) as client:
                return client.hello is not None
        except OSError:
            return False

    def test_loaded_twice_it_serves_once(self):
        program = self.start("""
import os, squeezer, sys, threading
squeezer.start()
print(len(os.listdir('/proc/self/task')), threading.active_count(), flush=True)
""" + HERE)
        self.assertEqual(program.line(), "2 1")
        program.line()
        self.assert_serves(self.path, program)
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
        wait_until(self.is_served, "nobody says hello any more")
        self.assert_serves(self.path, program)
        program.say()
        self.assert_ends(program)

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
            self.assertIsNotNone(client.hello)
            self.assert_answer(client.squeeze())
