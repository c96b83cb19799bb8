#!/usr/bin/env python3
"""Prints the bill of materials of a release, in CycloneDX 1.5: what the programs, the guest and the images are made of.

usage: packaging/bill_of_materials.py VERSION [ARCHIVE...]

ARCHIVEs are the OCI images of the release.
The same checkout on the same machine gives the same text. SOURCE_DATE_EPOCH is its time.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tomllib
import urllib.parse
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The programs that are released, and the platforms that they are built for.
PROGRAMS = {
    "x86_64-unknown-linux-gnu": ["squeezy", "squeezy-bench", "squeezy-shim"],
    "x86_64-unknown-linux-musl": ["squeezy-agent", "squeezy-workloads", "squeezy-runtime", "squeezy-requests"],
}

# dpkg's list of what is installed.
STATUS = "var/lib/dpkg/status"


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def crates():
    """The crates of other people in our programs, by name and version."""
    found = {}
    for platform, programs in PROGRAMS.items():
        command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={platform}"]
        metadata = json.loads(output(*command))
        packages = {package["id"]: package for package in metadata["packages"]}
        nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        waiting = [key for key, package in packages.items() if package["name"] in programs]
        seen = set(waiting)
        while waiting:
            for dependency in nodes[waiting.pop()]["deps"]:
                # Those for tests alone are not in the programs.
                kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
                if kinds & {None, "build"} and dependency["pkg"] not in seen:
                    seen.add(dependency["pkg"])
                    waiting.append(dependency["pkg"])
        for key in seen:
            package = packages[key]
            if package["source"] is not None:
                found[package["name"], package["version"]] = package
    return [found[key] for key in sorted(found)]


def crate(package, checksums):
    name, version = package["name"], package["version"]
    checksum = checksums.get((name, version))
    component = {
        "type": "library",
        "bom-ref": f"pkg:cargo/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
    }
    if package.get("license"):
        component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum:
        component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return component


def installed(archive):
    """Debian's packages in an OCI image: names and versions."""
    with tarfile.open(archive) as layout:

        def blob(descriptor):
            return layout.extractfile("./blobs/sha256/" + descriptor["digest"].removeprefix("sha256:"))

        index = json.load(layout.extractfile("./index.json"))
        manifest = json.load(blob(index["manifests"][0]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=blob(layer)) as files:
                status = next((file for file in files if file.name.removeprefix("./") == STATUS), None)
                if status is not None:
                    yield from known(files.extractfile(status).read().decode())


def known(status):
    """The packages that dpkg has installed by this list of its, other than ours."""
    for paragraph in status.split("\n\n"):
        lines = [line.partition(": ") for line in paragraph.splitlines() if not line.startswith(" ")]
        fields = {name: value for name, _, value in lines}
        if fields.get("Status") == "install ok installed":
            package = fields["Package"]
            # A version of its own may follow.
            if fields.get("Source", package).split()[0] != "squeezy":
                yield package, fields["Version"]


def packages(archives):
    """Debian's packages in the images of runtimes and of the release, each once."""
    found = {package for archive in archives for package in installed(archive)}
    for definition in sorted((ROOT / "runtimes").glob("*/function.toml")):
        for line in output("packaging/contents.sh", definition.parent.name).splitlines():
            package, version = line.split()
            found.add((package, version))
    for package, version in sorted(found):
        reference = f"pkg:deb/debian/{package}@{urllib.parse.quote(version, safe='~')}"
        yield {"type": "library", "bom-ref": reference, "name": package, "version": version, "purl": reference}


def elsewhere():
    """What is in the images of runtimes, and comes from elsewhere."""
    nodes = (ROOT / "squeezers/v8/tests/nodes.txt").read_text().splitlines()
    node = next(line.split() for line in nodes if line.startswith("20 "))
    yield other("pypi", node[1], node[2], "MIT", "Node.js, in the runtime for it")
    java = (ROOT / "functions/java/build.sh").read_text()
    gson = re.search(r"^gson_version=(\S+)$", java, re.MULTILINE)[1]
    yield other("maven", "com.google.code.gson/gson", gson, "Apache-2.0", "in the runtime for Java")


def other(registry, name, version, licence, description):
    reference = f"pkg:{registry}/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "description": description,
        "licenses": [{"license": {"id": licence}}],
        "purl": reference,
    }


def locked_checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]}


def debian(package, version, licence, description):
    reference = f"pkg:deb/debian/{package}@{urllib.parse.quote(version, safe='~')}"
    return {
        "type": "operating-system" if package.startswith("linux") else "application",
        "bom-ref": reference,
        "name": package,
        "version": version,
        "description": description,
        "licenses": [{"license": {"id": licence}}],
        "purl": reference,
    }


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    version, *archives = sys.argv[1:]
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    checksums = locked_checksums()
    linux = pathlib.Path(output("guest/kernel/build.sh", "--source").strip().splitlines()[-1]).name
    busybox = output("dpkg-query", "-W", "-f", "${Version}", "busybox-static")
    components = [
        debian("linux-source-6.12", linux, "GPL-2.0-only", "the guest's kernel, with guest/kernel/src and hooks"),
        debian("busybox-static", busybox, "GPL-2.0-only", "the shell in the guest's initramfs"),
        *(crate(package, checksums) for package in crates()),
        *packages(archives),
        *elsewhere(),
    ]
    time = datetime.datetime.fromtimestamp(epoch, datetime.UTC)
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "application",
                "bom-ref": f"pkg:generic/squeezy@{version}",
                "name": "squeezy",
                "version": version,
                "licenses": [{"expression": "(Apache-2.0 OR MIT) AND GPL-2.0-only"}],
            },
        },
        "components": components,
    }
    content = json.dumps(bill, sort_keys=True).encode()
    bill["serialNumber"] = f"urn:uuid:{uuid.UUID(bytes=hashlib.sha256(content).digest()[:16], version=4)}"
    print(json.dumps(bill, indent=2))


if __name__ == "__main__":
    main()
