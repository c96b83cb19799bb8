"""What a client may send, and what no client should."""

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from client import Client
from matrix import STRESS, for_each_node
from program import Program

NUMBERS = ["before_bytes", "after_bytes", "live_bytes", "advised_bytes", "pause_ns", "cpu_ns"]
LINE_DEADLINE_SECONDS = 5
LONGEST = '{"squeeze":{"heap":false}}'.ljust(4096)

RIGHT = [
    '{"squeeze":{}}',
    ' { "squeeze" : { } } ',
    '{"squeeze":{"heap":true}}',
    '{"squeeze":{"trim":false,"heap":false}}',
    '{"squeeze":\t{"level":"keep",\r"trim":true}}\r',
    '{"\\u0073queeze":{"heap":false,"level":"all"}}',
    LONGEST,
]

WRONG = [
    "", " ", "{}", "[]", "null", "0", '"squeeze"', "squeeze", '{"squeeze":null}', '{"squeeze":true}', '{"squeeze":[]}',
    '[{"squeeze":{}}]', '{"squeeze":{}', '{"squeeze":{}}}', '{"squeeze":{}} {}', '{"squeeze":{},"more":1}',
    '{"more":1,"squeeze":{}}', '{"__proto__":{"squeeze":{}}}', '{"squeeze":{"heap":1}}', '{"squeeze":{"heap":"true"}}',
    '{"squeeze":{"heap":null}}', '{"squeeze":{"level":"some"}}', '{"squeeze":{"level":true}}', '{"squeeze":{"Heap":true}}',
    '{"squeeze":{"__proto__":{}}}', '{"squeeze":{"toString":true}}', '{"squeeze":{"constructor":true}}',
    "{'squeeze':{}}", '{"squeeze":{}}\0', "\ufeff\ufeff", "[" * 4096, '{"squeeze":' * 372, LONGEST + " ", "a" * 4096,
    "\x7f\x80\xff",
]


class Served(unittest.TestCase):
    """Mixed into tests: what a program must still be after it."""

    def assertServes(self, program):
        self.assertGreater(program.squeeze()["live_bytes"], 0)
        self.assertIs(program.do("check"), True)


@for_each_node
class Protocol(Served):
    def each_hello(self, node, route):
        with Program(node, route) as program, program.client() as client:
            hello = client.message()
            version = subprocess.check_output([node, "-p", "process.versions.node"], text=True).strip()
            self.assertEqual(hello, {"squeezer": 1, "runtime": "v8", "runtime_version": version,
                                     "collector": route, "pid": program.process.pid})

    def each_lines(self, node, route):
        with Program(node, route) as program:
            program.do("hold", 1)
            with program.client() as client:
                client.message()
                for line in RIGHT:
                    with self.subTest(line=line[:60]):
                        client.send(line.encode() + b"\n")
                        answer = client.message()
                        self.assertEqual(list(answer), [*NUMBERS, "error"])
                        self.assertIsNone(answer["error"])
                        for number in NUMBERS:
                            self.assertIn(answer[number], range(1 << 53))
            for line in WRONG:
                with self.subTest(line=line[:60]), program.client() as client:
                    client.message()
                    client.send(line.encode("latin-1" if max(line, default="") <= "\xff" else "utf-8") + b"\n")
                    answer = client.message()
                    self.assertIsInstance(answer["error"], str)
                    self.assertEqual([answer[number] for number in NUMBERS], [0] * 6)
                    self.assertEqual(client.line(), b"", "the connection is still open")
            self.assertServes(program)

    def each_packets(self, node, route):
        """Where one packet ends and the next begins says nothing."""
        with Program(node, route) as program:
            with program.client() as client:
                client.message()
                client.send(b'{"squeeze":{"heap":false}}\n' * 50 + b"nonsense\n" + b'{"squeeze":{}}\n')
                for _ in range(50):
                    self.assertIsNone(client.message()["error"])
                self.assertIsNotNone(client.message()["error"])
                self.assertEqual(client.line(), b"")
            with program.client() as client:
                client.message()
                for byte in b'{"squeeze":{"trim":false}}\n':
                    client.send(bytes([byte]))
                    time.sleep(0.001)
                self.assertIsNone(client.message()["error"])

    def each_half_closed(self, node, route):
        """A client that has said all it has to say still gets its answers."""
        with Program(node, route) as program, program.client() as client:
            client.send(b'{"squeeze":{}}\n{"squeeze":{"level":"all"}}\n')
            client.socket.shutdown(socket.SHUT_WR)
            client.message()
            self.assertIsNone(client.message()["error"])
            self.assertIsNone(client.message()["error"])
            self.assertEqual(client.line(), b"")

    def each_endless(self, node, route):
        with Program(node, route) as program:
            with program.client() as client:
                client.message()
                while client.send(b"x" * 65536):
                    pass
                self.assertIn("too long", client.message()["error"])
            self.assertServes(program)

    def each_random(self, node, route):
        numbers = random.Random(20250101)
        pieces = [b"{", b"}", b'"', b":", b",", b"squeeze", b"heap", b"level", b"true", b'"keep"', b"\n", b" ", b"\\",
                  b"\0", b"\xff", b'{"squeeze":{"heap":false}}\n']
        with Program(node, route) as program:
            for _ in range(3000 if STRESS else 150):
                with program.client() as client:
                    data = b"".join(numbers.choices(pieces, k=numbers.randrange(40))) + numbers.randbytes(numbers.randrange(30))
                    client.send(data)
                    client.socket.shutdown(socket.SHUT_WR)
                    client.message()
                    answers = [json.loads(line) for line in iter(client.line, b"")]
                    # One answer for each line, up to the first that is none.
                    lines = data.split(b"\n")[:-1]
                    self.assertLessEqual(len(answers), len(lines))
                    for line, answer in zip(lines, answers):
                        self.assertTrue(answer["error"] or b"squeeze" in line)
                    if len(answers) < len(lines):
                        self.assertIsNotNone(answers[-1]["error"])
            self.assertServes(program)

    def each_vanishing(self, node, route):
        with Program(node, route) as program:
            for request in (b"", b'{"recl', b'{"squeeze":{}}\n', b'{"squeeze":{}}\n' * 50, b"nonsense\n" * 9):
                for _ in range(5):
                    gone = socket.socket(socket.AF_UNIX)
                    gone.connect(str(program.socket))
                    gone.sendall(request)
                    gone.close()
            self.assertServes(program)

    def each_many(self, node, route):
        """Who is served is served correctly, one after the other; who is too many is sent away."""
        with Program(node, route) as program:
            outcomes = []

            def ask():
                with Client(program.socket) as client:
                    hello = client.line()
                    outcomes.append(client.ask(heap=False)["error"] if hello else "sent away")

            clients = [threading.Thread(target=ask) for _ in range(200)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            self.assertEqual(len(outcomes), 200)
            self.assertGreaterEqual(outcomes.count(None), 64)
            self.assertEqual(set(outcomes) - {None, "sent away"}, set())
            self.assertServes(program)

    def each_turn(self, node, route):
        """The second has its turn, and its hello, when the first is gone."""
        with Program(node, route) as program, program.client() as first:
            first.message()
            with program.client() as second:
                self.assertIsNone(first.ask(heap=False)["error"])
                second.socket.setblocking(False)
                self.assertRaises(BlockingIOError, second.socket.recv, 1)
                second.socket.settimeout(60)
                first.close()
                self.assertEqual(second.message()["pid"], program.process.pid)
                self.assertIsNone(second.ask(heap=False)["error"])

    def each_deadline(self, node, route):
        """Who says nothing is put out, so that the next has its turn; a line that was there in time is answered,
        however long the program was busy, or frozen."""

        def silent():
            with Program(node, route) as program, program.client() as first, program.client() as second:
                first.message()
                first.send(b'{"squeeze":')
                self.assertEqual(first.line(), b"")
                self.assertEqual(second.message()["pid"], program.process.pid)

        def busy():
            with Program(node, route) as program, program.client() as client:
                client.message()
                program.tell("busy", (LINE_DEADLINE_SECONDS + 1) * 1000)
                self.assertIsNone(client.ask()["error"])
                program.answer()

        def frozen():
            with Program(node, route) as program, program.client() as client:
                client.message()
                os.kill(program.process.pid, signal.SIGSTOP)
                client.send(b'{"squeeze":{}}\n')
                time.sleep(LINE_DEADLINE_SECONDS + 1)
                os.kill(program.process.pid, signal.SIGCONT)
                self.assertIsNone(client.message()["error"])

        with ThreadPoolExecutor() as pool:
            for outcome in [pool.submit(case) for case in (silent, busy, frozen)]:
                outcome.result()


if __name__ == "__main__":
    unittest.main()
