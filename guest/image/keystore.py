"""Takes the times out of a store of certificates of Java, each of which has the one at which it was added.

usage: guest/image/keystore.py FILE    (/etc/ssl/certs/java/cacerts, which Debian's package makes when it is installed)

The same certificates are then the same bytes. The format is JKS: magic, version and number of entries, the entries, and
a digest of all that.
"""

import hashlib
import struct
import sys

MAGIC, VERSION = 0xFEEDFEED, 2
CERTIFICATE = 2
# Of the digest, in bytes.
LENGTH = 20


class Unknown(Exception):
    """The store is none, or has what nobody expects in it."""


def digest(content):
    """For the password that all distributions have."""
    return hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()


def without_times(store):
    content = bytearray(store[:-LENGTH])
    try:
        magic, version, count = struct.unpack_from(">III", content)
        if (magic, version) != (MAGIC, VERSION) or digest(content) != store[-LENGTH:]:
            raise Unknown("it is no store of Java's with the usual password")
        place = 12
        for _ in range(count):
            kind, name_length = struct.unpack_from(">IH", content, place)
            if kind != CERTIFICATE:
                raise Unknown("it has something else than certificates")
            place += 6 + name_length
            struct.pack_into(">Q", content, place, 0)
            place += 8
            (type_length,) = struct.unpack_from(">H", content, place)
            place += 2 + type_length
            (certificate_length,) = struct.unpack_from(">I", content, place)
            place += 4 + certificate_length
    except struct.error:
        raise Unknown("it is shorter than it says") from None
    if place != len(content):
        raise Unknown("it is not as long as it says")
    return bytes(content) + digest(content)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = sys.argv[1]
    with open(path, "rb") as file:
        store = file.read()
    try:
        store = without_times(store)
    except Unknown as reason:
        sys.exit(f"{path}: {reason}")
    with open(path, "wb") as file:
        file.write(store)


if __name__ == "__main__":
    main()
