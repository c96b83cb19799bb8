"""Clients one after the other, in their time, and such as do not keep to it."""

import contextlib
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from conformance.client import Client
from conformance.program import wait_until
from conformance.suite import ADAPTER, SuiteCase, for_each_variant

LINE_SECONDS = 5
AT_ONCE = 200


@for_each_variant
class Clients(SuiteCase):
    def each_turn(self, variant):
        """The second has its turn, and its hello, when the first is gone."""
        program = self.start_served(variant)
        with program.client() as first, program.client() as second:
            self.assert_answer(first.squeeze())
            second.socket.settimeout(0.2)
            with self.assertRaises(TimeoutError):
                second.socket.recv(1, socket.MSG_PEEK)
            self.assert_answer(first.squeeze(heap=False))
            first.close()
            second.socket.settimeout(LINE_SECONDS * 10)
            self.assertEqual(second.hello["pid"], program.pid)
            self.assert_answer(second.squeeze(heap=False))
        self.assert_ends_unharmed(program)

    def each_crowd(self, variant):
        """Who is served is served correctly, one after the other; who is too many is sent away."""
        program = self.start_served(variant)
        outcomes = []

        def ask():
            try:
                with Client(program.socket) as client:
                    outcomes.append(client.squeeze(heap=False)["error"] if client.hello else "sent away")
            except OSError as error:
                outcomes.append(error)

        clients = [threading.Thread(target=ask) for _ in range(AT_ONCE)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        self.assertEqual(len(outcomes), AT_ONCE)
        self.assertGreaterEqual(outcomes.count(None), ADAPTER.clients_at_once)
        self.assertEqual(set(outcomes) - {None, "sent away"}, set())
        self.assert_ends_unharmed(program)

    def each_vanishing_client(self, variant):
        """Clients that do not so much as read the hello."""
        program = self.start_served(variant)
        for request in (b"", b'{"recl', b'{"squeeze":{}}\n', b'{"squeeze":{}}\n' * 50, b"nonsense\n" * 9):
            for _ in range(5 if request else AT_ONCE):
                gone = socket.socket(socket.AF_UNIX)
                gone.connect(str(program.socket))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    gone.sendall(request)
                gone.close()

        def has_room():
            with program.client() as client:
                return client.hello is not None

        # Whoever is too many, with those that are gone, is sent away.
        wait_until(has_room, "nobody is served any more")
        self.assert_ends_unharmed(program)

    def each_deadline(self, variant):
        """Who does not say a line in time, or does not read, is put out, so that the next has its turn; a line that
        was there in time is answered, however long the program was busy, or frozen."""
        cases = (self.silent, self.with_half_a_line, self.byte_by_byte, self.reads_nothing, self.busy, self.frozen)
        # Beside each other: they wait.
        with ThreadPoolExecutor(len(cases)) as pool:
            for outcome in [pool.submit(case, variant) for case in cases]:
                outcome.result()

    def started(self, variant):
        """A program that has its start behind it: a client's time begins with its hello, and six start at once."""
        program = self.start_served(variant, self.folder / f"{threading.get_ident()}.sock")
        program.check()
        return program

    def silent(self, variant):
        program = self.started(variant)
        with program.client() as first, program.client() as second:
            self.assertIsNotNone(first.hello)
            self.assertEqual(first.line(), b"")
            self.assert_answer(second.squeeze())
        self.assert_ends_unharmed(program)

    def with_half_a_line(self, variant):
        program = self.started(variant)
        with program.client() as first, program.client() as second:
            self.assertIsNotNone(first.hello)
            first.send(b'{"squeeze":')
            self.assertEqual(first.line(), b"")
            self.assertEqual(second.hello["pid"], program.pid)
        self.assert_ends_unharmed(program)

    def byte_by_byte(self, variant):
        """A byte now and then does not keep the place."""
        program = self.started(variant)
        with program.client() as client:
            self.assertIsNotNone(client.hello)
            end = time.monotonic() + LINE_SECONDS * 10
            while client.send(b" "):
                self.assertLess(time.monotonic(), end, "the squeezer still listens to a line of spaces")
                time.sleep(0.3)
        self.assert_ends_unharmed(program)

    def reads_nothing(self, variant):
        program = self.started(variant)
        with program.client() as client:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.socket.settimeout(1)
            try:
                while True:
                    client.socket.send(b'{"squeeze":{"heap":false,"trim":false}}\n' * 50)
            except (TimeoutError, BrokenPipeError, ConnectionResetError):
                pass
            # The client is there still: the squeezer ends it.
            self.assert_ends_unharmed(program)

    def busy(self, variant):
        program = self.started(variant)
        with program.client() as client:
            self.assertIsNotNone(client.hello)
            program.be_busy(LINE_SECONDS + 1)
            self.assert_answer(client.squeeze())
            program.was_busy()
        self.assert_ends_unharmed(program)

    def frozen(self, variant):
        program = self.started(variant)
        with program.client() as client:
            self.assertIsNotNone(client.hello)
            os.kill(program.pid, signal.SIGSTOP)
            client.send(b'{"squeeze":{}}\n')
            time.sleep(LINE_SECONDS + 1)
            os.kill(program.pid, signal.SIGCONT)
            self.assert_answer(client.message())
        self.assert_ends_unharmed(program)
