"""What the suite needs to know of a squeezer, and of a program of its runtime."""

import abc

from conformance.program import Program


class HoldingProgram(Program):
    """A program that holds data, and does what lines on its standard input say. It ends when there are no more."""

    @abc.abstractmethod
    def check(self):
        """Raises AssertionError unless it answers, and all that it holds is as it was."""

    @abc.abstractmethod
    def be_busy(self, seconds):
        """Has it compute for so long, and does not wait for that. It has answered check() before."""

    @abc.abstractmethod
    def was_busy(self):
        """Waits until it is no longer."""


class Adapter(abc.ABC):
    """A squeezer."""

    # As a hello names it.
    runtime = None
    # Versions of the runtime, or ways to squeeze it, that the suite runs with: the name of each in the names of
    # tests, and what start() is given. The first is also what cases that need no more than one are tested with.
    variants = {}
    # What standard error says where there can be no socket, and answers say of a line: a part of each sentence.
    not_a_socket = None
    no_folder = None
    not_a_folder = None
    too_long_path = None
    relative_path = None
    taken_path = None
    too_long_line = None
    # How many of 200 clients that connect at once are served; others may be sent away.
    clients_at_once = 200

    @abc.abstractmethod
    def start(self, variant, environment, wrapper=(), **options):
        """A HoldingProgram with the squeezer, of a variant.

        `environment` has variables that are added to those of the tests, of which none may change the runtime or the
        squeezer. `wrapper` is a command that executes the program. `options` are those of subprocess.Popen.
        """

    @abc.abstractmethod
    def version(self, variant):
        """The runtime's version, as the runtime itself says it."""

    @abc.abstractmethod
    def collector(self, variant):
        """The collector's name; None if it has none."""

    def is_private_at_once(self, variant):
        """Whether the socket has its mode from the moment when it is there."""
        return True
