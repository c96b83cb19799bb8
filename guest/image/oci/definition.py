"""Prints the whole function.toml of a function whose files are an OCI image, for guest/image/oci.sh.

usage: definition.py CONFIG NAME [FUNCTION_TOML]

What FUNCTION_TOML says counts, then what the image says (CONFIG, from unpack.py), then what OpenWhisk's
users are used to.
"""

import json
import re
import sys
import tomllib

from problem import Problem, run

# OpenWhisk's own, but for /init: emulation is slow.
USUAL = {
    "description": "",
    "memory_limit": "256M",
    "vcpus": 1.0,
    "concurrency": 8,
    "keep_alive_seconds": 600,
    "init_timeout_seconds": 120,
    "run_timeout_seconds": 60,
}
USUAL_PORT = 8080


def port(ports, where):
    """Return the one port of those an image exposes that OpenWhisk's interface will be on."""
    if not ports or USUAL_PORT in ports:
        return USUAL_PORT
    if len(ports) > 1:
        names = ", ".join(map(str, ports))
        raise Problem(f"{where}: the image exposes the ports {names}: say port = ... in a function.toml")
    return ports[0]


def command(config, where):
    """Return the program of an image by absolute path, and its arguments."""
    if not config["command"]:
        raise Problem(
            f"{where}: the image has neither an entrypoint nor a command: "
            "say command = [...] in a function.toml"
        )
    first, *arguments = config["command"]
    if not config["program"]:
        raise Problem(f"{where}: the image is to run {first!r}, and has no such program")
    return [config["program"], *arguments]


def complete(config, name, given, where):
    """Return the definition, whose tables come last."""
    whole = {"name": name, **USUAL, "working_directory": config["working_directory"]}
    if "command" not in given:
        whole["command"] = command(config, where)
    if "port" not in given:
        whole["port"] = port(config["ports"], where)
    # How the image is made is done with.
    given = {key: value for key, value in given.items() if key != "image"}
    own = given.pop("environment", {})
    if not isinstance(own, dict):
        raise Problem(f"{where}: environment has to be a table")
    whole |= {key: value for key, value in given.items() if not isinstance(value, dict)}
    whole["environment"] = config["environment"] | own
    return whole | {key: value for key, value in given.items() if isinstance(value, dict)}


def toml(value):
    """Return a value as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        # TOML's strings are JSON's, but for this character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def toml_key(key):
    """Return a key as TOML."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)


def show(definition):
    """Return the lines of the file."""
    lines = ["# Made by guest/image/build.sh from an OCI image, and made again with it."]
    for key, value in definition.items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]"]
            lines += [f"{toml_key(name)} = {toml(item)}" for name, item in value.items()]
        else:
            lines.append(f"{toml_key(key)} = {toml(value)}")
    return "\n".join(lines)


def main():
    config_path, name, *rest = sys.argv[1:]
    with open(config_path, encoding="utf-8") as file:
        config = json.load(file)
    given, where = {}, name
    if rest:
        where = rest[0]
        with open(where, "rb") as file:
            given = tomllib.load(file)
    print(show(complete(config, name, given, where)))


if __name__ == "__main__":
    run(main)
