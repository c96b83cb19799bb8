"""Reads the headers of a tar archive, strictly.

What unpacks a layer is another program with another reader. Where archives can be read in two ways, the two would
see other files; so whatever is not written as every program writes it is refused, and nothing is skipped: each byte
up to the end of the stream is a header, the content of an entry, or padding.
"""

import re
from dataclasses import dataclass

BLOCK = 512
# What a header of more than one block may have, in bytes.
MAX_EXTENDED = 1 << 20

REGULAR = b"0\0"
# Of links, devices, directories and pipes there is a header only.
HEADER_ONLY = b"123456"
HARD_LINK = b"1"
# A header that says more of the entry that follows: of POSIX (for one entry, for all), GNU's name and link.
EXTENDED, GLOBAL, GNU_NAME, GNU_LINK = b"x", b"g", b"L", b"K"
ZEROS = bytes(BLOCK)


class NotCanonical(ValueError):
    """An archive that different programs may read differently, or none."""


@dataclass
class Entry:
    """A file in an archive."""

    name: str
    size: int
    # What a hard link is a link to, or None.
    hard_link: str | None


def entries(stream):
    """Yield what an archive holds; `stream` is read to its end."""
    more = {}
    while block := read(stream, BLOCK, may_end=True):
        if block == ZEROS:
            if more:
                raise NotCanonical("it ends after a header that belongs to another one")
            only_zeros(stream)
            return
        header = parse(block)
        kind = block[156:157]
        if kind in (EXTENDED, GLOBAL, GNU_NAME, GNU_LINK):
            if header.size > MAX_EXTENDED:
                raise NotCanonical(f"a header of more than {MAX_EXTENDED >> 20} MiB")
            content = read(stream, header.size)
            skip(stream, -header.size % BLOCK)
            extend(more, kind, content)
            continue
        entry = complete(header, kind, more)
        more = {}
        yield entry
        skip(stream, entry.size + -entry.size % BLOCK)
    if more:
        raise NotCanonical("it ends after a header that belongs to another one")


def parse(block):
    """Return what a header says by itself."""
    # Summed up with spaces in its own place.
    if number(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * 32:
        raise NotCanonical("a header with a wrong sum")
    name = text(block[:100])
    # Other forms have other things here.
    if block[257:263] == b"ustar\0" and (prefix := text(block[345:500])):
        name = f"{prefix}/{name}"
    return Entry(name, number(block[124:136]), text(block[157:257]))


def complete(header, kind, more):
    """Return an entry, with what the headers before its own say."""
    entry = Entry(more.get("path", header.name), int(more.get("size", header.size)), None)
    if kind in HEADER_ONLY or entry.name.endswith("/"):
        if entry.size or header.size:
            raise NotCanonical(f"{entry.name[:100]!r} has a size, and is no file")
    elif kind not in REGULAR:
        raise NotCanonical(f"an entry of the kind {kind!r}")
    if kind == HARD_LINK:
        entry.hard_link = more.get("linkpath", header.hard_link)
    return entry


def extend(more, kind, content):
    """Add what a header says of the entry after it."""
    if kind in (GNU_NAME, GNU_LINK):
        found = {"path" if kind == GNU_NAME else "linkpath": text(content)}
    else:
        found = records(content)
    if kind == GLOBAL:
        # Programs differ in whether it counts.
        if found:
            raise NotCanonical("a header that names or measures all entries")
        return
    if more.keys() & found.keys() or kind in more:
        raise NotCanonical("two headers for one entry")
    more |= found | {kind: True}


def records(content):
    """Return the records of POSIX's extended header that matter here."""
    found = {}
    while content:
        length = re.match(rb"([1-9][0-9]{0,7}) ", content)
        record = content[: int(length[1])] if length else b""
        key, equals, value = record[len(length[0]) if length else 0 : -1].partition(b"=")
        if not length or len(record) != int(length[1]) or not record.endswith(b"\n") or not equals:
            raise NotCanonical("an extended header that is none")
        content = content[len(record) :]
        key = key.decode("utf-8", "replace")
        if key.startswith("GNU.sparse."):
            raise NotCanonical("a file with holes")
        if key not in ("path", "linkpath", "size"):
            continue
        if key in found or not value or b"\0" in value or (key == "size" and not re.fullmatch(rb"[0-9]{1,18}", value)):
            raise NotCanonical(f"an extended header with a wrong {key}")
        found[key] = value.decode("utf-8", "surrogateescape")
    return found


def number(field):
    """Return the number in a field of a header."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    # One program cuts it at its first zero byte, another one passes over those that it begins with.
    digits = re.fullmatch(rb" *([0-7]*)[ \0]*", field)
    if not digits:
        raise NotCanonical(f"a number that is none: {field!r}")
    return int(digits[1] or b"0", 8)


def text(field):
    """Return the text in a field of a header."""
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def read(stream, length, may_end=False):
    """Return so many bytes; or none, if the stream may end here."""
    content = stream.read(length)
    if len(content) != length and (content or not may_end):
        raise NotCanonical("it is cut short")
    return content


def skip(stream, length):
    """Pass over so many bytes."""
    while length > 0:
        length -= len(read(stream, min(length, 1 << 20)))


def only_zeros(stream):
    """Read to the end, where there may be padding."""
    while content := stream.read(1 << 20):
        if content.count(0) != len(content):
            raise NotCanonical("something follows its end")
