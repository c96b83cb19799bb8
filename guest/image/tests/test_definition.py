"""What becomes of an image's config and a function.toml."""

import tomllib

from build_test import CHECKOUT, PROGRAM, BuildTest
from oci_image import entry, layer, link


class DefinitionTest(BuildTest):
    def test_what_the_image_says(self):
        _, definition = self.unpacked(
            self.make(
                [layer(PROGRAM)],
                Entrypoint=["serve", "--name"],
                Cmd=["a b", 'quoted "\u00e9"\n'],
                Env=["A=1=2", "PATH=/nowhere:/bin"],
                WorkingDir="/app/here",
                ExposedPorts={"9000/tcp": {}, "53/udp": {}},
            )
        )
        self.assertEqual(definition["name"], "image")
        self.assertEqual(definition["command"], ["/bin/serve", "--name", "a b", 'quoted "\u00e9"\n'])
        self.assertEqual(definition["environment"], {"A": "1=2", "PATH": "/nowhere:/bin", "HOME": "/"})
        self.assertEqual((definition["working_directory"], definition["port"]), ("/app/here", 9000))
        self.assertEqual((definition["memory_limit"], definition["run_timeout_seconds"]), ("256M", 60))
        self.assertNotIn("check", definition)

    def test_what_function_toml_says_goes_before(self):
        path = self.make([layer(PROGRAM)], Cmd=["serve"], Env=["A=1", "B=2"], ExposedPorts={"1/tcp": {}, "2/tcp": {}})
        self.assertEqual(self.build(path)[0], 1)
        (self.input / "function.toml").write_text(
            """
            name = "mine"
            port = 2
            keep_alive_seconds = 1.5
            [image]
            oci = "image"
            [environment]
            B = "3"
            [request]
            "a key" = [{ deep = true }, 1, 2.5]
            [check]
            field = "text"
            occurrences = [{ text = "a", count = 2 }]
            """
        )
        status, _, error = self.build(self.input)
        self.assertEqual((status, error), (0, ""))
        definition = tomllib.loads((self.images / "mine.toml").read_text())
        self.assertEqual((definition["command"], definition["port"]), (["/bin/serve"], 2))
        self.assertEqual(definition["keep_alive_seconds"], 1.5)
        self.assertEqual((definition["environment"]["A"], definition["environment"]["B"]), ("1", "3"))
        self.assertEqual(definition["request"], {"a key": [{"deep": True}, 1, 2.5]})
        self.assertEqual(definition["check"]["occurrences"], [{"text": "a", "count": 2}])
        self.assertNotIn("image", definition)

    def test_programs_are_found_as_a_process_inside_would(self):
        files = layer(
            entry("usr/bin/serve", mode=0o755),
            link("bin", "/usr/bin"),
            entry("app/local", mode=0o755),
            entry("usr/bin/plain", mode=0o644),
            # On the host it would be there.
            link("usr/bin/host", f"{CHECKOUT}/guest/image/build.sh"),
        )
        for number, (name, found) in enumerate(
            {"serve": "/bin/serve", "./local": "/app/local", "plain": None, "host": None}.items()
        ):
            path = self.make([files], f"image{number}", Cmd=[name], WorkingDir="/app", Env=["PATH=/bin"])
            if found:
                self.assertEqual(self.unpacked(path)[1]["command"], [found])
            else:
                status, _, error = self.build(path)
                self.assertEqual((status, len(error.splitlines())), (1, 1), error)
                self.assertIn("no such program", error)

    def test_an_image_without_a_command_says_what_to_do(self):
        status, _, error = self.build(self.make([layer(PROGRAM)]))
        self.assertEqual((status, len(error.splitlines())), (1, 1), error)
        self.assertIn("say command =", error)
        self.assertFalse(any(self.images.glob("*")))
