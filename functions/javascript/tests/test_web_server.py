"""Visits to the server: pages, their hashes, and notes that stay from one call to the next."""

import hashlib

import function


def tag(text):
    return f'"{hashlib.sha1(text.encode()).hexdigest()}"'


def page(items):
    rows = "\n".join(f"<li>{number} squared is {number * number}</li>" for number in range(1, items + 1))
    return f"<!DOCTYPE html>\n<title>Squares</title>\n<ol>\n{rows}\n</ol>\n"


class WebServer(function.FunctionTest):
    name = "web-server"
    wrong = [({}, "visits"), ({"visits": []}, "visits"), ({"visits": ["/"]}, "visits"), ({"visits": [{}]}, "path"),
             ({"visits": [{"path": "pages"}]}, "path"), ({"visits": [{"path": "/ HTTP/1.1\r\nX: y"}]}, "path"),
             ({"visits": [{"path": "/", "method": "PUT"}]}, "method"),
             ({"visits": [{"path": "/", "etag": "x\r\ny"}]}, "etag"), ({"visits": [{"path": "/"}] * 101}, "visits")]

    def visit(self, *visits):
        return self.answer(visits=list(visits))["answers"]

    def test_pages(self):
        answers = self.visit(*({"path": f"/pages/{items}"} for items in (0, 1, 77, 2000)))
        for items, answer in zip((0, 1, 77, 2000), answers, strict=True):
            text = page(items)
            self.assertEqual(answer, {"status": 200, "type": "text/html", "etag": tag(text), "text": text})

    def test_a_page_that_is_known_is_not_sent_again(self):
        for etag, status, text in ((tag(page(5)), 304, ""), (tag(page(6)), 200, page(5))):
            answer, = self.visit({"path": "/pages/5", "etag": etag})
            self.assertEqual((answer["status"], answer["text"]), (status, text))

    def test_what_is_not_there(self):
        for visit in ({"path": "/"}, {"path": "/pages/2001"}, {"path": "/pages/x"}, {"path": "/notes/999999"},
                      {"path": "/notes/999999", "method": "DELETE"}, {"path": "/pages/1", "method": "POST"}):
            self.assertEqual(self.visit(visit)[0]["status"], 404, visit)

    def test_notes_stay_until_they_are_removed(self):
        answer, = self.visit({"path": "/notes", "method": "POST", "body": "Grüße"})
        self.assertEqual(answer["status"], 201)
        number = int(answer["text"].removeprefix('{"number":').removesuffix("}"))
        path = f"/notes/{number}"
        self.assertEqual(self.visit({"path": path})[0]["text"], "Grüße")
        self.assertEqual(self.visit({"path": path, "method": "DELETE"})[0]["status"], 200)
        self.assertEqual(self.visit({"path": path})[0]["status"], 404)

    def test_notes_are_bounded(self):
        for size, status in ((4096, 201), (4097, 413), (65536, 413)):
            answers = self.visit({"path": "/notes", "method": "POST", "body": "x" * size}, {"path": "/pages/1"})
            self.assertEqual([answer["status"] for answer in answers], [status, 200])

    def test_of_very_many_notes_the_latest_stay(self):
        first = self.visit({"path": "/notes", "method": "POST", "body": "first"})[0]["text"]
        first = int(first.removeprefix('{"number":').removesuffix("}"))
        for _ in range(10):
            self.visit(*({"path": "/notes", "method": "POST", "body": "later"} for _ in range(100)))
        gone, there = self.visit({"path": f"/notes/{first}"}, {"path": f"/notes/{first + 1}"})
        self.assertEqual((gone["status"], there["status"], there["text"]), (404, 200, "later"))
