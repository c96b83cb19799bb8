"""Archives that two programs could read in two ways."""

import io
import pathlib
import sys
import tarfile
import unittest

from oci_image import directory, entry, hard_link, layer, link

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "oci"))
import tarball  # noqa: E402


def header(name=b"file", size=b"00000000000\0", kind=b"0", magic=b"ustar\x0000"):
    """Return a header with a right sum, whatever else is wrong with it."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = size
    block[156:157] = kind
    block[257:265] = magic
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(content):
    return content + bytes(-len(content) % 512)


def pax(*records):
    content = b"".join(records)
    return header(b"x", b"%011o\0" % len(content), b"x") + padded(content)


END = bytes(1024)


class TarballTest(unittest.TestCase):
    def read(self, content):
        return [(one.name, one.size, one.hard_link) for one in tarball.entries(io.BytesIO(content))]

    def refused(self, content, reason):
        with self.assertRaisesRegex(tarball.NotCanonical, reason):
            self.read(content)

    def test_what_programs_write(self):
        long = "d/" * 200 + "f"
        files = [entry("a", b"x" * 700), directory("d/"), link("l", "a"), hard_link("h", "a"), entry(long, b"y")]
        wanted = [("a", 700, None), ("d", 0, None), ("l", 0, None), ("h", 0, "a"), (long, 1, None)]
        self.assertEqual([(name.rstrip("/"), *rest) for name, *rest in self.read(layer(*files))], wanted)
        for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
                for one, content in [entry("é" * 90, b"1"), entry("n" * 300, b"2", mtime=1.5, uid=1 << 30)]:
                    archive.addfile(one, io.BytesIO(content))
            self.assertEqual([size for _, size, _ in self.read(buffer.getvalue())], [1, 1])
        self.assertEqual(self.read(b""), [])
        self.assertEqual(self.read(header()), [("file", 0, None)])

    def test_sizes_that_are_read_in_two_ways(self):
        # One reader takes nothing for the size, the other one 0o7777 bytes of content that look like an archive.
        self.refused(header(size=b"\x0000000007777") + END, "a number that is none")
        for size in (b" 1 2        ", b"-0000000001\0", b"1\x002\0\0\0\0\0\0\0\0\0", b"0000000008\0\0", b"\xff" * 12):
            self.refused(header(size=size) + END, "a number that is none")
        self.assertEqual(self.read(header(size=bytes(12)) + END), [("file", 0, None)])
        wide = b"\x80" + (3).to_bytes(11, "big")
        self.assertEqual(self.read(header(size=wide) + padded(b"abc") + END), [("file", 3, None)])

    def test_what_follows_the_end(self):
        self.refused(header() + END + header(b"hidden"), "something follows its end")
        self.refused(header() + bytes(512) + header(b"hidden"), "something follows its end")
        self.refused(header() + b"no header".ljust(512) + END, "a number that is none|a wrong sum")
        self.refused(header(size=b"00000001000\0") + bytes(100), "cut short")
        self.refused(header() + bytes(100), "cut short")
        self.assertEqual(len(self.read(header() + END + bytes(9000))), 1)

    def test_wrong_sums(self):
        block = bytearray(header())
        block[0] ^= 1
        self.refused(bytes(block), "a wrong sum")

    def test_bodies_where_there_are_none(self):
        for kind in b"123456":
            block = header(size=b"00000001000\0", kind=bytes([kind]))
            self.refused(block + bytes(512) + END, "is no file")
        self.refused(header(b"d/", b"00000001000\0") + bytes(512) + END, "is no file")
        self.refused(pax(b"12 size=512\n") + header(kind=b"5") + END, "is no file")
        for kind in b"S7DMVN":
            self.refused(header(kind=bytes([kind])) + END, "of the kind")

    def test_extended_headers(self):
        self.assertEqual(self.read(pax(b"10 size=3\n") + header() + padded(b"abc")), [("file", 3, None)])
        self.refused(pax(b"10 size=3\n") + END, "belongs to another")
        self.refused(pax(b"10 size=3\n"), "belongs to another")
        self.refused(pax(b"10 size=3\n") * 2 + header(), "two headers")
        self.refused(pax(b"9 path=a\n") + header(b"x", b"00000000002\0", b"L") + padded(b"b\0") + header(), "two headers")
        for records in (
            [b"10 size=3\n", b"10 size=4\n"],
            [b"11 size=+3\n"],
            [b"9 size= \n"],
            [b"8 size=\n"],
            [b"10 path=\x00\n"],
        ):
            self.refused(pax(*records) + header(), "a wrong (size|path)")
        for records in ([b"99 size=3\n"], [b"10 size=3 "], [b"size=3\n"], [b"05 a=\n"], [b"4 a\n"]):
            self.refused(pax(*records) + header(), "that is none")
        self.refused(pax(b"22 GNU.sparse.major=1\n") + header(), "with holes")
        content = b"10 size=3\n"
        for_all = header(b"g", b"%011o\0" % len(content), b"g") + padded(content)
        self.refused(for_all + header(), "all entries")
        comment = b"13 comment=x\n"
        for_all = header(b"g", b"%011o\0" % len(comment), b"g") + padded(comment)
        self.assertEqual(self.read(for_all + header()), [("file", 0, None)])
        self.refused(header(b"x", b"77777777777\0", b"x"), "more than 1 MiB")


if __name__ == "__main__":
    unittest.main()
