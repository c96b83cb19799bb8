"""Stores of certificates of Java."""

import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[1] / "keystore.py"
sys.path.insert(0, str(SCRIPT.parent))
import keystore  # noqa: E402


def entry(name, time, kind=keystore.CERTIFICATE):
    certificate = b"what " + name + b" is"
    return (
        struct.pack(">IH", kind, len(name))
        + name
        + struct.pack(">QH", time, 5)
        + b"X.509"
        + struct.pack(">I", len(certificate))
        + certificate
    )


def store(*entries, count=None):
    content = struct.pack(">III", keystore.MAGIC, keystore.VERSION, len(entries) if count is None else count)
    content += b"".join(entries)
    return content + keystore.digest(content)


class Keystore(unittest.TestCase):
    def test_the_same_certificates_are_the_same_bytes(self):
        first, second = (store(entry(b"one", time), entry(b"two", time + 1)) for time in (1700000000000, 1800000000000))
        self.assertNotEqual(first, second)
        made = keystore.without_times(first)
        self.assertEqual(made, keystore.without_times(second))
        self.assertEqual(made, store(entry(b"one", 0), entry(b"two", 0)))
        other = store(entry(b"one", 0), entry(b"three", 0))
        self.assertNotEqual(made, keystore.without_times(other))

    def test_what_nobody_expects_stays_as_it_is(self):
        whole = store(entry(b"one", 1))
        for wrong in (
            b"",
            b"not a store at all, and longer than one has to be",
            whole[:-1] + bytes([whole[-1] ^ 1]),
            store(entry(b"a key", 1, kind=1)),
            store(entry(b"one", 1), count=2),
            store(entry(b"one", 1), entry(b"two", 1), count=1),
        ):
            with self.subTest(wrong), tempfile.NamedTemporaryFile() as file:
                file.write(wrong)
                file.flush()
                done = subprocess.run([sys.executable, "-B", SCRIPT, file.name], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
                self.assertTrue(done.stderr.startswith(f"{file.name}: "), done.stderr)
                self.assertEqual(pathlib.Path(file.name).read_bytes(), wrong)


if __name__ == "__main__":
    unittest.main()
