"""What a client may send, what no client should, and what it is answered."""

import json
import random
import socket
import time

from conformance.case import STRESS
from conformance.client import Client
from conformance.suite import ADAPTER, SuiteCase, for_each_variant

EMPTY = '{"squeeze":{}}'
LONGEST_BYTES = 4096
LONGEST = '{"squeeze":{"heap":false}}'.ljust(LONGEST_BYTES)

RIGHT = [
    EMPTY,
    ' { "squeeze" : { } } ',
    '{"squeeze":{"heap":true}}',
    '{"squeeze":{"trim":false,"heap":false}}',
    '{"squeeze":{"trim":true,"level":"all"}}',
    '{"squeeze":\t{"level":"keep",\r"trim":true}}',
    '{"squeeze":{"level":"all","heap":true,"trim":true}}\r',
    r'{"\u0073queeze":{"heap":false,"level":"\u0061ll"}}',
    LONGEST,
]

WRONG = [
    "",
    " ",
    "{}",
    "[]",
    "null",
    "0",
    "9" * 4000,
    "NaN",
    "squeeze",
    '"squeeze"',
    '{"squeeze":null}',
    '{"squeeze":true}',
    '{"squeeze":[]}',
    '[{"squeeze":{}}]',
    '{"squeeze":{}',
    '{"squeeze":{}}}',
    '{"squeeze":{}} {}',
    '{"squeeze":{}}{}',
    '{"squeeze":{},"more":1}',
    '{"more":1,"squeeze":{}}',
    '{"__proto__":{"squeeze":{}}}',
    '{"squeeze":{},"squeeze":{}}',
    '{"squeeze":{"heap":1}}',
    '{"squeeze":{"heap":"true"}}',
    '{"squeeze":{"heap":null}}',
    '{"squeeze":{"trim":null}}',
    '{"squeeze":{"heap":truely}}',
    '{"squeeze":{"heap":True}}',
    '{"squeeze":{"heap":true,}}',
    '{"squeeze":{,"heap":true}}',
    '{"squeeze":{"heap":true "trim":true}}',
    '{"squeeze":{"heap":true,"heap":true}}',
    '{"squeeze":{"heap":true,"heap":false}}',
    '{"squeeze":{"level":"some"}}',
    '{"squeeze":{"level":true}}',
    '{"squeeze":{"level":["all"]}}',
    '{"squeeze":{"level":keep}}',
    '{"squeeze":{"level":"keep}}',
    '{"squeeze":{"level":"keep","unknown":true}}',
    '{"squeeze":{"heaps":true}}',
    '{"squeeze":{"Heap":true}}',
    '{"squeeze":{"__proto__":{}}}',
    '{"squeeze":{"toString":true}}',
    '{"squeeze":{"constructor":true}}',
    r'{"squeeze":{"heap\u0000":true}}',
    r'{"squeeze":{"h\u00":true}}',
    "{'squeeze':{}}",
    '{"squeeze":{}}\0',
    '\0{"squeeze":{}}',
    '\ufeff{"squeeze":{}}',
    "\ufeff\ufeff",
    "[" * 4000,
    "[" * LONGEST_BYTES,
    '{"squeeze":' * 300,
    '{"squeeze":' * 372,
    "a" * LONGEST_BYTES,
]

# The same in bytes that are no UTF-8.
NO_TEXT = [b"\x7f\x80\xff", b"\xff\xfe", b'{"squeeze":{"\xff":true}}']

TOO_LONG = [LONGEST + " ", EMPTY.ljust(LONGEST_BYTES + 1), "x" * (LONGEST_BYTES + 1)]


@for_each_variant
class Requests(SuiteCase):
    def each_hello(self, variant):
        program = self.start_served(variant)
        with program.client() as client:
            self.assertEqual(client.hello, {
                "squeezer": 1, "runtime": ADAPTER.runtime, "runtime_version": ADAPTER.version(variant),
                "collector": ADAPTER.collector(variant), "pid": program.pid,
            })

    def each_right_line(self, variant):
        program = self.start_served(variant)
        with program.client() as client:
            for line in RIGHT:
                with self.subTest(line=line[:60]):
                    client.send(line.encode() + b"\n")
                    self.assert_answer(client.message())
        self.assert_ends_unharmed(program)

    def each_wrong_line(self, variant):
        program = self.start_served(variant)
        for line in [*(line.encode() for line in WRONG), *NO_TEXT]:
            with self.subTest(line=line[:60]), program.client() as client:
                client.send(line + b"\n")
                self.assert_rejects(client)
        for line in TOO_LONG:
            with self.subTest(line=line[:60]), program.client() as client:
                client.send(line.encode() + b"\n")
                self.assertIn(ADAPTER.too_long_line, self.assert_rejects(client))
        with program.client() as client:
            # A newline is not waited for.
            client.send(b"x" * (LONGEST_BYTES + 1))
            self.assertIn(ADAPTER.too_long_line, self.assert_rejects(client))
        self.assert_ends_unharmed(program)

    def each_endless_line(self, variant):
        program = self.start_served(variant)
        with program.client() as client:
            while client.send(b"x" * 65536):
                pass
            self.assertIn(ADAPTER.too_long_line, self.assert_rejects(client))
        self.assert_ends_unharmed(program)

    def each_packet(self, variant):
        """Where one packet ends and the next begins says nothing."""
        program = self.start_served(variant)
        with program.client() as client:
            client.send(b'{"squeeze":{"heap":false}}\n' * 50 + b"nonsense\n" + b'{"squeeze":{}}\n')
            for _ in range(50):
                self.assert_answer(client.message())
            self.assert_rejects(client)
        for pause_seconds in (0, 0.001):
            with program.client() as client:
                for byte in b' {"squeeze":{"trim" : false}} \r\n':
                    client.send(bytes([byte]))
                    time.sleep(pause_seconds)
                self.assert_answer(client.message())
        self.assert_ends_unharmed(program)

    def each_half_closed_connection(self, variant):
        """A client that has said all it has to say still gets its answers."""
        program = self.start_served(variant)
        with program.client() as client:
            client.send(b'{"squeeze":{}}\n{"squeeze":{"level":"all"}}\n')
            client.socket.shutdown(socket.SHUT_WR)
            self.assert_answer(client.message())
            self.assert_answer(client.message())
            self.assertEqual(client.line(), b"")
        self.assert_ends_unharmed(program)

    def each_random_line(self, variant):
        generator = random.Random(20250101)
        program = self.start_served(variant)
        for number in range(3000 if STRESS else 400):
            data = damaged(generator) if number % 2 else composed(generator)
            with self.subTest(data=data), Client(program.socket) as client:
                client.send(data)
                client.socket.shutdown(socket.SHUT_WR)
                self.assertEqual(client.hello["squeezer"], 1)
                answers = [json.loads(line) for line in iter(client.line, b"")]
                # One answer for each line, up to the first that is none.
                lines = data.split(b"\n")[:-1]
                self.assertLessEqual(len(answers), len(lines))
                for line, answer in zip(lines, answers):
                    if answer["error"] is None:
                        self.assertEqual(list(json.loads(line)), ["squeeze"])
                if len(answers) < len(lines):
                    self.assertIsNotNone(answers[-1]["error"])
        self.assert_ends_unharmed(program)


PIECES = [b"{", b"}", b'"', b":", b",", b"squeeze", b"heap", b"level", b"true", b'"keep"', b"\n", b" ", b"\\", b"\0",
          b"\xff", b'{"squeeze":{"heap":false}}\n']


def composed(generator):
    """Lines of what requests are made of, with any bytes behind them."""
    pieces = generator.choices(PIECES, k=generator.randrange(60))
    return b"".join(pieces) + generator.randbytes(generator.randrange(300)) + generator.choice([b"", b"\n"])


def damaged(generator):
    """A request with other bytes in some places."""
    line = bytearray(b'{"squeeze": {"heap": false, "trim": false, "level": "keep"}}')
    for _ in range(generator.randrange(1, 6)):
        line[generator.randrange(len(line))] = generator.randrange(256)
    return bytes(line) + b"\n"
