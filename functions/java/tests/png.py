"""PNG pictures of 8-bit red, green and blue, as lists of rows of (red, green, blue)."""

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def header(width, height):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))


def encode(rows):
    data = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in rows)
    return SIGNATURE + header(len(rows[0]), len(rows)) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def paeth(left, up, corner):
    guess = left + up - corner
    return min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]


def unfilter(kind, line, above):
    """Undo a row's filter, in place."""
    for place, value in enumerate(line):
        left = line[place - 3] if place >= 3 else 0
        up = above[place]
        corner = above[place - 3] if place >= 3 else 0
        line[place] = (value + (0, left, up, (left + up) // 2, paeth(left, up, corner))[kind]) & 255


def decode(picture):
    assert picture[:8] == SIGNATURE
    place, data = 8, b""
    while place < len(picture):
        length, kind = struct.unpack(">I4s", picture[place:place + 8])
        content = picture[place + 8:place + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", content)
            assert (depth, colour, interlaced) == (8, 2, 0)
        elif kind == b"IDAT":
            data += content
        place += 12 + length
    data = zlib.decompress(data)
    rows, above = [], bytearray(3 * width)
    for start in range(0, len(data), 3 * width + 1):
        line = bytearray(data[start + 1:start + 1 + 3 * width])
        unfilter(data[start], line, above)
        rows.append([tuple(line[x:x + 3]) for x in range(0, 3 * width, 3)])
        above = line
    assert len(rows) == height
    return rows
