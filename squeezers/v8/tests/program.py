"""Programs with a squeezer in them."""

import json
import pathlib
import subprocess

import conformance.program
from conformance.program import PATIENCE_SECONDS, environment_without
from matrix import PRELOADS

PROGRAMS = pathlib.Path(__file__).parent / "programs"


def environment(**variables):
    """That of the tests without what would change a Node, and with these."""
    return {**environment_without("NODE_"), **{name: str(value) for name, value in variables.items()}}


def run(node, *arguments, route="addon", **variables):
    """Runs a program with a squeezer in it to its end."""
    return subprocess.run([node, "--require", PRELOADS[route], *map(str, arguments)], env=environment(**variables),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


class Program(conformance.program.Program):
    """A program of programs/ with a squeezer in it, which does what lines of JSON say."""

    def __init__(self, node, route="addon", name="served.js", options=(), preload=None, variables=None, wrapper=(),
                 **popen_options):
        command = [*wrapper, node, *options, "--require", preload or PRELOADS[route], PROGRAMS / name]
        super().__init__(command, {**environment(), **(variables or {})}, **popen_options)

    def tell(self, *command):
        """Sends a command, and does not wait."""
        self.say(json.dumps(command))

    def answer(self):
        return json.loads(self.line())

    def do(self, *command):
        self.tell(*command)
        return self.answer()

    def memory(self, kind="Anonymous"):
        """By default what is not from files, its own alone: that of files is shared with other Nodes."""
        return super().memory(kind)
