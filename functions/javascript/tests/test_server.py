"""The interface that all functions have, and run.sh."""

import json
import pathlib
import socket
import subprocess
import tempfile
import threading
import unittest

from function import FOLDER, MARKER, NODE, PATIENCE_SECONDS, Function, environment

# Quick to answer, and quick to be told from others by its answer.
NAME, FAST = "fibonacci", {"number": 10}


class Server(unittest.TestCase):
    def setUp(self):
        self.function = self.enterContext(Function(NAME))

    def test_init_comes_first_and_once(self):
        self.assertEqual(self.function.run()[0], 409)
        self.assertEqual(self.function.init(), (200, {"ok": True}))
        self.assertEqual(self.function.init()[0], 403)
        self.assertEqual(self.function.run(**FAST)[0], 200)

    def test_init_takes_environment_but_no_code(self):
        for value in ({"code": "exports.main = () => ({})"}, {"env": []}, {"main": "nothing"}, {"main": "toString"}):
            with self.subTest(value=value):
                status, answer = self.function.init(**value)
                self.assertEqual(status, 400)
                self.assertIn("error", answer)
        self.assertEqual(self.function.init(env={"SHELF": "a", "": "b", "A=B": "c"})[0], 200)

    def test_bodies_that_are_no_object(self):
        self.function.init()
        for body in (b"[]", b"1", b"null", b"", b'{"value": []}', b'{"value": null', b'{"value": "x"}', b"\xff"):
            with self.subTest(body=body):
                status, answer = self.function.request("POST", "/run", body)
                self.assertEqual(status, 400)
                self.assertIn("JSON object", answer["error"])
        self.assertEqual(self.function.run(**FAST)[0], 200)

    def test_what_is_too_large_or_nowhere_is_refused(self):
        self.function.init()
        self.assertEqual(self.function.run(**FAST, text="x" * (1 << 20))[0], 200)
        self.assertEqual(self.function.run(**FAST, text="x" * (2 << 20))[0], 413)
        for method, path in (("POST", "/stop"), ("GET", "/run"), ("POST", "/")):
            status, answer = self.function.request(method, path, "{}")
            self.assertEqual((status, list(answer)), (404, ["error"]))
        self.assertEqual(self.function.run(**FAST)[0], 200)

    def test_each_run_ends_with_a_line_in_both_outputs(self):
        self.function.init()
        self.function.run(**FAST)
        self.function.request("POST", "/run", b"[]")
        self.assertEqual(self.function.said(), [MARKER * 2] * 2)

    def test_calls_at_the_same_time_are_all_answered(self):
        self.function.init()
        answers = {}

        def call(number):
            answers[number] = self.function.run(number=number)[1].get("value")

        callers = [threading.Thread(target=call, args=(number,)) for number in range(10, 30)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(PATIENCE_SECONDS)
        before, value = 0, 1
        for number in range(1, 30):
            if number >= 10:
                self.assertEqual(answers[number], str(value))
            before, value = value, before + value

    def test_a_client_that_does_not_go_on_holds_nobody_up(self):
        self.function.init()
        with socket.create_connection(("127.0.0.1", self.function.port)) as slow:
            slow.sendall(b"POST /run HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            self.assertEqual(self.function.run(**FAST)[0], 200)
        # Nor does one that has gone.
        self.assertEqual(self.function.run(**FAST)[0], 200)


class Start(unittest.TestCase):
    def refused(self, *arguments, **variables):
        """What run.sh says instead of starting a function."""
        ended = subprocess.run([FOLDER / "run.sh", *arguments], env=environment(**variables), text=True,
                               stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_SECONDS)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr.count("\n")), (2, "", 1), ended.stderr)
        return ended.stderr

    def test_what_cannot_be_started_is_one_line(self):
        self.assertIn("usage", self.refused())
        self.assertIn("usage", self.refused("../fft"))
        self.assertIn("there is no function nothing", self.refused("nothing"))
        self.assertIn("MEMORY_LIMIT", self.refused(NAME, MEMORY_LIMIT="256M"))
        self.assertIn("MEMORY_LIMIT", self.refused(NAME, MEMORY_LIMIT="1000"))
        self.assertIn("MEMORY_LIMIT", self.refused(NAME, MEMORY_LIMIT="9" * 30))
        self.assertIn("PORT", self.refused(NAME, PORT="65536"))
        self.assertIn("set NODE", self.refused(NAME, NODE="/nonexistent/node"))

    def test_a_port_that_is_taken_is_one_line(self):
        with Function(NAME) as function:
            self.assertIn(f"port {function.port}", self.refused(NAME, PORT=str(function.port)))

    def test_the_heap_is_limited_as_the_memory_is(self):
        for variables, flags in (({}, ["--max-semi-space-size=12", "--max-old-space-size=231"]),
                                 ({"MEMORY_LIMIT": str(1 << 30), "EAGER_GC": "1"},
                                  ["--max-semi-space-size=51", "--max-old-space-size=922", "--expose-gc"])):
            with Function(NAME, **variables) as function:
                process = pathlib.Path(f"/proc/{function.process.pid}")
                line = process.joinpath("cmdline").read_text().split("\0")[:-1]
                self.assertEqual(line, [NODE, *flags, f"{FOLDER}/server/server.js", f"{FOLDER}/{NAME}"])

    def test_eager_collection_is_one_after_each_request(self):
        for variables, expected in (({"EAGER_GC": "1"}, 4), ({}, 0)):
            with tempfile.TemporaryDirectory() as directory:
                tracing = pathlib.Path(directory, "node")
                tracing.write_text(f'#!/bin/sh\nexec "{NODE}" --trace-gc "$@"\n')
                tracing.chmod(0o755)
                with Function(NAME, NODE=str(tracing), **variables) as function:
                    function.init()
                    for number in (10, 20, 30):
                        function.run(number=number)
                    forced = [line for line in function.said()[0].splitlines() if "testing" in line]
                    self.assertEqual(len(forced), expected, forced)

    def test_node_options_are_passed_on(self):
        with tempfile.TemporaryDirectory() as directory:
            early = pathlib.Path(directory, "early.js")
            early.write_text(f'require("fs").writeFileSync({json.dumps(directory)} + "/seen", String(process.pid));\n')
            with Function(NAME, NODE_OPTIONS=f"--require {early}") as function:
                self.assertEqual(early.with_name("seen").read_text(), str(function.process.pid))
