"""A process in other namespaces: its socket is where that process sees it."""

import os
import pathlib
import subprocess
import unittest

from conformance.program import default_path, wait_until
from conformance.suite import SuiteCase, for_each_variant

UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# A /tmp that nobody outside has, with the folders of the one outside: what is run may be in one of them.
PRIVATE = """mount --rbind /tmp /mnt && mount -t tmpfs tmpfs /tmp && for folder in /mnt/*/; do
    mkdir "/tmp/${folder#/mnt/}" && mount --rbind "$folder" "/tmp/${folder#/mnt/}" || :
done 2>/dev/null && cd / && exec "$@"
"""
INSIDE = [*UNSHARE, "sh", "-c", PRIVATE, "sh"]


def child(pid):
    """The first child of a process; None while it has none."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(children[0]) if children else None


@unittest.skipIf(subprocess.run([*UNSHARE, "true"], capture_output=True).returncode,
                 "this user may not make namespaces")
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
