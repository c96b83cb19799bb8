"""The protocol, and clients that do not keep to it."""
import json
import random
import socket

from support import HERE, VERSION, AgentTest, Client, client_answer

IDLE = "import sys\n" + HERE + "print('unharmed', flush=True)\n"


class Protocol(AgentTest):
    def setUp(self):
        super().setUp()
        self.program = self.start(IDLE)
        self.program.line()

    def tearDown(self):
        """Whatever was said to the squeezer, it goes on, and so does the program."""
        report = client_answer(self.program.pid)
        self.assertEqual(report["hello"]["pid"], self.program.pid)
        self.program.say()
        self.assertEqual(self.program.line(), "unharmed")
        self.assertEqual(self.program.end(), "")
        super().tearDown()

    def rejected(self, data):
        """The error that is the answer to bytes, after which the squeezer hangs up."""
        with Client(self.path) as client:
            client.line()
            client.send(data)
            answer = client.line()
            self.assertIsNotNone(answer, f"no answer to {data[:80]!r}")
            self.assertIsNone(client.line())
        self.assertTrue(answer["error"])
        return answer["error"]

    def test_hello(self):
        with Client(self.path) as client:
            hello = client.line()
        version = hello.pop("runtime_version")
        self.assertEqual(version.split(".")[:2], [str(number) for number in VERSION])
        self.assertEqual(hello, {
            "squeezer": 1, "runtime": "cpython", "collector": None, "pid": self.program.pid,
        })

    def test_requests(self):
        with Client(self.path) as client:
            client.line()
            for what in ({}, {"heap": True}, {"heap": False, "trim": False}, {"trim": True, "level": "all"},
                         {"level": "keep"}):
                self.assert_answer(client.squeeze(**what))
            client.send(b'{"squeeze":{}}\n{"squeeze":{"heap":false}}\n')
            self.assert_answer(client.line())
            self.assert_answer(client.line())
            for byte in b' { "squeeze" : { } } \r\n':
                client.send(bytes([byte]))
            self.assert_answer(client.line())

    def test_what_is_no_request(self):
        for line, reason in (
            (b"", "no JSON"),
            (b"hello", "no JSON"),
            (b"\xff\xfe", "no JSON"),
            (b'{"squeeze":{}', "no JSON"),
            (b'{"squeeze":{}}{}', "no JSON"),
            (b"[" * 4000, "no JSON"),
            (b"9" * 4000, "has to be an object"),
            (b"NaN", "has to be an object"),
            (b"[]", "has to be an object"),
            (b"{}", 'no "squeeze"'),
            (b'{"squeeze":null}', 'no "squeeze"'),
            (b'{"squeeze":[]}', "has to be an object"),
            (b'{"squeeze":{},"more":1}', 'not known: "more"'),
            (b'{"squeeze":{"heaps":true}}', 'not known: "heaps"'),
            (b'{"squeeze":{"heap":1}}', "true or false"),
            (b'{"squeeze":{"trim":null}}', "true or false"),
            (b'{"squeeze":{"level":"some"}}', '"keep" or "all"'),
            (b'{"squeeze":{"level":["all"]}}', '"keep" or "all"'),
            (b'{"squeeze":{"heap":true,"heap":false}}', "twice"),
        ):
            with self.subTest(line[:60]):
                # Python 3.11 and later refuse to read so many digits at all.
                self.assertRegex(self.rejected(line + b"\n"), f"{reason}|no JSON" if line[:1] == b"9" else reason)

    def test_the_longest_line(self):
        line = b'{"squeeze":{}}'
        with Client(self.path) as client:
            client.line()
            client.send(line + b" " * (4095 - len(line)) + b"\n")
            self.assert_answer(client.line())
        self.assertIn("longer than 4096", self.rejected(line + b" " * (4096 - len(line)) + b"\n"))
        self.assertIn("longer than 4096", self.rejected(b"x" * 4096))

    def test_a_megabyte_without_a_newline(self):
        with Client(self.path) as client:
            client.line()
            client.send(b"x" * (1 << 20))
            answer = client.line()
            # The squeezer hangs up with bytes unread, so its answer may be lost.
            if answer is not None:
                self.assertIn("longer than 4096", answer["error"])
                self.assertIsNone(client.line())

    def test_one_at_a_time(self):
        first = self.connect()
        first.line()
        second = self.connect()
        second.socket.settimeout(0.2)
        with self.assertRaises(socket.timeout):
            second.socket.recv(1, socket.MSG_PEEK)
        self.assert_answer(first.squeeze())
        first.__exit__()
        second.socket.settimeout(60)
        self.assertEqual(second.line()["squeezer"], 1)
        self.assert_answer(second.squeeze())
        second.__exit__()

    def test_who_says_nothing_makes_place(self):
        client = self.connect()
        self.assertIsNotNone(client.line())
        self.assertIsNone(client.line())

    def test_a_byte_now_and_then_does_not_keep_the_place(self):
        client = self.connect()
        client.line()
        client.socket.settimeout(0.3)
        for _ in range(200):
            client.send(b" ")
            try:
                self.assertEqual(client.socket.recv(1), b"")
                return
            except ConnectionResetError:
                return
            except TimeoutError:
                pass
        self.fail("after 200 bytes of a line the squeezer still listens")

    def test_who_hangs_up_or_does_not_read(self):
        for _ in range(200):
            Client(self.path).__exit__()
        client = self.connect()
        client.socket.settimeout(1)
        try:
            while True:
                client.socket.sendall(b'{"squeeze":{"heap":false,"trim":false}}\n' * 50)
        except (TimeoutError, BrokenPipeError, ConnectionResetError):
            pass
        client.__exit__()

    def test_whatever_bytes(self):
        generator = random.Random(20250711)
        good = json.dumps({"squeeze": {"heap": False, "trim": False, "level": "keep"}}).encode()
        for number in range(400):
            data = bytearray(good if number % 2 else generator.randbytes(generator.randrange(300)))
            for _ in range(generator.randrange(1, 6) if number % 2 else 0):
                data[generator.randrange(len(data))] = generator.randrange(256)
            with Client(self.path) as client:
                self.assertEqual(client.line()["squeezer"], 1)
                client.send(bytes(data) + b"\n")
                client.socket.shutdown(socket.SHUT_WR)
                while (answer := client.line()) is not None:
                    self.assertIn("error", answer)
