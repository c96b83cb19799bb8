"""Makes small OCI images, good and bad, byte by byte."""

import gzip
import hashlib
import io
import json
import pathlib
import tarfile

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def entry(name, content=b"", kind=tarfile.REGTYPE, mode=0o644, **fields):
    """Return one entry of a layer: its header and its content."""
    header = tarfile.TarInfo(name)
    header.type, header.mode, header.size = kind, mode, len(content)
    for field, value in fields.items():
        setattr(header, field, value)
    return header, content


def directory(name, mode=0o755, **fields):
    return entry(name, kind=tarfile.DIRTYPE, mode=mode, **fields)


def link(name, target):
    return entry(name, kind=tarfile.SYMTYPE, mode=0o777, linkname=target)


def hard_link(name, target):
    return entry(name, kind=tarfile.LNKTYPE, linkname=target)


def layer(*entries):
    """Return a layer, a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for header, content in entries:
            archive.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


def ambiguous(content):
    """Return a layer whose first entry has its size after a zero byte, where some readers see it and others do not."""
    block = bytearray(content[:512])
    block[124:136] = b"\0%011o" % int(block[124:135], 8)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + content[512:]


class Layout:
    """An OCI layout directory with one image."""

    def __init__(self, path, layers, compress=gzip.compress, kind=LAYER, machine="amd64", **config):
        self.path = pathlib.Path(path)
        (self.path / "blobs/sha256").mkdir(parents=True)
        self.layers = [self.blob(compress(content), kind) for content in layers]
        digests = ["sha256:" + hashlib.sha256(content).hexdigest() for content in layers]
        image = {"os": "linux", "architecture": machine, "config": config}
        image["rootfs"] = {"type": "layers", "diff_ids": digests}
        description = {"schemaVersion": 2, "mediaType": MANIFEST, "layers": self.layers}
        description["config"] = self.blob(json.dumps(image).encode(), CONFIG)
        self.manifest = self.blob(json.dumps(description).encode(), MANIFEST)
        self.manifest["platform"] = {"os": "linux", "architecture": machine}
        self.index([self.manifest])
        (self.path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def index(self, descriptors):
        """Say what images it has."""
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": descriptors}))

    def blob(self, content, kind):
        """Store content; return its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        (self.path / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    def file(self, descriptor):
        """Return the path of a blob."""
        return self.path / "blobs/sha256" / descriptor["digest"].removeprefix("sha256:")

    def archive(self, path):
        """Write it as an OCI archive."""
        with tarfile.open(path, "w") as archive:
            archive.add(self.path, ".")
