"""The squeezer comes into a JVM that runs already."""

import subprocess
import unittest

from matrix import for_each_jvm
from program import AGENT, Program


@for_each_jvm
class Attach(unittest.TestCase):
    def attach(self, java, program):
        result = subprocess.run([java[:-len("java")] + "jcmd", str(program.pid), "JVMTI.agent_load", AGENT],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def each_attach(self, java, collector):
        with Program(java, f"-XX:+Use{collector}GC", squeezer=None, environment={"SQUEEZER_SOCKET": None}) as program:
            program.do("hold 10")
            program.do("garbage 100")
            self.assertIn("return code: 0", self.attach(java, program))
            answer = program.squeeze()
            self.assertLessEqual(answer["after_bytes"], 1.05 * answer["live_bytes"])
            # Once more: it is there already, and stays as it is.
            self.assertIn("return code: 0", self.attach(java, program))
            program.squeeze()
            self.assertEqual(program.do("check"), "right")
            self.assertEqual(program.quit(), 0)
