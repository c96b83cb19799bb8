"""packaging/kubernetes/squeezy-node with directories as nodes, in which containerd is real.

They need root. $SQUEEZY_CONTAINERD is the containerd; Debian's, which is 1.6, if it is not set. Run them with:
python3 -m unittest discover packaging/tests
"""

import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = CHECKOUT / "packaging/kubernetes"
# Seconds.
TIMEOUT = 120
# Commands of the script from one that it is killed at to the next.
STRIDE = int(os.environ.get("SQUEEZY_STRIDE", "37"))
SHIM = "usr/local/bin/containerd-shim-squeezy-v2"
KERNEL = "usr/lib/squeezy/kernel/release/bzImage"
CONFIG = "etc/containerd/config.toml"
IMPORT = "etc/containerd/conf.d/squeezy.toml"
SNIPPET = "usr/share/squeezy/containerd.toml"
# A node's own programs, none of which is used but for these: whoever asks for a restart with a configuration that
# containerd cannot read is told so.
SYSTEMCTL = """#!/bin/sh
case "$*" in
"show --property=MainPID --value containerd") said=0; [ ! -e /process ] || read -r said </process; echo "$said"; exit ;;
"show --property=ExecStart --value containerd") read -r said </unit; echo "$said"; exit ;;
esac
[ ! -e /etc/containerd/config.toml ] || said=$(/usr/bin/containerd --config /etc/containerd/config.toml config dump 2>&1) || exit 1
[ ! -e /broken ] || exit 1
echo "$*" >>/restarts
"""
OTHERS = ["qemu-system-x86_64", "mkfs.erofs", "bwrap"]
# What systemctl says of a service that does not run: all of it is on one line.
UNIT = "{{ path=/usr/bin/containerd ; argv[]=/usr/bin/containerd{} ; ignore_errors=no ; start_time=[n/a] ; pid=0 }}\n"
# What Debian's package of containerd has.
DEBIAN = """version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd"
"""
CRI = '[plugins."io.containerd.grpc.v1.cri".containerd'
OTHER_RUNTIME = f'version = 2\n\n{CRI}.runtimes.other]\n  runtime_type = "io.containerd.runc.v2"'
BY_HAND = f'version = 2\n{CRI}.runtimes.squeezy]\nruntime_type = "io.containerd.squeezy.v2"\n'


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def containerd():
    """The path of the containerd to test with."""
    given = os.environ.get("SQUEEZY_CONTAINERD")
    if given:
        return pathlib.Path(given)
    found = subprocess.run(
        CHECKOUT / "host/shim/tests/get-containerd.sh", check=True, stdout=subprocess.PIPE, text=True
    )
    return pathlib.Path(found.stdout.strip()) / "containerd"


class NodeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("run this as root: it changes the root directory of containerd")
        directory = tempfile.TemporaryDirectory(prefix="squeezy-node.")
        cls.addClassCleanup(directory.cleanup)
        cls.place = pathlib.Path(directory.name)
        cls.programs = cls.place / "programs"
        cls.add_program(containerd(), "usr/bin/containerd")
        cls.add_program("/bin/busybox", "bin/sh")
        cls.add_program("/bin/busybox", "bin/sleep")
        cls.add_program("/usr/bin/flock", "usr/bin/flock")
        version = subprocess.run(
            ["chroot", cls.programs, "containerd", "--version"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        cls.second = "/containerd/v2 " in version

    @classmethod
    def add_program(cls, path, name):
        """Put a program into the programs of nodes, with the libraries that it needs."""
        target = cls.programs / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        said = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        for library in re.findall(r"(?:^|\s)(/\S+)", said):
            copy = cls.programs / library[1:]
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, copy)

    def setUp(self):
        self.image, self.host = self.place / "image", self.place / "host"
        for tree in self.image, self.host:
            shutil.rmtree(tree, ignore_errors=True)
        (self.image / "usr/bin").mkdir(parents=True)
        shutil.copy(PACKAGING / "squeezy-node", self.image / "usr/bin/squeezy-node")
        self.set_image("0.1.0")
        shutil.copytree(self.programs, self.host, copy_function=os.link)
        for name in OTHERS:
            write(self.host / "usr/bin" / name, "", 0o755)
        write(self.host / "usr/bin/systemctl", SYSTEMCTL, 0o755)
        write(self.host / "unit", UNIT.format(""))
        write(self.host / "usr/share/seabios/bios-256k.bin", "")

    def set_image(self, version, further=""):
        write(self.image / "usr/bin/containerd-shim-squeezy-v2", f"#!/bin/sh\necho shim {version}\n", 0o755)
        write(self.image / KERNEL, f"kernel {version}")
        write(self.image / "usr/lib/squeezy/initramfs.cpio", f"initramfs {version}")
        write(self.image / SNIPPET, (PACKAGING / "containerd.toml").read_text() + further)

    def command(self, action, *options):
        return ["/bin/busybox", "sh", *options, self.image / "usr/bin/squeezy-node", action, self.host]

    def run_node(self, action):
        """Install or remove; return the status and all that it said."""
        result = subprocess.run(
            self.command(action), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT
        )
        return result.returncode, result.stdout

    def install(self):
        status, said = self.run_node("install")
        self.assertEqual(status, 0, said)
        return said

    def remove(self):
        status, said = self.run_node("remove")
        self.assertEqual(status, 0, said)
        return said

    def refuses(self, action, sentence):
        """It fails with one line, and neither the configuration nor containerd has changed."""
        before = self.configuration()
        status, said = self.run_node(action)
        self.assertEqual((status, said.count("squeezy-node: ")), (1, 1), said)
        self.assertIn(sentence, said)
        self.assertEqual((self.configuration(), self.restarts()), (before, 0))

    def configure(self, text):
        write(self.host / CONFIG, text)

    def snapshot(self, below="."):
        """What is in the node besides its programs: types, modes and contents by path, and which file it is."""
        found = {}
        for path in sorted((self.host / below).rglob("*")):
            name = str(path.relative_to(self.host))
            known = path.lstat()
            if (
                known.st_nlink > 1
                and stat.S_ISREG(known.st_mode)
                or name in ("restarts", "run", "etc", "etc/containerd")
            ):
                continue
            content = path.read_bytes() if path.is_file() else None
            found[name] = (known.st_mode, content, known.st_ino)
        return found

    def without_inodes(self, below="."):
        return {name: known[:2] for name, known in self.snapshot(below).items()}

    def configuration(self):
        return self.without_inodes("etc/containerd")

    def restarts(self):
        log = self.host / "restarts"
        return log.read_text().count("restart containerd\n") if log.exists() else 0

    def dump(self):
        """What containerd makes of its configuration."""
        command = ["chroot", self.host, "/usr/bin/containerd", "--config", f"/{CONFIG}", "config", "dump"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def runtimes(self):
        """The names of those that containerd knows."""
        text = self.dump() if (self.host / CONFIG).exists() else self.default()
        return set(re.findall(r"\.containerd\.runtimes\.([^].]+)\]\n", text))

    def assert_known(self):
        section = re.search(r"\.runtimes\.squeezy\]\n(.*?)(\n\s*\[|\Z)", self.dump(), re.DOTALL)
        self.assertIsNotNone(section)
        self.assertRegex(section[1], r"""runtime_type = ["']io.containerd.squeezy.v2["']""")
        self.assertRegex(section[1], r"""pod_annotations = \[["']dev.squeezy/\*["']\]""")

    def default(self):
        command = ["chroot", self.host, "containerd", "config", "default"]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT).stdout

    def configurations(self):
        """Those that containerd may have, by name."""
        known = {
            "none": None,
            "the default": self.default(),
            "Debian's": DEBIAN,
            "no end of the last line": OTHER_RUNTIME,
            "empty lines at its end": DEBIAN + "\n\n",
            "little": "version = 2\n",
        }
        if self.second:
            known["without imports"] = 'version = 3\nimports = []\n[debug]\n  level = "info"\n'
            known["version 3"] = "version = 3\n"
        return known

    def test_what_is_installed_is_removed_whatever_the_configuration_is(self):
        for name, text in self.configurations().items():
            with self.subTest(name):
                self.setUp()
                if text is not None:
                    self.configure(text)
                before, known = self.without_inodes(), self.runtimes()
                said = self.install()
                self.assertIn("this node has shim 0.1.0", said)
                self.assert_known()
                self.assertEqual(self.runtimes(), known | {"squeezy"})
                self.assertEqual(self.restarts(), 1)
                self.assertEqual((self.host / SHIM).stat().st_mode & 0o777, 0o755)
                self.assertEqual((self.host / KERNEL).read_text(), "kernel 0.1.0")
                # Once more changes nothing.
                installed = self.snapshot()
                said = self.install()
                self.assertIn("containerd runs with this configuration", said)
                self.assertEqual((self.snapshot(), self.restarts()), (installed, 1))
                write(self.host / "var/lib/squeezy-shim/layers/some", "layer")
                write(self.host / "run/squeezy/requests/socket", "")
                self.remove()
                self.assertEqual((self.without_inodes(), self.restarts()), (self.without_directories(before), 2))
                self.remove()
                self.assertEqual((self.without_inodes(), self.restarts()), (self.without_directories(before), 2))

    def without_directories(self, before):
        """What a node had, with the directories of other people that are made on the way."""
        made = {}
        for name in "usr/local", "usr/local/bin", "usr/lib", "var", "var/lib":
            if (self.host / name).exists():
                made[name] = (0o40755, None)
        return {**before, **made}

    def test_containerd_2_reads_a_file_of_its_own_if_it_imports_it(self):
        if not self.second:
            self.skipTest("does not apply: containerd 1 replaces sections by those of its imports")
        text = self.default()
        self.configure(text)
        self.install()
        self.assertEqual((self.host / CONFIG).read_text(), text)
        self.assertEqual((self.host / IMPORT).read_text(), (PACKAGING / "containerd.toml").read_text())

    def test_whoever_has_written_the_runtime_by_hand_keeps_it(self):
        self.configure(BY_HAND)
        self.assertIn("has the runtime already", self.install())
        self.assertEqual(((self.host / CONFIG).read_text(), self.restarts()), (BY_HAND, 0))
        self.assertIn("left: the runtime", self.remove())
        self.assertEqual(((self.host / CONFIG).read_text(), self.restarts()), (BY_HAND, 0))

    def test_what_was_written_after_it_stays(self):
        text = "version = 2\nimports = []\n"
        self.configure(text)
        self.install()
        with (self.host / CONFIG).open("a") as file:
            file.write("[debug]\n")
        self.remove()
        self.assertEqual((self.host / CONFIG).read_text(), text + "[debug]\n")

    def test_owner_and_mode_of_the_configuration_stay(self):
        self.configure(OTHER_RUNTIME + "\n[debug]\n")
        (self.host / CONFIG).chmod(0o600)
        os.chown(self.host / CONFIG, 12, 34)
        for action in self.install, self.remove:
            action()
            known = (self.host / CONFIG).stat()
            self.assertEqual((known.st_mode & 0o777, known.st_uid, known.st_gid), (0o600, 12, 34))

    def test_a_newer_image_replaces_files_and_the_section(self):
        self.configure("version = 2\nimports = []\n")
        self.install()
        self.set_image("0.2.0")
        self.install()
        self.assertEqual((self.host / KERNEL).read_text(), "kernel 0.2.0")
        self.assertIn("0.2.0", (self.host / SHIM).read_text())
        self.assertEqual(self.restarts(), 1)
        self.set_image("0.2.0", "  privileged_without_host_devices = true\n")
        self.install()
        self.assertEqual(self.restarts(), 2)
        self.assertEqual(self.dump().count("privileged_without_host_devices = true"), 1)
        self.remove()
        self.assertEqual((self.host / CONFIG).read_text(), "version = 2\nimports = []\n")

    def test_a_configuration_that_cannot_be_read_stays_as_it_is(self):
        for text, sentence in [
            ("version = [\n", "containerd cannot read /etc/containerd/config.toml as it is: "),
            ('disabled_plugins = ["x"]\n', "is of version 1"),
            (f"version = 2\n{CRI}]\n  runtimes = {{}}\n", "containerd does not take the runtime in "),
        ]:
            with self.subTest(text):
                self.setUp()
                self.configure(text.replace("version = 2", "version = 2\nimports = []"))
                self.refuses("install", sentence)

    def test_a_link_is_not_replaced(self):
        write(self.host / "etc/containerd/generated.toml", DEBIAN)
        (self.host / CONFIG).symlink_to("generated.toml")
        self.refuses("install", "config.toml is a link")

    def test_it_says_what_a_node_lacks(self):
        self.configure(DEBIAN)
        for path in ["usr/share/seabios/bios-256k.bin", *(f"usr/bin/{name}" for name in OTHERS)]:
            (self.host / path).unlink()
        self.refuses("install", "apt install qemu-system-x86 seabios erofs-utils bubblewrap\n")
        self.assertFalse((self.host / SHIM).exists())

    def test_it_leaves_alone_what_debian_has_installed(self):
        self.configure(DEBIAN)
        write(self.host / "var/lib/dpkg/info/squeezy-guest.list", "")
        write(self.host / KERNEL, "Debian's")
        for action in "install", "remove":
            self.refuses(action, "Debian package squeezy-guest")
        write(self.host / "var/lib/dpkg/info/squeezy-shim.list", "")
        before = self.without_inodes()
        for action in self.install, self.remove:
            self.assertIn("Debian package squeezy-shim: nothing to do", action())
        self.assertEqual((self.without_inodes(), self.restarts()), (before, 0))

    def test_a_shim_that_does_not_run_is_not_told_of(self):
        self.configure(DEBIAN)
        write(
            self.image / "usr/bin/containerd-shim-squeezy-v2", "#!/bin/sh\necho GLIBC_2.36 not found\nexit 1\n", 0o755
        )
        self.refuses("install", "the shim does not run on this node: GLIBC_2.36 not found")
        self.assertFalse((self.host / SHIM).exists())

    def test_a_newer_shim_that_does_not_run_replaces_nothing(self):
        self.configure(DEBIAN)
        self.install()
        before = self.without_inodes()
        self.set_image("0.2.0")
        write(
            self.image / "usr/bin/containerd-shim-squeezy-v2", "#!/bin/sh\necho GLIBC_2.41 not found\nexit 1\n", 0o755
        )
        status, said = self.run_node("install")
        self.assertEqual(status, 1, said)
        self.assertEqual((self.without_inodes(), self.restarts()), (before, 1))

    def test_a_section_that_an_import_replaces_is_not_called_installed(self):
        if self.second:
            self.skipTest("does not apply: containerd 2 adds imports to sections")
        self.configure('version = 2\nimports = ["/etc/containerd/more/*.toml"]\n')
        self.install()
        write(self.host / "etc/containerd/more/other.toml", OTHER_RUNTIME + "\n")
        status, said = self.run_node("install")
        self.assertEqual(status, 1, said)
        self.assertIn("something that it imports replaces it", said)

    def test_a_file_of_somebody_else_is_no_import_of_ours(self):
        if not self.second:
            self.skipTest("does not apply: containerd 1 is not given imports")
        self.configure(self.default())
        write(self.host / IMPORT, BY_HAND)
        self.assertIn("has the runtime already", self.install())
        self.remove()
        self.assertEqual((self.host / IMPORT).read_text(), BY_HAND)

    def test_pods_that_run_are_not_left_without_their_program(self):
        self.configure(DEBIAN)
        self.install()
        write(self.host / "run/squeezy/shim/0123/servers/45-0.sock", "")
        before = self.without_inodes()
        status, said = self.run_node("remove")
        self.assertEqual((status, said.count("\n")), (1, 1), said)
        # It may be one without pods.
        self.assertIn("squeezy-node: VMs run on this node: delete their pods, and wait as long as idle_seconds", said)
        self.assertEqual(self.without_inodes(), before)

    def test_a_restart_that_fails_is_undone_and_tried_again(self):
        self.configure(DEBIAN)
        write(self.host / "broken", "")
        for _ in range(2):
            status, said = self.run_node("install")
            self.assertEqual(status, 1)
            self.assertIn("cannot restart containerd with the runtime, which was taken out again", said)
            self.assertEqual((self.host / CONFIG).read_text(), DEBIAN)
        (self.host / "broken").unlink()
        self.install()
        self.assertEqual(self.restarts(), 1)

    def test_a_restart_that_takes_long_is_not_undone(self):
        self.configure(DEBIAN)
        script = self.image / "usr/bin/squeezy-node"
        text = script.read_text()
        self.assertEqual(text.count("restart_seconds=600\n"), 1)
        script.write_text(text.replace("restart_seconds=600\n", "restart_seconds=1\n"))
        # At once: it may take containerd a second, too, to read its configuration.
        slow = 'esac\n[ ! -e /slow ] || { echo "$*" >>/restarts; sleep 5; exit; }\n'
        write(self.host / "usr/bin/systemctl", SYSTEMCTL.replace("esac\n", slow), 0o755)
        write(self.host / "slow", "")
        status, said = self.run_node("install")
        self.assertEqual(status, 1, said)
        self.assertIn("containerd has been restarting for 1 seconds", said)
        self.assert_known()
        self.assertEqual(self.restarts(), 1)
        # Whoever comes next does not know what has become of it.
        script.write_text(text)
        (self.host / "slow").unlink()
        self.install()
        self.assertEqual(self.restarts(), 2)

    def test_a_containerd_that_does_not_answer_at_once_is_waited_for(self):
        self.configure(DEBIAN)
        write(
            self.host / "usr/bin/ctr",
            "#!/bin/sh\n"
            "left=\n"
            "[ ! -e /starting ] || read -r left </starting\n"
            '[ -z "$left" ] || { echo "${left#x}" >/starting; exit 1; }\n'
            'echo "io.containerd.grpc.v1  cri  linux/amd64  ok"\n',
            0o755,
        )
        with (self.host / "usr/bin/systemctl").open("a") as systemctl:
            systemctl.write("echo xx >/starting\n")
        self.install()
        self.assertEqual((self.restarts(), (self.host / "starting").read_text()), (1, "\n"))

    def assert_section_goes_to(self, name):
        """The runtime is in that configuration of the node, and in no other one; and is taken out of it again."""
        self.configure(DEBIAN)
        write(self.host / name, OTHER_RUNTIME)
        self.assertIn(f"added the runtime to /{name}", self.install())
        self.assertEqual((self.host / CONFIG).read_text(), DEBIAN)
        self.assertIn("io.containerd.squeezy.v2", (self.host / name).read_text())
        self.remove()
        self.assertEqual((self.host / name).read_text(), OTHER_RUNTIME)

    def test_the_configuration_is_the_one_of_the_service(self):
        for arguments in "--config /etc/other.toml", "--log-level info -c=/etc/other.toml":
            with self.subTest(arguments):
                self.setUp()
                write(self.host / "unit", UNIT.format(f" {arguments}"))
                self.assert_section_goes_to("etc/other.toml")

    def test_what_runs_is_asked_before_its_unit_which_has_variables(self):
        write(self.host / "unit", UNIT.format(" $OPTIONS"))
        write(self.host / "process", "17\n")
        write(self.host / "proc/17/cmdline", "/usr/bin/containerd\0--config\0/etc/other.toml\0")
        self.assert_section_goes_to("etc/other.toml")

    def test_the_program_is_the_one_of_the_service(self):
        self.configure(DEBIAN)
        write(self.host / "usr/local/bin/containerd", "#!/bin/sh\necho another one; exit 1\n", 0o755)
        self.install()
        self.assert_known()

    def test_a_node_whose_containerd_is_no_service_is_left_alone(self):
        self.configure(DEBIAN)
        (self.host / "unit").write_text("")
        self.refuses("install", "this node has no service containerd")
        self.assertFalse((self.host / SHIM).exists())
        self.remove()

    def test_a_link_that_leads_out_of_the_node_is_not_followed(self):
        self.configure(DEBIAN)
        outside = self.place / "outside"
        outside.mkdir(exist_ok=True)
        (self.host / "usr/local").symlink_to(outside)
        self.refuses("install", "/usr/local on this node is a link that only leads there from its own root")
        self.assertEqual(list(outside.iterdir()), [])
        # One within it is.
        (self.host / "usr/local").unlink()
        (self.host / "var/usrlocal").mkdir(parents=True)
        (self.host / "usr/local").symlink_to("../var/usrlocal")
        self.install()
        self.assertTrue((self.host / "var/usrlocal/bin").is_dir())

    def test_one_after_the_other(self):
        self.configure(DEBIAN)
        self.install()
        with (self.host / "usr/bin/systemctl").open("a") as script:
            script.write(": >/restarting; while [ ! -e /go ]; do sleep 0.05; done\n")
        with subprocess.Popen(self.command("remove"), stdout=subprocess.PIPE, text=True) as removal:
            while not (self.host / "restarting").exists():
                time.sleep(0.01)
            with subprocess.Popen(self.command("install"), stdout=subprocess.PIPE, text=True) as installation:
                self.assertIn("waiting for another", installation.stdout.readline())
                (self.host / "go").touch()
                self.assertIn("nothing of the runtime any more", removal.communicate(timeout=TIMEOUT)[0])
                self.assertIn("this node has shim 0.1.0", installation.communicate(timeout=TIMEOUT)[0])
        self.assert_known()
        self.assertTrue((self.host / SHIM).exists())

    def test_a_containerd_that_serves_no_pods_with_it_is_restarted_without(self):
        for program in "/usr/bin/containerd", "containerd":
            with self.subTest(program):
                self.setUp()
                write(self.host / "process", "17\n")
                write(self.host / "proc/17/cmdline", f"{program}\0")
                self.configure(DEBIAN)
                write(self.host / "serves", "ok\n")
                write(
                    self.host / "usr/bin/ctr",
                    '#!/bin/sh\nread -r said </serves; echo "io.containerd.grpc.v1  cri  linux/amd64  $said"\n',
                    0o755,
                )
                with (self.host / "usr/bin/systemctl").open("a") as script:
                    script.write(
                        "said=ok\nwhile read -r line; do case $line in *squeezy*) said=error ;; esac; done"
                        " </etc/containerd/config.toml\necho $said >/serves\n"
                    )
                status, said = self.run_node("install")
                self.assertEqual(status, 1)
                self.assertIn("containerd serves no pods with the runtime, which was taken out again", said)
                self.assertEqual(((self.host / CONFIG).read_text(), self.restarts()), (DEBIAN, 2))
                # Where it served none before, that is no reason.
                write(self.host / "serves", "error\n")
                self.install()

    def kill_at(self, action, step):
        """Kill it when it has traced that many commands; return whether it had so many."""
        with subprocess.Popen(
            self.command(action, "-x"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        ) as process:
            for _, _line in zip(range(step), process.stderr):
                pass
            reached = process.poll() is None
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                reached = False
        return reached

    def test_it_may_be_killed_at_any_step(self):
        self.configure(self.default() if self.second else DEBIAN)
        self.install()
        installed = self.without_inodes()
        self.remove()
        removed = self.without_inodes()
        for action, other, expected in ("install", "remove", installed), ("remove", "install", removed):
            step, reached = 1, True
            while reached:
                self.assertEqual(self.run_node(other)[0], 0)
                (self.host / "restarts").unlink(missing_ok=True)
                before = self.configuration()
                reached = self.kill_at(action, step)
                self.dump()
                # What is written beside the configuration is not read.
                after = {name: known for name, known in self.configuration().items() if name.endswith(".toml")}
                pending = (self.host / "run/squeezy-restart-containerd").exists() or after != before
                status, said = self.run_node(action)
                self.assertEqual(status, 0, said)
                self.assertEqual(self.without_inodes(), expected, f"{action}, killed after {step}")
                # Whatever containerd runs without is told to it.
                self.assertGreaterEqual(self.restarts(), pending)
                step += STRIDE


if __name__ == "__main__":
    unittest.main()
