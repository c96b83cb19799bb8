"""Unpacks an OCI image, for guest/image/oci.sh.

usage: unpack.py SOURCE TARGET

SOURCE is an archive of Docker's or OCI's form, or a layout directory. Makes TARGET/root, the files, and
TARGET/config.json, what the image says that a function.toml says; or nothing, and one line on standard
error that says why.

Nobody vouches for an image. skopeo and umoci read it in a sandbox without a network, where TARGET is all
that can be written to and device nodes cannot be opened.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tarfile
import time

import layers
import rootfs
from problem import Problem, run

# For all of it, in seconds.
TIME_LIMIT = 1800
# Of this process, in bytes: a header of a layer may claim any length.
MEMORY_LIMIT = 512 << 20
# Of config and manifest, in bytes.
MAX_JSON = 4 << 20
# Ten a second.
REMOVAL_TRIES = 100
# What Docker sets.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What unpacking takes: any owner, any mode, capabilities of files, device nodes.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETFCAP", "MKNOD")


def transport(source):
    """Return what skopeo calls the form of the image."""
    if os.path.isdir(source):
        return "oci"
    with open(source, "rb") as file:
        # Of gzip, bzip2, xz and zstd.
        if file.read(4).startswith((b"\x1f\x8b", b"BZh", b"\xfd7zX", b"\x28\xb5\x2f\xfd")):
            raise Problem("the archive is compressed: uncompress it first")
    try:
        # Of another file not even the first header is right.
        with tarfile.open(source, "r:") as archive:
            try:
                names = {os.path.normpath(name) for name in archive.getnames()}
            except (tarfile.TarError, EOFError, ValueError) as error:
                raise Problem(f"the archive is cut short or damaged: {error}") from error
    except tarfile.TarError as error:
        raise Problem("not an OCI image: it is not a tar archive") from error
    # Newer versions of Docker write both; its own names the one image that was asked for.
    if "manifest.json" in names:
        return "docker-archive"
    if {"oci-layout", "index.json"} <= names:
        return "oci-archive"
    raise Problem("not an OCI image: the archive has neither an oci-layout nor a manifest.json")


def in_sandbox(source, work, *command):
    """Run skopeo or umoci in `work`, with the image as /source."""
    sandbox = ["bwrap", "--die-with-parent", "--clearenv", "--setenv", "PATH", "/usr/bin"]
    sandbox += [f"--unshare-{what}" for what in ("net", "pid", "ipc", "uts")]
    sandbox += ["--cap-drop", "ALL"]
    for capability in CAPABILITIES:
        sandbox += ["--cap-add", f"CAP_{capability}"]
    sandbox += ["--ro-bind", "/usr", "/usr", "--proc", "/proc"]
    for name in ("bin", "lib", "lib64"):
        sandbox += ["--symlink", f"usr/{name}", f"/{name}"]
    sandbox += ["--ro-bind", os.path.realpath(source), "/source"]
    sandbox += ["--bind", work, "/work", "--chdir", "/work"]
    result = subprocess.run(
        [*sandbox, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=limit_files,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode != 0:
        raise said(command, result, source)


def limit_files():
    """For a tool: no file larger than an image may be, and the memory it needs."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (layers.MAX_BYTES, layers.MAX_BYTES))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def blob(layout, descriptor):
    """Return the path of what a descriptor of the layout names."""
    digest = re.fullmatch(r"sha256:([0-9a-f]{64})", descriptor["digest"])
    if not digest:
        raise Problem(f"the image names its parts by {descriptor['digest']!r}, not by SHA-256")
    return os.path.join(layout, "blobs/sha256", digest[1])


def read_json(path):
    """Return a JSON file's content."""
    if os.path.getsize(path) > MAX_JSON:
        raise Problem(f"the image's description is larger than {MAX_JSON >> 20} MiB")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_image(layout):
    """Return the config of a layout's only image, and the paths of its layers."""
    manifest = read_json(blob(layout, read_json(os.path.join(layout, "index.json"))["manifests"][0]))
    image = read_json(blob(layout, manifest["config"]))
    machine = image.get("os"), image.get("architecture")
    if machine != ("linux", "amd64"):
        raise Problem(f"the image is for {machine[0]} on {machine[1]}, not for linux on amd64")
    # What says that it is no gzip would be unpacked as it is, and not as it is checked.
    if not all(layer["mediaType"].endswith(".tar+gzip") for layer in manifest["layers"]):
        raise Problem("the image has a layer that is not said to be a tar archive with gzip")
    return image, [blob(layout, layer) for layer in manifest["layers"]]


def check_layers(blobs, budget):
    """Stop at the first entry of a layer that no image should have."""
    if len(blobs) > layers.MAX_LAYERS:
        raise Problem(f"the image has {len(blobs)} layers, more than {layers.MAX_LAYERS}")
    for number, path in enumerate(blobs, 1):
        print(f"layer {number} of {len(blobs)}: checking", flush=True)
        layers.check(path, number, budget)


def settings(root, config, user):
    """Return what function.toml needs, from an image's config."""
    environment = dict(pair.split("=", 1) for pair in config.get("Env") or [] if "=" in pair)
    environment.setdefault("PATH", PATH)
    environment.setdefault("HOME", user.home)
    directory = os.path.normpath(os.path.join("/", config.get("WorkingDir") or "/"))
    rootfs.make_directory(root, directory)
    command = [*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])]
    program = command and rootfs.find_program(root, command[0], environment["PATH"], directory)
    exposed = (name.removesuffix("/tcp") for name in config.get("ExposedPorts") or {})
    return {
        "command": command,
        # Its first word by absolute path, or null: definition.py decides what that means.
        "program": program or None,
        "working_directory": directory,
        "environment": environment,
        "ports": sorted(int(port) for port in exposed if port.isdecimal()),
    }


def unpack(source, work):
    """Fill the directory `work` with root and config.json."""
    kind = transport(source)
    print("layer all: copying", flush=True)
    # umoci knows gzip only.
    copy = ["skopeo", "copy", "--quiet", "--insecure-policy", "--tmpdir", "/work"]
    copy += ["--dest-compress-format", "gzip", f"{kind}:/source", "oci:layout:image"]
    in_sandbox(source, work, *copy)
    layout = os.path.join(work, "layout")
    image, blobs = read_image(layout)
    check_layers(blobs, layers.Budget())
    print("layer all: unpacking", flush=True)
    in_sandbox(source, work, "umoci", "raw", "unpack", "--image", "layout:image", "root")
    remove(layout)
    root = os.path.join(work, "root")
    config = image.get("config") or {}
    user = rootfs.find_user(root, config.get("User") or "")
    rootfs.put_in_order(root, user)
    with open(os.path.join(work, "config.json"), "w", encoding="utf-8") as file:
        json.dump(settings(root, config, user), file, indent=1)


def said(command, result, source):
    """Return what a tool that failed has said, in one line."""
    lines = result.stdout.strip().splitlines() or [f"status {result.returncode}"]
    message = re.search(r'msg="((?:[^"\\]|\\.)*)"', lines[-1])
    text = message[1].replace('\\"', '"') if message else lines[-1].strip(" ⨯")
    return Problem(f"{command[0]} cannot use it: {text.replace('/source', source)}")


def remove(path):
    """Remove a directory, however deep an image has made it."""
    # A tool that was stopped may go on writing for a moment.
    for _ in range(REMOVAL_TRIES):
        if subprocess.run(["rm", "-rf", "--", path], check=False).returncode == 0:
            return
        time.sleep(0.1)
    raise Problem(f"{path} cannot be removed")


def stop(number, _frame):
    """Let what is under way clean up."""
    raise Problem("not done after 30 minutes" if number == signal.SIGALRM else "interrupted")


def main():
    source, target = sys.argv[1:]
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.alarm(TIME_LIMIT)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, resource.getrlimit(resource.RLIMIT_AS)[1]))
    work = f"{target}.new"
    remove(work)
    os.mkdir(work, 0o700)
    try:
        unpack(source, work)
        os.rename(work, target)
    except Problem as problem:
        raise Problem(f"{source}: {problem}") from problem
    except MemoryError as error:
        raise Problem(f"{source}: a header takes more than {MEMORY_LIMIT >> 20} MiB of memory") from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise Problem(f"{source}: the image is not as OCI's images are: {error!r}") from error
    finally:
        remove(work)


if __name__ == "__main__":
    run(main)
