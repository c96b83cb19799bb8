"""What is wrong with a line that is no request, as the answer says it."""
from conformance.client import Client
from support import HERE, ProgramTest, client_answer

REASONS = (
    (b"", "no JSON"),
    (b"hello", "no JSON"),
    (b"\xff\xfe", "no JSON"),
    (b'{"squeeze":{}', "no JSON"),
    (b'{"squeeze":{}}{}', "no JSON"),
    (b"[" * 4000, "no JSON"),
    # Python 3.11 and later refuse to read so many digits at all.
    (b"9" * 4000, "has to be an object|no JSON"),
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
)


class Reasons(ProgramTest):
    def test_reasons(self):
        program = self.start("import sys\n" + HERE)
        program.line()
        for line, reason in REASONS:
            with self.subTest(line[:60]), Client(self.path) as client:
                client.send(line + b"\n")
                self.assertRegex(client.message()["error"], reason)
        client_answer(program.pid)
        program.say()
        self.assert_ends(program)
