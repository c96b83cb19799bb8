"""What holds for every function that the server serves, shown with one."""

import http.client
import json
import socket
import unittest

from function import TIMEOUT, Process

MARKER = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX\n"


class ServerTest(unittest.TestCase):
    def start(self, name="sort", *options, **environment):
        process = Process(name, *options, **environment)
        self.addCleanup(process.end)
        return process

    def assert_works(self, process):
        status, answer = process.post("/run", {"count": 10})
        self.assertEqual((status, answer["summary"][:10]), (200, "10 records"))

    def test_init_comes_first_and_once(self):
        process = self.start()
        self.assertEqual(process.post("/run", {})[0], 409)
        self.assertEqual(process.post("/init", {"code": "x"})[0], 400)
        self.assertEqual(process.post("/init", {"name": "sort", "code": "", "env": {}}), (200, {"ok": True}))
        self.assertEqual(process.post("/init", {})[0], 403)
        self.assert_works(process)
        self.assertEqual(process.said(), [MARKER * 2] * 2)

    def test_a_class_that_is_no_function(self):
        for name in ("nothing", "picture"):
            status, answer = self.start(name).post("/init", {})
            self.assertEqual(status, 502)
            self.assertIn("cannot be loaded", answer["error"])

    def test_bodies_that_are_no_object(self):
        process = self.start()
        process.post("/init", {})
        for body in (b"", b"[]", b"1", b"null", b'{"value": []}', b'{"value": null}', b'{"value": "x"}',
                     b'{"value": {}', b'{"value": {}} x', b"{'value': {}}", b'{value: {}}', b'{"value": {"count": 01}}',
                     b'{"value": {"text": "\xff"}}', b'{"value": ' * 100_000, b'{"value": {"count": NaN}}'):
            status, answer = process.request("POST", "/run", body)
            self.assertEqual(status, 400, body[:80])
            self.assertIn("JSON object", answer["error"])
        self.assertEqual(process.request("POST", "/run", b"{}")[0], 200)
        self.assert_works(process)

    def test_what_is_too_large_or_nowhere_is_refused(self):
        process = self.start()
        process.post("/init", {})
        status, answer = process.post("/run", {"text": "x" * (2 << 20)})
        self.assertEqual(status, 413)
        self.assertIn("larger than", answer["error"])
        for method, path in (("POST", "/stop"), ("GET", "/run"), ("POST", "/run/x"), ("POST", "/")):
            status, answer = process.request(method, path, b"{}")
            self.assertEqual((status, "error" in answer), (404, True), path)
        self.assert_works(process)

    def test_a_client_that_leaves_harms_nobody(self):
        process = self.start()
        process.post("/init", {})
        for head in (b"POST /run HTTP/1.1\r\nContent-Length: 100\r\n\r\n{", b"POST /run HTTP/1.1\r\nContent-Le",
                     b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", process.port)) as client:
                client.sendall(head)
        self.assert_works(process)

    def test_one_connection_serves_many_requests(self):
        process = self.start()
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=TIMEOUT)
        self.addCleanup(connection.close)
        for path, expected in (("/init", {"ok": True}), ("/run", None), ("/run", None)):
            connection.request("POST", path, json.dumps({"value": {"count": 1}}))
            answer = json.loads(connection.getresponse().read())
            self.assertEqual(answer, expected or {**answer, "median": answer["summary"].split(" to ")[1]})

    def test_a_function_that_needs_too_much_memory_is_an_answer(self):
        process = self.start(MEMORY_LIMIT=str(12 << 20))
        process.post("/init", {})
        status, answer = process.post("/run", {"count": 200_000})
        self.assertEqual(status, 502)
        self.assertIn("OutOfMemoryError", answer["error"])
        self.assert_works(process)

    def test_eager_collects_before_each_answer(self):
        for eager in ("0", "1"):
            process = self.start("sort", "-Xlog:gc", EAGER_GC=eager)
            process.post("/init", {})
            for runs in (1, 2, 3):
                self.assert_works(process)
                collections = process.said()[0].count("Pause Full (System.gc())")
                self.assertEqual(collections, runs if eager == "1" else 0)
