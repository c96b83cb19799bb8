"""What the bill of materials says of an OCI image, with images that have few files."""

import pathlib
import sys
import tempfile
import unittest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(CHECKOUT / "packaging"), str(CHECKOUT / "guest/image/tests")]

import bill_of_materials  # noqa: E402
from oci_image import Layout, entry, layer  # noqa: E402

STATUS = b"""Package: skopeo
Status: install ok installed
Version: 1.9.3+ds1-1
Description: works with images
 Package: of somebody else

Package: libslirp0
Status: deinstall ok config-files
Version: 4.7.0-1

Package: squeezy
Status: install ok installed
Version: 0.1.0

Package: squeezy-guest
Source: squeezy
Status: install ok installed
Version: 0.1.0

Package: libgcc-s1
Source: gcc-12 (12.2.0-14)
Status: install ok installed
Version: 12.2.0-14
"""


class Bill(unittest.TestCase):
    def installed(self, *layers):
        with tempfile.TemporaryDirectory() as directory:
            archive = pathlib.Path(directory, "image.tar")
            Layout(pathlib.Path(directory, "layout"), layers).archive(archive)
            return list(bill_of_materials.installed(archive))

    def test_packages_of_debian_in_an_image_are_in_the_bill(self):
        image = self.installed(layer(entry("./usr/bin/skopeo"), entry("./var/lib/dpkg/status", STATUS)))
        self.assertEqual(image, [("skopeo", "1.9.3+ds1-1"), ("libgcc-s1", "12.2.0-14")])

    def test_an_image_may_have_none(self):
        self.assertEqual(self.installed(layer(entry("./bin/busybox"))), [])


if __name__ == "__main__":
    unittest.main()
