"""Java programs with the squeezer in them."""

import os
import pathlib

import conformance.program
from conformance.program import environment_without

BUILD = pathlib.Path(os.environ["HOTSPOT_BUILD"])
AGENT = BUILD / "libsqueezer.so"
UNSAFE_AGENT = BUILD / "libsqueezer_unsafe.so"
CLASSES = BUILD / "classes"
# No core dumps: the tests let some of them crash.
QUIET = ["-XX:-CreateCoredumpOnCrash", "-XX:ErrorFile=error.log", "-Xmx256m"]


class Program(conformance.program.Program):
    """A JVM, which is ready when its program says so: with what loads late, or does not, there is no socket."""

    def __init__(self, java, *flags, squeezer=AGENT, main="Workload", arguments=(), environment=None, wrapper=(),
                 **options):
        load = [f"-agentpath:{squeezer}"] if squeezer else []
        command = [*wrapper, java, *load, *QUIET, *flags, "-cp", CLASSES, main, *arguments]
        clean = environment_without("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
        super().__init__(command, {**clean, **(environment or {})}, **options)

    def wait_until_ready(self):
        # A JVM may have something to say before.
        while self.line() != "ready":
            pass

    def do(self, command):
        self.say(command)
        return self.line()

    def quit(self):
        """The status that it ends with when it is told to."""
        status, _ = self.end()
        return status
