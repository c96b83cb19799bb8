"""What a program notices of the squeezer: nothing."""
import os
import subprocess
import unittest

from conformance.client import Client
from conformance.namespaces import INSIDE, child, may_unshare
from conformance.program import default_path
from support import HERE, PRELOAD, PYTHON, VERSION, ProgramTest, ask_python, child_answer, client_answer, run_client

IDLE = "import sys\n" + HERE


class Loading(ProgramTest):
    def test_the_path_is_as_it_was(self):
        source = "import sys; print([entry for entry in sys.path if 'preload' in entry], 'sitecustomize' in sys.modules)"
        program = self.start(source)
        line = program.line()
        self.assertEqual(line, f"[] {ask_python(chr(34) + 'sitecustomize' + chr(34) + ' in sys.modules')}")
        self.assert_ends(program)

    def test_another_sitecustomize_is_not_shadowed(self):
        with open(os.path.join(self.folder, "sitecustomize.py"), "w") as file:
            file.write("import sys\nsys.other = __file__\n")
        for entries in ((PRELOAD, self.folder), (PRELOAD + "/", self.folder)):
            program = self.start(IDLE + "print(sys.other, sys.modules['sitecustomize'].__file__)",
                                 PYTHONPATH=os.pathsep.join(map(str, entries)))
            program.line()
            client_answer(program.pid)
            program.say()
            file = os.path.join(self.folder, "sitecustomize.py")
            self.assertEqual(program.line(), f"{file} {file}")
            self.assert_ends(program)

    def test_an_error_in_another_sitecustomize_is_seen(self):
        with open(os.path.join(self.folder, "sitecustomize.py"), "w") as file:
            file.write("import does_not_exist\n")
        program = self.start("print(1)", PYTHONPATH=os.pathsep.join((PRELOAD, str(self.folder))))
        self.assertEqual(program.line(), "1")
        self.assertIn("No module named 'does_not_exist'", self.errors_at_end(program))

    def test_in_an_installation_also_where_the_environment_is_ignored(self):
        environment = os.path.join(self.folder, "venv")
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", environment], check=True, timeout=60)
        python = os.path.join(environment, "bin", "python")
        packages = ask_python("__import__('sysconfig').get_path('purelib')", python)
        subprocess.run(["cp", "-r", f"{PRELOAD}/squeezer", f"{PRELOAD}/squeezer.pth", packages], check=True)
        program = self.start(IDLE, python=python, arguments=["-I"])
        program.line()
        with Client(self.path) as client:
            self.assertEqual(client.hello["pid"], program.pid)
            self.assert_answer(client.squeeze())
        program.say()
        self.assert_ends(program)

    def test_nothing_more_is_loaded_before_it_is_asked(self):
        loaded = "sorted({'json', 're', 'ctypes', 'threading'} & set(sys.modules))"
        program = self.start(f"import sys\nprint({loaded})")
        self.assertEqual(program.line(), ask_python(loaded))

    def test_an_older_python_is_refused_by_name(self):
        found = 0
        for version in ("3.8", "3.9", "3.10"):
            for folder in ("/usr/bin", *self.pyenv(version)):
                python = os.path.join(folder, f"python{version}")
                if not os.path.exists(python):
                    continue
                found += 1
                program = self.start(IDLE, python=python)
                program.line()
                with Client(self.path) as client:
                    refused = client.hello["refused"]
                    self.assertRegex(refused, rf"CPython {version}\.\d+ is not known: 3.11 and later are")
                    for _ in range(2):
                        answer = client.squeeze()
                        self.assertEqual(answer["error"], refused)
                        self.assertEqual(answer["before_bytes"], 0)
                self.assertIn(refused, run_client(program.pid).stderr)
                program.say()
                self.assert_ends(program)
                self.assertFalse(os.path.lexists(self.path))
        if not found:
            self.skipTest("does not apply: there is no older Python here")

    def test_a_much_older_python_runs_as_it_would(self):
        found = 0
        for version in ("2.7", "3.6", "3.7"):
            for folder in self.pyenv(version):
                python = os.path.join(folder, f"python{version}")
                if os.path.exists(python):
                    found += 1
                    program = self.start("print(42)", python=python)
                    self.assertEqual(program.line(), "42")
                    self.assert_ends(program)
        if not found:
            self.skipTest("does not apply: there is no much older Python here")

    @staticmethod
    def pyenv(version):
        versions = os.path.join(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")), "versions")
        if not os.path.isdir(versions):
            return []
        return [os.path.join(versions, name, "bin") for name in sorted(os.listdir(versions))
                if name.startswith(version + ".")]


class Threads(ProgramTest):
    def test_signals_are_for_the_program(self):
        # With all its own threads holding SIGTERM back, it would end the process if ours did not.
        program = self.start("""
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.kill(os.getpid(), signal.SIGTERM)
print(signal.sigwait({signal.SIGTERM}) == signal.SIGTERM, flush=True)
print(signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGTERM}, flush=True)
""" + IDLE)
        self.assertEqual(program.line(), "True")
        self.assertEqual(program.line(), "True")
        program.line()
        client_answer(program.pid)
        program.say()
        self.assert_ends(program)

    def test_it_is_not_among_the_threads_of_the_program(self):
        program = self.start("import sys, threading\nprint(threading.active_count(), threading.enumerate()[0].name)\n")
        self.assertEqual(program.line(), "1 MainThread")
        self.assert_ends(program)

    def test_a_program_that_waits_in_the_system_is_served(self):
        for waits in ("__import__('time').sleep(600)", "__import__('socket').create_server(('127.0.0.1', 0)).accept()",
                      "__import__('threading').Lock().acquire() and __import__('select').select([], [], [])"):
            program = self.start(f"print('here', flush=True)\n{waits}\n")
            program.line()
            client_answer(program.pid)
            program.kill()

    def test_it_ends_with_the_program_also_while_it_is_asked(self):
        for _ in range(20):
            program = self.start("import gc\ngc.disable()\nkept = [[[]] for _ in range(100_000)]\nprint('here', flush=True)\n")
            program.line()
            try:
                with Client(self.path) as client:
                    self.assertIn((client.hello or {}).get("pid"), (program.pid, None))
                    client.send(b'{"squeeze":{}}\n' * 3)
                    self.assert_ends(program)
            except (FileNotFoundError, ConnectionRefusedError):
                self.assert_ends(program)
            self.assertFalse(os.path.lexists(self.path))

    @unittest.skipIf(os.geteuid(), "a limit of processes needs a user who has no other, and root to become it")
    def test_where_there_may_be_no_more_threads_there_is_no_squeezer(self):
        os.chmod(self.folder, 0o777)
        user = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "prlimit", "--nproc=1"]
        readable = subprocess.run([*user, PYTHON, "-c", f"open({PRELOAD!r} + '/sitecustomize.py')"], capture_output=True)
        if readable.returncode != 0:
            self.skipTest("does not apply: another user can read neither this Python nor this folder")
        program = self.start("print('here', flush=True)", wrapper=user)
        self.assertEqual(program.line(), "here")
        self.assertIn("can't start new thread; this process runs without a squeezer", self.errors_at_end(program))
        self.assertFalse(os.path.lexists(self.path))

    def test_interpreters_within_the_process(self):
        """The first one serves; that another one loads the squeezer too changes nothing."""
        program = self.start("""
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
other = interpreters.create()
interpreters.run_string(other, "import squeezer; squeezer.start()")
""" + HERE + "interpreters.destroy(other)\n")
        program.line()
        client_answer(program.pid)
        self.assertFalse(os.path.lexists(default_path(program.pid)))
        program.say()
        self.assert_ends(program)


@unittest.skipUnless(may_unshare(), "this user may not make namespaces")
class Namespaces(ProgramTest):
    def test_a_process_with_pids_and_a_root_of_its_own(self):
        """The client finds it from outside, by the number that the process has there."""
        program = self.start("import sys\n" + HERE, wrapper=INSIDE, SQUEEZER_SOCKET=None)
        program.line()
        inside = child(program.pid)
        report = client_answer(inside)
        self.assertEqual((report["pid"], report["hello"]["pid"]), (inside, 1))
        self.assertFalse(os.path.lexists(default_path(1)))
        program.say()
        self.assert_ends(program)


@unittest.skipIf(VERSION < (3, 14), "does not apply: a Python that runs can be told to run a script since 3.14")
class Attaching(ProgramTest):
    def test_a_process_that_was_started_without_it(self):
        script = os.path.join(self.folder, "attach.py")
        with open(script, "w") as file:
            file.write(f"import sys\nsys.path.insert(0, {PRELOAD!r})\n"
                       "import squeezer\nsys.path.pop(0)\nsqueezer.start()\n")
        program = self.start("import time\nprint('here', flush=True)\nwhile True:\n    time.sleep(0.01)\n", PYTHONPATH="")
        program.line()
        subprocess.run([PYTHON, "-c", f"import sys; sys.remote_exec({program.pid}, {script!r})"], check=True)
        self.assertEqual(child_answer(program.pid)["hello"]["pid"], program.pid)
