"""What is no image, or no whole one, or none for this machine."""

import gzip
import os
import signal
import subprocess

from build_test import PROGRAM, TIMEOUT, BuildTest
from oci_image import Layout, entry, layer


class UnusableImageTest(BuildTest):
    def test_layers_that_are_none(self):
        self.refused(self.make([b"no archive" * 1000], Cmd=["serve"]), "layer 1 is damaged")
        good = layer(PROGRAM, entry("data", bytes(1 << 20)))
        self.refused(self.make([good[: len(good) // 2]], "half", Cmd=["serve"]), "half: ")

    def test_a_layer_that_is_not_what_its_digest_says(self):
        layout = Layout(self.input / "image", [layer(PROGRAM)], Cmd=["serve"])
        blob = layout.file(layout.layers[0])
        blob.write_bytes(blob.read_bytes()[:-1] + b"\xff")
        self.refused(layout.path, "skopeo cannot use it", "sha256")
        blob.unlink()
        self.refused(layout.path, "skopeo cannot use it", "no such file")

    def test_archives_that_are_cut_short(self):
        layout = Layout(self.input / "image", [layer(PROGRAM, entry("data", os.urandom(1 << 20)))], Cmd=["serve"])
        whole = self.input / "whole.tar"
        layout.archive(whole)
        content = whole.read_bytes()
        # In a header, in the content of a file, and before anything else.
        for part in (len(content) * 2 // 3, 700, 300):
            cut = self.input / "cut.tar"
            cut.write_bytes(content[:part])
            self.refused(cut, "cut.tar: ")

    def test_files_that_are_something_else(self):
        empty = self.input / "empty"
        empty.write_bytes(b"")
        self.refused(empty, "not an OCI image")
        script = self.input / "script"
        script.write_text("#!/bin/sh\n" * 1000)
        self.refused(script, "not an OCI image: it is not a tar archive")
        zipped = self.input / "image.tar.gz"
        zipped.write_bytes(gzip.compress(b""))
        (self.input / "function.toml").write_text('name = "x"\n[image]\noci = "image.tar.gz"\n')
        self.refused(self.input, "uncompress it first")
        (self.input / "function.toml").unlink()
        other = self.input / "other"
        other.write_bytes(layer(PROGRAM))
        self.refused(other, "neither an oci-layout nor a manifest.json")
        self.refused(self.input, "neither a directory with a function.toml nor an OCI image")
        self.refused(self.input / "nothing", "neither a directory with a function.toml nor an OCI image")
        named = self.input / "My_Image.tar"
        named.write_bytes(b"")
        self.refused(named, "'My_Image'")

    def test_an_interrupted_build_leaves_nothing(self):
        files = layer(PROGRAM, *(entry(f"data/{number}", os.urandom(4096)) for number in range(10_000)))
        path = self.make([files], Cmd=["serve"])
        with subprocess.Popen(
            [self.place / "checkout/guest/image/build.sh", path],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ) as build:
            self.wait_until(lambda: any((self.place / "cache").rglob("*.new/root")))
            build.send_signal(signal.SIGTERM)
            self.assertEqual(build.wait(TIMEOUT), 130)
        # Its helpers end a moment later.
        self.wait_until(lambda: not any((self.place / "cache").rglob("*.new")))
        self.assert_nothing_left()

    def test_images_for_others(self):
        self.refused(self.make([layer(PROGRAM)], Cmd=["serve"], machine="arm64"), "for linux on arm64")
        self.refused(self.make([layer(PROGRAM)], "user", Cmd=["serve"], User="nobody"), "no user 'nobody'")

    def test_several_images(self):
        layout = Layout(self.input / "image", [layer(PROGRAM)], Cmd=["serve"])
        layout.index([layout.manifest, layout.manifest])
        self.refused(layout.path, "skopeo cannot use it", "more than one image")

    def test_a_config_of_another_form(self):
        self.refused(self.make([layer(PROGRAM)], Cmd=["serve"], WorkingDir="/bin/serve"), "cannot be a directory")
        for number, config in enumerate(({"Env": [1]}, {"Cmd": "serve"}, {"User": 5})):
            self.refused(self.make([layer(PROGRAM)], f"image{number}", **config), "build.sh: ")

    def test_an_archive_that_function_toml_names_and_nobody_has_made(self):
        (self.input / "function.toml").write_text('name = "x"\n[image]\noci = "image.tar"\n')
        self.refused(self.input, "image.tar is not there")
        (self.input / "function.toml").write_text('name = "x"\n[image]\noci = "function.toml"\napp = ["."]\n')
        self.refused(self.input, "leave packages and app out")
