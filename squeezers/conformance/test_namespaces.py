"""A process in other namespaces: its socket is where that process sees it."""

import os
import pathlib
import unittest

from conformance.namespaces import INSIDE, child, may_unshare
from conformance.program import default_path, wait_until
from conformance.suite import SuiteCase, for_each_variant


@unittest.skipUnless(may_unshare(), "this user may not make namespaces")
@for_each_variant
class Namespaces(SuiteCase):
    def each_process_with_a_root_of_its_own(self, variant):
        program = self.start(variant, path=None, wrapper=INSIDE)
        wait_until(lambda: child(program.pid), "there is no process inside")
        program.socket = pathlib.Path(f"/proc/{child(program.pid)}/root") / str(default_path(1)).lstrip("/")
        program.wait_for_squeezer()
        self.assertFalse(os.path.lexists(default_path(1)))
        with program.client() as client:
            self.assertEqual(client.hello["pid"], 1)
            answer = client.squeeze()
            self.assert_answer(answer)
            self.assertGreater(answer["after_bytes"], 0)
        program.check()
        self.assert_ends(program)
