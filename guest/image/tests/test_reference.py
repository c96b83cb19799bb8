"""Images that are made under their digest, in nobody's place."""

import subprocess

from build_test import PROGRAM, BuildTest
from oci_image import entry, layer


class ReferenceTest(BuildTest):
    def reference(self, path):
        """Make an image; return what the last line says, and its directory."""
        status, said, error = self.build(path, "--reference")
        self.assertEqual((status, error), (0, ""), said)
        name, digest = said.splitlines()[-1].split("@sha256:")
        return name, digest, self.images / "sha256" / digest

    def test_images_of_one_name_stand_beside_each_other(self):
        made = []
        for folder in ("one", "two"):
            (self.input / folder).mkdir()
            files = layer(PROGRAM, entry("data", folder.encode()))
            made.append(self.reference(self.make([files], f"{folder}/same", Cmd=["serve"])))
        self.assertEqual([name for name, _, _ in made], ["same", "same"])
        self.assertNotEqual(made[0][1], made[1][1])
        for (_, digest, place), folder in zip(made, ("one", "two")):
            check = "sha256sum image.erofs image.toml | sha256sum"
            said = subprocess.run(["sh", "-c", check], cwd=place, check=True, capture_output=True, text=True)
            self.assertEqual(said.stdout.split()[0], digest)
            files = self.place / folder
            subprocess.run(["fsck.erofs", f"--extract={files}", place / "image.erofs"], check=True, capture_output=True)
            self.assertEqual((files / "data").read_text(), folder)
        # Nobody's image was replaced.
        self.assertEqual([path.name for path in self.images.iterdir()], ["sha256"])

    def test_the_same_is_made_once_and_only_the_latest_are_kept(self):
        path = self.make([layer(PROGRAM)], Cmd=["serve"])
        _, first, _ = self.reference(path)
        self.assertEqual(self.reference(path)[1], first)
        self.assertEqual([place.name for place in (self.images / "sha256").iterdir()], [first])
        for number in range(14):
            (self.images / "sha256" / str(number)).mkdir()
        self.reference(path)
        kept = {place.name for place in (self.images / "sha256").iterdir()}
        self.assertEqual((len(kept), first in kept), (12, True))
