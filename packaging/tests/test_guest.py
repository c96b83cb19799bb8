"""The scripts of the package squeezy-guest, with commands that write down how they are called."""

import pathlib
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "debian/squeezy-guest"
SYSTEMD = "/run/systemd/system"
UNIT = "/usr/lib/systemd/system/squeezy.service"


class Guest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        (self.root / SYSTEMD[1:]).mkdir(parents=True)
        self.unit = self.root / UNIT[1:]
        self.unit.parent.mkdir(parents=True)
        self.unit.touch()
        self.commands = self.root / "commands"
        self.commands.mkdir()
        self.command("dpkg-query", "echo 0.1.0")
        self.command("deb-systemd-invoke", f'echo "$@" >>{self.root}/called')

    def command(self, name, does):
        file = self.commands / name
        file.write_text(f"#!/bin/sh\n{does}\n")
        file.chmod(0o755)

    def called(self, script, *arguments):
        """How the script has called systemd."""
        text = (SCRIPTS / script).read_text()
        for path in (SYSTEMD, UNIT):
            self.assertIn(path, text)
            text = text.replace(path, f"{self.root}{path}")
        command = ["sh", "-c", text, script, *arguments]
        subprocess.run(command, check=True, env={"PATH": f"{self.commands}:/usr/bin:/bin"})
        called = self.root / "called"
        said = called.read_text().splitlines() if called.exists() else []
        called.unlink(missing_ok=True)
        return said

    def test_the_daemon_does_not_run_while_its_guest_is_another_version_s(self):
        self.assertEqual(self.called("prerm", "upgrade", "0.1.1"), ["stop squeezy.service"])
        self.assertEqual(self.called("postinst", "abort-upgrade", "0.1.1"), ["start squeezy.service"])

    def test_a_daemon_that_nobody_would_start_again_goes_on(self):
        self.assertEqual(self.called("prerm", "upgrade", "0.1.0"), [])
        self.assertEqual(self.called("prerm", "remove"), [])
        self.assertEqual(self.called("postinst", "configure", "0.1.0"), [])

    def test_the_guest_is_also_the_shim_s_alone(self):
        self.unit.unlink()
        self.assertEqual(self.called("prerm", "upgrade", "0.1.1"), [])
        self.assertEqual(self.called("postinst", "abort-upgrade", "0.1.1"), [])

    def test_what_cannot_be_stopped_keeps_no_upgrade_from_going_on(self):
        self.command("deb-systemd-invoke", "exit 1")
        self.assertEqual(self.called("prerm", "upgrade", "0.1.1"), [])


if __name__ == "__main__":
    unittest.main()
