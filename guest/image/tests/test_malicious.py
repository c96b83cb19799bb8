"""Images that mean harm."""

import gzip
import os
import tarfile

from build_test import PROGRAM, BuildTest
from oci_image import directory, entry, hard_link, layer, link


class MaliciousImageTest(BuildTest):
    def test_names_that_lead_out(self):
        out = str(self.place / "out")
        bad = {
            "above": entry(f"../../../../../../..{out}", b"!"),
            "between": entry(f"a/../../../../../../../..{out}", b"!"),
            "hard": hard_link("stolen", "../../../../../../../../etc/passwd"),
        }
        for name, one in bad.items():
            self.refused(self.make([layer(PROGRAM, one)], name, Cmd=["serve"]), "leads out of the image")
            self.assertFalse(os.path.exists(out), name)

    def test_links_lead_nowhere_but_into_the_image(self):
        victim = self.place / "victim"
        victim.mkdir()
        (victim / "file").write_text("mine")
        first = layer(PROGRAM, link("way", str(victim)), link("up", "../../../../../../../.."))
        second = layer(
            entry("way/new", b"!"),
            entry("way/.wh.file"),
            entry(f"up{victim}/other", b"!"),
            entry("/absolute", b"in the image"),
        )
        root, _ = self.unpacked(self.make([first, second], Cmd=["serve"]))
        self.assertEqual([path.name for path in victim.iterdir()], ["file"])
        self.assertEqual((victim / "file").read_text(), "mine")
        self.assertEqual((root / "absolute").read_text(), "in the image")

    def test_links_do_not_change_owners_or_programs_of_the_host(self):
        victim = self.place / "victim"
        victim.write_text("mine")
        os.chown(victim, 1000, 1000)
        files = layer(PROGRAM, link("mine", str(victim)), link("etc", str(self.place)))
        self.unpacked(self.make([files], Cmd=["serve"], User="1000:1000"))
        self.assertEqual(os.stat(victim).st_uid, 1000)

    def test_mount_points_are_no_links(self):
        for name in ("proc", "dev"):
            path = self.make([layer(PROGRAM, link(name, "/run"))], name, Cmd=["serve"])
            self.refused(path, f"/{name} of the image is not a directory")

    def test_too_much(self):
        header, _ = entry("large")
        header.size = 17 << 30
        # Only the header: it is refused before anybody asks for the rest.
        self.refused(self.make([header.tobuf() + bytes(4096)], Cmd=["serve"]), "more than 16 GiB")

    def test_a_header_that_takes_all_memory(self):
        header, _ = entry("PaxHeaders/x", kind=tarfile.XHDTYPE)
        header.size = 1 << 30
        zeros = gzip.compress(bytes(64 << 20), 1) * 16

        def bomb(content):
            return gzip.compress(content) + zeros

        self.refused(self.make([header.tobuf()], compress=bomb, Cmd=["serve"]), "a header of more than 1 MiB")

    def test_what_is_deeper_than_a_path_may_be(self):
        deep = [directory("/".join("d" * 2000)), link("way", "/".join("d" * 2000)), entry("way/" + "/".join("e" * 2000))]
        self.refused(self.make([layer(PROGRAM, *deep)], Cmd=["serve"]), "build.sh: ")
