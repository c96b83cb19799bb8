"""The adapter that the suite runs with, and what its cases have in common."""

# Of the squeezer in whose tests/ the suite is started.
from adapter import ADAPTER

from conformance.case import Case, for_each
from conformance.client import NUMBERS

for_each_variant = for_each({name: [variant] for name, variant in ADAPTER.variants.items()})
# For what does not depend on it.
for_one_variant = for_each({"": list(ADAPTER.variants.values())[:1]})


class SuiteCase(Case):
    def start(self, variant, path=..., **options):
        """A program that listens at self.path, or at another path; it may not listen yet."""
        program = ADAPTER.start(variant, {"SQUEEZER_SOCKET": self.path if path is ... else path}, **options)
        return self.ends_with_test(program)

    def start_served(self, variant, path=..., **options):
        """The same, when it listens."""
        program = self.start(variant, path, **options)
        program.wait_for_squeezer()
        return program

    def assert_rejects(self, client):
        """That the client gets an answer with an error, and no more; returns the error."""
        answer = client.message()
        self.assertIsNotNone(answer, "there is no answer")
        self.assertEqual(list(answer), [*NUMBERS, "error"])
        self.assertIsInstance(answer["error"], str)
        self.assertEqual([answer[number] for number in NUMBERS], [0] * len(NUMBERS))
        self.assertEqual(client.line(), b"", "the connection is still open")
        return answer["error"]

    def assert_ends_unharmed(self, program):
        """That whatever was said to its squeezer, it serves the next client, and the program ends as if nothing was."""
        self.assert_serves(program.socket, program)
        program.check()
        self.assert_ends(program)
