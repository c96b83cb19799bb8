"""A JVM in other namespaces: its socket is where that process sees it."""

import pathlib
import subprocess
import unittest

from client import Client
from matrix import java
from program import Program, eventually

UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# A /tmp that nobody outside has, with the folders of the one outside: what is run may be in one of them.
PRIVATE = """mount --rbind /tmp /mnt && mount -t tmpfs tmpfs /tmp && for folder in /mnt/*/; do
    mkdir "/tmp/${folder#/mnt/}" && mount --rbind "$folder" "/tmp/${folder#/mnt/}" || :
done 2>/dev/null && cd / && exec "$@"
"""
INSIDE = [*UNSHARE, "sh", "-c", PRIVATE, "sh"]


def child(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


@unittest.skipIf(subprocess.run([*UNSHARE, "true"], capture_output=True).returncode,
                 "this user may not make namespaces")
class Namespace(unittest.TestCase):
    def test_socket_through_proc(self):
        with Program(java(17), environment={}, wrapper=INSIDE) as program:
            program.do("hold 4")
            program.do("garbage 60")
            root = pathlib.Path(f"/proc/{child(program.process.pid)}/root")
            path = root / "tmp/squeezer-1.sock"
            self.assertFalse(pathlib.Path("/tmp/squeezer-1.sock").exists())
            with Client(path) as client:
                self.assertEqual(client.hello["pid"], 1)
                answer = client.ask()
            self.assertIsNone(answer["error"])
            self.assertLessEqual(answer["after_bytes"], 1.05 * answer["live_bytes"])
            self.assertEqual(program.do("check"), "right")
            self.assertEqual(program.quit(), 0)
            eventually(lambda: not path.exists())
