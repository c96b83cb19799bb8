"""What a client may send, and what no client should."""

import json
import random
import socket
import threading
import unittest

from client import Client
from matrix import java
from program import Program

NUMBERS = ["before_bytes", "after_bytes", "live_bytes", "advised_bytes", "pause_ns", "cpu_ns"]

RIGHT = [
    '{"squeeze":{}}',
    ' { "squeeze" : { } } ',
    '{"squeeze":{"heap":true}}',
    '{"squeeze":{"trim":false,"heap":false}}',
    '{"squeeze":\t{"level":"keep",\r"trim":true}}',
    '{"squeeze":{"level":"all","heap":true,"trim":true}}\r',
    '{"squeeze":{}}' + " " * (4096 - len('{"squeeze":{}}')),
]

WRONG = [
    "",
    " ",
    "{}",
    "[]",
    "null",
    "squeeze",
    '"squeeze"',
    '{"squeeze":null}',
    '{"squeeze":true}',
    '{"squeeze":[]}',
    '{"squeeze":{}',
    '{"squeeze":{}}}',
    '{"squeeze":{}} {}',
    '{"squeeze":{},"more":1}',
    '{"more":1,"squeeze":{}}',
    '{"squeeze":{},"squeeze":{}}',
    '{"squeeze":{"heap":1}}',
    '{"squeeze":{"heap":"true"}}',
    '{"squeeze":{"heap":null}}',
    '{"squeeze":{"heap":truely}}',
    '{"squeeze":{"heap":True}}',
    '{"squeeze":{"heap":true,}}',
    '{"squeeze":{,"heap":true}}',
    '{"squeeze":{"heap":true "trim":true}}',
    '{"squeeze":{"heap":true,"heap":true}}',
    '{"squeeze":{"level":"some"}}',
    '{"squeeze":{"level":keep}}',
    '{"squeeze":{"level":"keep}}',
    '{"squeeze":{"level":"keep","unknown":true}}',
    '{"squeeze":{"Heap":true}}',
    "{'squeeze':{}}",
    '{"squeeze":{}}\0',
    '\0{"squeeze":{}}',
    '\ufeff{"squeeze":{}}',
    "[" * 4000,
    '{"squeeze":' * 300,
    '{"squeeze":{}}' + " " * (4097 - len('{"squeeze":{}}')),
    "a" * 4096,
    "\x7f\x80\xff",
]


class Protocol(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = cls.enterClassContext(Program(java(21)))
        cls.program.do("hold 4")

    def tearDown(self):
        """Whatever was done to it, it goes on and serves the next client."""
        self.assertIsNone(self.program.squeeze()["error"])
        self.assertEqual(self.program.do("check"), "right")

    def test_hello(self):
        with self.program.client() as client:
            version = client.hello.pop("runtime_version")
            self.assertTrue(version.startswith("21.0."), version)
            self.assertEqual(client.hello, {"squeezer": 1, "runtime": "hotspot", "collector": "g1",
                                            "pid": self.program.process.pid})

    def test_right_lines(self):
        with self.program.client() as client:
            for line in RIGHT:
                with self.subTest(line=line[:60]):
                    client.send(line.encode() + b"\n")
                    answer = json.loads(client.line())
                    self.assertEqual(list(answer), [*NUMBERS, "error"])
                    self.assertIsNone(answer["error"])

    def test_wrong_lines(self):
        for line in WRONG:
            with self.subTest(line=line[:60]), self.program.client() as client:
                client.send(line.encode("latin-1" if line.isascii() or max(line) < "\u0100" else "utf-8") + b"\n")
                answer = json.loads(client.line())
                self.assertIsInstance(answer["error"], str)
                self.assertEqual([answer[number] for number in NUMBERS], [0] * 6)
                self.assertEqual(client.line(), b"", "the connection is still open")

    def test_lines_in_one_packet(self):
        with self.program.client() as client:
            client.send(b'{"squeeze":{"heap":false}}\n' * 20 + b"nonsense\n" + b'{"squeeze":{}}\n')
            for _ in range(20):
                self.assertIsNone(json.loads(client.line())["error"])
            self.assertIsNotNone(json.loads(client.line())["error"])
            self.assertEqual(client.line(), b"")

    def test_line_in_pieces(self):
        with self.program.client() as client:
            for byte in b'{"squeeze":{"trim":false}}\n':
                client.send(bytes([byte]))
            self.assertIsNone(json.loads(client.line())["error"])

    def test_endless_line(self):
        with self.program.client() as client:
            while client.send(b"x" * 65536):
                pass
            self.assertIn("too long", json.loads(client.line())["error"])

    def test_random_bytes(self):
        numbers = random.Random(20250101)
        alphabet = [b"{", b"}", b'"', b":", b",", b"squeeze", b"heap", b"level", b"true", b'"keep"', b"\n", b" ",
                    b"\\", b"\0", b"\xff"]
        for _ in range(300):
            with self.program.client() as client:
                pieces = numbers.choices(alphabet, k=numbers.randrange(60))
                client.send(b"".join(pieces) + numbers.randbytes(numbers.randrange(30)) + b"\n")
                first = b"".join(pieces).split(b"\n")[0].decode("latin-1")
                answer = json.loads(client.line())
                if answer["error"] is None:
                    self.assertIn("squeeze", json.loads(first))

    def test_silent_client(self):
        """It is put out, so that the next one has its turn."""
        with self.program.client() as silent, self.program.client() as partial:
            partial.send(b'{"squeeze":')
            self.assertEqual(silent.line(), b"")
            self.assertEqual(partial.line(), b"")

    def test_vanishing_clients(self):
        for request in (b"", b'{"recl', b'{"squeeze":{}}\n', b'{"squeeze":{}}\n' * 50, b"nonsense\n" * 9):
            for _ in range(5):
                # Without so much as reading the hello.
                gone = socket.socket(socket.AF_UNIX)
                gone.connect(str(self.program.socket))
                gone.sendall(request)
                gone.close()

    def test_client_that_reads_nothing(self):
        with self.program.client() as client:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.socket.setblocking(False)
            try:
                while True:
                    client.socket.send(b'{"squeeze":{"heap":false}}\n')
            except BlockingIOError:
                pass
            # The squeezer ends it: it waits for that client no longer than for any other.
            self.assertIsNone(self.program.squeeze()["error"])

    def test_many_clients(self):
        errors = []

        def client():
            try:
                with Client(self.program.socket) as one:
                    errors.append(one.ask(heap=False)["error"])
            except OSError as error:
                errors.append(error)

        threads = [threading.Thread(target=client) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [None] * 100)
