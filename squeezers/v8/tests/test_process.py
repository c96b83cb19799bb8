"""What the program notices of its squeezer: nothing."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import urllib.request

from conformance.client import Client
from conformance.program import PATIENCE_SECONDS, default_path, listens, wait_until
from matrix import NODES, PRELOADS, for_each_node, node
from program import PROGRAMS, Program, environment, run

# Only with --stress.
UNKNOWN_NODE = os.environ.get("V8_UNKNOWN_NODE")


@for_each_node
class Process(unittest.TestCase):
    def each_end(self, node, route):
        """A process that has nothing to do ends at once, also while a client is there."""
        for code in ("", "process.exitCode = 5", "Promise.resolve().then(() => console.log(1))"):
            with self.subTest(code=code):
                plain = subprocess.run([node, "-e", code], env=environment(), capture_output=True, text=True, timeout=60)
                ended = run(node, "-e", code, route=route)
                self.assertEqual((ended.returncode, ended.stdout, ended.stderr),
                                 (plain.returncode, plain.stdout, plain.stderr))
        with Program(node, route) as program, program.client() as client:
            self.assertIsNotNone(client.hello)
            client.send(b'{"recl')
            self.assertEqual(program.end(), (0, ""))
            self.assertEqual(client.line(), b"")

    def each_module(self, node, route):
        ended = run(node, PROGRAMS / "entry.mjs", route=route)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "entry.mjs\n", ""))

    def each_options(self, node, route):
        """By NODE_OPTIONS, which the processes it starts inherit."""
        code = "require('child_process').execFileSync(process.execPath, ['-p', '1 + 1'], { stdio: 'inherit' })"
        ended = subprocess.run([node, "-e", code], capture_output=True, text=True, timeout=60,
                               env=environment(NODE_OPTIONS=f'--require "{PRELOADS[route]}"'))
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "2\n", ""))

    def each_look(self, node, route):
        seen = subprocess.run([node, PROGRAMS / "look.js"], env=environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        # At the path of its own may lie what an earlier process of its number left: it would be asked whether it lives,
        # and a net.Socket that is destroyed opens process.stderr.
        with tempfile.TemporaryDirectory(prefix="v8-") as directory:
            with_squeezer = run(node, PROGRAMS / "look.js", route=route, SQUEEZER_SOCKET=f"{directory}/squeezer.sock")
        self.assertEqual(json.loads(with_squeezer.stdout), json.loads(seen.stdout))
        self.assertEqual(with_squeezer.stderr, seen.stderr)

    def each_twice(self, node, route):
        """The same preload twice is one squeezer; two copies of it are two, and in nobody's way."""
        with Program(node, route, options=["--require", PRELOADS[route]]) as program:
            program.squeeze()
            self.assertFalse(default_path(program.pid).exists())
            self.assertEqual(program.end(), (0, ""))
        with tempfile.TemporaryDirectory() as directory:
            copy = shutil.copytree(pathlib.Path(PRELOADS[route]).parent, f"{directory}/copy")
            with Program(node, route, options=["--require", f"{copy}/preload.js"]) as program:
                own = default_path(program.pid)
                wait_until(lambda: listens(own), "there is no second squeezer")
                program.squeeze()
                with Client(own) as client:
                    self.assertEqual(client.hello["pid"], program.pid)
                    self.assertIsNone(client.squeeze()["error"])
                self.assertEqual(program.end(), (0, ""))
            self.assertFalse(own.exists())

    def each_family(self, node, route):
        """Each process of a program has one squeezer, at a path of its own where it has inherited one; threads have none."""
        with Program(node, route, name="family.js") as program:
            members = program.answer()
            pids = [member[role] for member in members for role in ("child", "worker") if role in member]
            self.assertEqual(len(pids), 3)
            for pid in pids:
                wait_until(lambda pid=pid: listens(default_path(pid)), "there is no squeezer")
            program.squeeze()
            for pid in pids:
                with Client(default_path(pid)) as client:
                    self.assertEqual(client.hello["pid"], pid)
                    self.assertIsNone(client.squeeze(level="all")["error"])
            port = next(member["port"] for member in members if "port" in member)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as response:
                self.assertIn(int(response.read()), pids)
            self.assertFalse(default_path(program.pid).exists())
            status, complaints = program.end()
            self.assertEqual((status, complaints), (0, ""))
            # The child was ended by a signal.
            for pid in pids:
                with contextlib.suppress(FileNotFoundError):
                    default_path(pid).unlink()


class Route(unittest.TestCase):
    """Which way is taken where one of them is not there."""

    def collector(self, version, preload, *options):
        with Program(node(version), preload=preload, options=options) as program, program.client() as client:
            collector = client.hello["collector"]
            self.assertIsNone(client.squeeze()["error"])
        return collector

    def test_routes(self):
        with tempfile.TemporaryDirectory() as directory:
            broken = pathlib.Path(directory) / "broken"
            shutil.copytree(pathlib.Path(PRELOADS["addon"]).parent, broken)
            (broken / "squeeze.node").write_text("no library")
            for version in NODES:
                with self.subTest(version=version):
                    self.assertEqual(self.collector(version, PRELOADS["addon"]), "addon")
                    self.assertEqual(self.collector(version, PRELOADS["addon"], "--no-addons"), "inspector")
                    self.assertEqual(self.collector(version, PRELOADS["inspector"]), "inspector")
                    self.assertEqual(self.collector(version, broken / "preload.js"), "inspector")

    def test_permissions(self):
        """A program that may not write has no socket, and hears of it once."""
        for version in NODES:
            if version.startswith("18"):
                continue
            with self.subTest(version=version):
                ended = subprocess.run([node(version), "--experimental-permission", "--allow-fs-read=*", "--no-warnings",
                                        "--require", PRELOADS["addon"], "-p", "'done'"], env=environment(),
                                       capture_output=True, text=True, timeout=PATIENCE_SECONDS)
                self.assertEqual((ended.returncode, ended.stdout), (0, "done\n"))
                self.assertRegex(ended.stderr, r"\Asqueezer: no socket at [^\n]*\n\Z")

    @unittest.skipUnless(UNKNOWN_NODE, "does not apply: only with --stress")
    def test_unknown(self):
        """A version that nobody has tried is refused by name."""
        with Program(UNKNOWN_NODE) as program, program.client() as client:
            hello = client.hello
            self.assertRegex(hello["refused"], r"\ANode 24\.[0-9.]+ is not known: 18, 20, 22 are\Z")
            self.assertIsNone(hello["collector"])
            for _ in range(2):
                answer = client.squeeze()
                self.assertEqual(answer.pop("error"), hello["refused"])
                self.assertEqual(set(answer.values()), {0})
