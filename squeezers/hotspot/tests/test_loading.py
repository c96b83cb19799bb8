"""The ways into a JVM that starts, and more than one of them; and its end by a signal."""

import shutil

from conformance.case import Case
from conformance.program import default_path, wait_until
from matrix import java
from program import AGENT, Program


class Loading(Case):
    def start(self, *flags, **options):
        """A JVM whose squeezer listens at self.path, when it is ready."""
        environment = {"SQUEEZER_SOCKET": self.path, **options.pop("environment", {})}
        program = self.ends_with_test(Program(java(17), *flags, environment=environment, **options))
        program.wait_until_ready()
        return program

    def assert_served(self, program, errors):
        """That it has one squeezer, has said this on standard error, and ends as it should."""
        self.assertEqual(program.errors(), errors)
        self.assert_serves(self.path, program)
        self.assertFalse(default_path(program.pid).exists())
        self.assertEqual(program.do("hold 1"), "held")
        self.assertEqual(program.do("check"), "right")
        self.assert_ends(program, errors)
        self.assertFalse(self.path.exists())

    def test_loaded_twice(self):
        program = self.start(f"-agentpath:{AGENT}")
        self.assert_served(program, "squeezer: the squeezer is in this process already\n")

    def test_loaded_from_two_files(self):
        copy = self.folder / "copy.so"
        shutil.copy(AGENT, copy)
        program = self.start(f"-agentpath:{copy}")
        self.assert_served(program, f"squeezer: no socket at {self.path}: a squeezer of this process listens there; "
                                    "the process goes on without it\n")

    def test_tool_options(self):
        program = self.start(squeezer=None, environment={"JAVA_TOOL_OPTIONS": f"-agentpath:{AGENT}"})
        self.assert_served(program, f"Picked up JAVA_TOOL_OPTIONS: -agentpath:{AGENT}\n")

    def test_agent_with_options(self):
        program = self.start(squeezer=f"{AGENT}=nonsense")
        self.assert_served(program, "squeezer: the squeezer takes no options; SQUEEZER_SOCKET says where its socket "
                                    "is\n")

    def test_ended_by_sigterm(self):
        program = self.start()
        self.assertTrue(self.path.exists())
        program.process.terminate()
        program.wait()
        wait_until(lambda: not self.path.exists())
