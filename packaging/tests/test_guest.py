"""When the packages stop and start the service, with commands that write down how they are called."""

import pathlib
import re
import subprocess
import tempfile
import unittest

PACKAGES = pathlib.Path(__file__).resolve().parents[1] / "debian"

STOP = "deb-systemd-invoke stop squeezy.service"
START = "systemctl --quiet start squeezy.service"
RELOAD = "systemctl --system daemon-reload"
RESTART = "deb-systemd-invoke restart squeezy.service"

# As systemd answers for a unit whose state is in the file "state", and which is enabled if there is a file "enabled".
SYSTEMCTL = """case "$*" in
"is-active squeezy.service") cat {root}/state; grep -q "^active" {root}/state ;;
"--quiet is-enabled squeezy.service") [ -e {root}/enabled ] ;;
*) echo systemctl "$@" >>{root}/called ;;
esac"""


class Service(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        (self.root / "run/systemd/system").mkdir(parents=True)
        self.unit = self.root / "usr/lib/systemd/system/squeezy.service"
        self.unit.parent.mkdir(parents=True)
        self.unit.touch()
        self.commands = self.root / "commands"
        self.commands.mkdir()
        self.command("dpkg-query", "echo 0.1.0")
        self.command("deb-systemd-invoke", f'echo deb-systemd-invoke "$@" >>{self.root}/called')
        self.command("systemctl", SYSTEMCTL.format(root=self.root))
        for other in ("deb-systemd-helper", "systemd-sysusers"):
            self.command(other, "")
        self.service("active", is_enabled=True)

    def command(self, name, does):
        file = self.commands / name
        file.write_text(f"#!/bin/sh\n{does}\n")
        file.chmod(0o755)

    def service(self, state, is_enabled):
        (self.root / "state").write_text(f"{state}\n")
        (self.root / "enabled").unlink(missing_ok=True)
        if is_enabled:
            (self.root / "enabled").touch()

    def called(self, script, *arguments):
        """How the script, as PACKAGE/SCRIPT, has called systemd to change something."""
        text = (PACKAGES / script).read_text()
        text = re.sub(r"(?<=\s)/(?=run/|usr/)", f"{self.root}/", text)
        command = ["sh", "-c", text, script, *arguments]
        subprocess.run(command, check=True, env={"PATH": f"{self.commands}:/usr/bin:/bin"})
        called = self.root / "called"
        said = called.read_text().splitlines() if called.exists() else []
        called.unlink(missing_ok=True)
        return said

    def upgrade_begins(self):
        return self.called("squeezy-guest/prerm", "upgrade", "0.1.1")

    def upgrade_breaks_off(self):
        return self.called("squeezy-guest/postinst", "abort-upgrade", "0.1.1")

    def upgrade_ends(self):
        return self.called("squeezy/postinst", "configure", "0.1.0")

    def test_the_daemon_does_not_run_while_its_guest_is_another_version_s(self):
        self.assertEqual(self.upgrade_begins(), [STOP])
        self.assertEqual(self.upgrade_ends(), [RELOAD, RESTART])

    def test_a_daemon_goes_on_when_nothing_has_been_replaced(self):
        for state in ("active", "activating", "reloading"):
            self.service(state, is_enabled=True)
            self.assertEqual(self.upgrade_begins(), [STOP])
            self.service("inactive", is_enabled=True)
            self.assertEqual(self.upgrade_breaks_off(), [START])
            self.assertEqual(self.upgrade_breaks_off(), [], "that it ran is forgotten")

    def test_a_daemon_that_ran_although_it_is_disabled_runs_again(self):
        self.service("active", is_enabled=False)
        self.assertEqual(self.upgrade_begins(), [STOP])
        self.service("inactive", is_enabled=False)
        # Which starts nothing that is disabled.
        self.assertEqual(self.upgrade_ends(), [RELOAD, RESTART, START])
        self.assertEqual(self.upgrade_ends(), [RELOAD, RESTART], "that it ran is forgotten")

    def test_a_daemon_that_was_stopped_stays_so_when_nothing_has_been_replaced(self):
        for state in ("inactive", "failed"):
            self.service(state, is_enabled=True)
            self.assertEqual(self.upgrade_begins(), [STOP])
            self.assertEqual(self.upgrade_breaks_off(), [])
        self.service("inactive", is_enabled=False)
        self.assertEqual(self.upgrade_begins(), [STOP])
        self.assertEqual(self.upgrade_ends(), [RELOAD, RESTART])

    def test_a_daemon_that_an_upgrade_left_down_is_not_forgotten_by_the_next(self):
        self.service("active", is_enabled=False)
        self.assertEqual(self.upgrade_begins(), [STOP])
        self.service("inactive", is_enabled=False)
        self.assertEqual(self.upgrade_begins(), [STOP])
        self.assertEqual(self.upgrade_ends(), [RELOAD, RESTART, START])

    def test_a_daemon_that_nobody_would_start_again_goes_on(self):
        self.assertEqual(self.called("squeezy-guest/prerm", "upgrade", "0.1.0"), [])
        self.assertEqual(self.called("squeezy-guest/prerm", "remove"), [])
        self.assertEqual(self.called("squeezy-guest/postinst", "configure", "0.1.0"), [])

    def test_the_guest_is_also_the_shim_s_alone(self):
        self.unit.unlink()
        self.assertEqual(self.upgrade_begins(), [])
        self.assertEqual(self.upgrade_breaks_off(), [])

    def test_what_cannot_be_stopped_keeps_no_upgrade_from_going_on(self):
        self.command("deb-systemd-invoke", "exit 1")
        self.assertEqual(self.upgrade_begins(), [])
        self.assertEqual(self.upgrade_ends(), [RELOAD])


if __name__ == "__main__":
    unittest.main()
