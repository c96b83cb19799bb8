"""What becomes of an image's files."""

import gzip
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tarfile

from build_test import PROGRAM, BuildTest
from oci_image import INDEX, Layout, directory, entry, hard_link, layer, link


class FilesTest(BuildTest):
    def test_modes_owners_links_and_times_are_in_the_erofs_image(self):
        then = 1_600_000_000
        files = layer(
            directory("bin"),
            PROGRAM,
            entry("data/secret", b"x", mode=0o640, uid=33, gid=44, mtime=then),
            entry("bin/as-owner", b"y", mode=0o4755),
            directory("data/shared", mode=0o1777),
            link("absolute", "/etc/passwd"),
            link("outside", "../../../../etc/shadow"),
            hard_link("data/again", "data/secret"),
        )
        path = self.make([files], Entrypoint=["/bin/serve"])
        root, _ = self.unpacked(path)
        secret = os.lstat(root / "data/secret")
        self.assertEqual((secret.st_uid, secret.st_gid, secret.st_nlink), (33, 44, 2))
        self.assertEqual(os.lstat(root / "bin/as-owner").st_mode & 0o7777, 0o4755)
        # Nobody else can run that: the directory above is closed.
        self.assertEqual(os.lstat(root.parent).st_mode & 0o777, 0o700)
        extracted = self.place / "extracted"
        image = self.images / "image.erofs"
        subprocess.run(["fsck.erofs", f"--extract={extracted}", image], check=True, capture_output=True)
        secret = os.lstat(extracted / "data/secret")
        self.assertEqual((secret.st_uid, secret.st_gid), (33, 44))
        self.assertEqual((stat.S_IMODE(secret.st_mode), secret.st_mtime), (0o640, then))
        self.assertEqual((extracted / "data/again").read_bytes(), b"x")
        self.assertEqual(os.lstat(extracted / "data/shared").st_mode & 0o7777, 0o1777)
        self.assertEqual(os.readlink(extracted / "absolute"), "/etc/passwd")
        self.assertEqual(os.readlink(extracted / "outside"), "../../../../etc/shadow")

    def test_later_layers_take_away(self):
        first = layer(
            PROGRAM,
            entry("a/gone", b"1"),
            entry("a/stays", b"1"),
            entry("opaque/old", b"1"),
            entry("opaque/deep/old", b"1"),
            entry("turned", b"a file"),
        )
        second = layer(
            entry("a/.wh.gone"),
            directory("opaque"),
            entry("opaque/.wh..wh..opq"),
            entry("opaque/new", b"2"),
            directory("turned"),
            entry("turned/inside", b"2"),
        )
        root, _ = self.unpacked(self.make([first, second], Cmd=["serve"]))
        found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        self.assertEqual(found, {"bin/serve", "a/stays", "opaque/new", "turned/inside"})

    def test_devices_stay_out(self):
        null = entry("dev/null", kind=tarfile.CHRTYPE, mode=0o666, devmajor=1, devminor=3)
        disk = entry("data/disk", kind=tarfile.BLKTYPE, mode=0o666, devmajor=8, devminor=0)
        pipe = entry("data/pipe", kind=tarfile.FIFOTYPE)
        root, _ = self.unpacked(self.make([layer(PROGRAM, null, disk, pipe)], Cmd=["serve"]))
        self.assertEqual(list((root / "dev").iterdir()), [])
        self.assertEqual([path.name for path in (root / "data").iterdir()], ["pipe"])

    def test_files_of_the_images_user_become_the_instances(self):
        passwd = entry("etc/passwd", b"root:x:0:0::/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\n")
        files = layer(
            PROGRAM,
            passwd,
            directory("home/node", mode=0o700, uid=1000, gid=1001),
            entry("home/node/run", mode=0o6755, uid=1000, gid=7),
            entry("data", uid=5, gid=1001),
        )
        root, definition = self.unpacked(self.make([files], Cmd=["serve"], User="node"))
        owners = {
            name: (os.lstat(root / name).st_uid, os.lstat(root / name).st_gid)
            for name in ("home/node", "home/node/run", "data")
        }
        self.assertEqual(owners, {"home/node": (0, 0), "home/node/run": (0, 7), "data": (5, 0)})
        self.assertEqual(os.lstat(root / "home/node/run").st_mode & 0o7777, 0o6755)
        self.assertEqual(definition["environment"]["HOME"], "/home/node")

    def test_archives_of_docker_and_oci(self):
        layout = Layout(self.input / "image", [layer(PROGRAM)], Cmd=["serve"])
        layout.archive(self.input / "oci.tar")
        docker = f"docker-archive:{self.input}/docker.tar:localhost/x:latest"
        copy = ["skopeo", "copy", "--quiet", "--insecure-policy", f"oci:{layout.path}", docker]
        subprocess.run(copy, check=True)
        for name in ("oci.tar", "docker.tar"):
            root, definition = self.unpacked(self.input / name)
            self.assertEqual(definition["command"], ["/bin/serve"], name)
            self.assertTrue((root / "bin/serve").is_file(), name)

    def test_the_image_for_this_machine_among_several(self):
        ours = Layout(self.input / "image", [layer(PROGRAM)], Cmd=["serve"])
        other = Layout(self.input / "other", [layer(entry("other"))], Cmd=["other"], machine="arm64")
        shutil.copytree(other.path / "blobs", ours.path / "blobs", dirs_exist_ok=True)
        both = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [other.manifest, ours.manifest]})
        ours.index([ours.blob(both.encode(), INDEX)])
        root, _ = self.unpacked(ours.path)
        self.assertEqual([path.name for path in root.iterdir()], ["bin"])

    def test_layers_may_be_compressed_otherwise(self):
        def in_parts(content):
            return gzip.compress(content[:512]) + gzip.compress(content[512:])

        def zstd(content):
            return subprocess.run(["zstd", "-q"], input=content, check=True, capture_output=True).stdout

        files = layer(PROGRAM, entry("data", bytes(10000)))
        kind = "application/vnd.oci.image.layer.v1.tar"
        for name, compress, suffix in (("parts", in_parts, "+gzip"), ("zstd", zstd, "+zstd"), ("plain", bytes, "")):
            path = self.make([files], name, compress=compress, kind=kind + suffix, Cmd=["serve"])
            root, _ = self.unpacked(path)
            self.assertEqual((root / "data").stat().st_size, 10000, name)

    def test_the_same_image_is_made_once_and_gives_the_same_bytes(self):
        path = self.make([layer(PROGRAM)], Cmd=["serve"])
        status, said, _ = self.build(path, "--image")
        image = pathlib.Path(said.splitlines()[-1])
        self.assertEqual((status, image), (0, self.images / "image.erofs"))
        before = image.read_bytes()
        self.assertIn("up to date", self.build(path)[1])
        shutil.rmtree(self.place / "cache")
        self.assertNotIn("up to date", self.build(path)[1])
        # The time stamp of a directory that no layer names is the time of unpacking.
        self.assertEqual(len(image.read_bytes()), len(before))
