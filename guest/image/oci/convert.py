"""Makes an image of a function from an OCI layout, for the daemon, which runs this in a sandbox.

usage: convert.py NAME DESCRIPTION

The layout is `layout` in the working directory, where image.erofs and image.toml are made. All files of the
image belong to user 0, who every instance is. Standard output says what happens, a line each:

    step WORDS      what begins
    takes BYTES     what the files of the image are going to take on the disk

Nobody vouches for an image. Whatever reads it runs in the same sandbox: without a network, with nothing but the
working directory to write to, and with limits of time, memory and the size of a file that the daemon has set.
"""

import os
import subprocess
import sys

import definition
import layers
import rootfs
import unpack
from problem import Problem, run

ROOT = "root"


def step(words):
    """Say what begins."""
    print(f"step {words}", flush=True)


def tool(*command):
    """Run a tool; what it says in the end is why it fails."""
    result = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode != 0:
        raise unpack.said(command, result, "the image")


def convert(name, description):
    """Fill the working directory."""
    step("reading")
    # umoci knows gzip only.
    copy = ["skopeo", "copy", "--quiet", "--insecure-policy", "--tmpdir", ".", "--dest-compress-format", "gzip"]
    tool(*copy, "oci:layout:image", "oci:gzip:image")
    unpack.remove("layout")
    image, blobs = unpack.read_image("gzip")
    budget = layers.Budget()
    step("checking")
    unpack.check_layers(blobs, budget)
    print(f"takes {budget.bytes}", flush=True)
    step("unpacking")
    tool("umoci", "raw", "unpack", "--rootless", "--image", "gzip:image", ROOT)
    unpack.remove("gzip")
    config = image.get("config") or {}
    user = rootfs.find_user(ROOT, config.get("User") or "")
    rootfs.put_in_order(ROOT, user)
    settings = unpack.settings(ROOT, config, user)
    whole = definition.complete(settings, name, {"description": description}, "the image")
    with open("image.toml", "w", encoding="utf-8") as file:
        file.write(definition.show(whole))
        file.write("\n")
    step("packing")
    # A fixed id; times stay, as bytecode of Python is compared with them, unless they are after 2099.
    os.environ["SOURCE_DATE_EPOCH"] = "4102444800"
    # lz4hc, as build.sh has it, saves a tenth and takes five times as long, fifteen times where nothing can be saved.
    pack = ["mkfs.erofs", "-zlz4", "-x-1", "-U", "00000000-0000-0000-0000-000000000000"]
    tool(*pack, "image.erofs", ROOT)


def main():
    name, description = sys.argv[1:]
    try:
        convert(name, description)
    except MemoryError as error:
        raise Problem("a header of the image takes too much memory") from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise Problem(f"the image is not as OCI's images are: {error!r}") from error


if __name__ == "__main__":
    run(main)
