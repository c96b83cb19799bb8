"""What clients ask, and what they are told; version 1 of squeezers/README.md."""
import json
import os
import sys

MOST_REQUEST_BYTES = 4096

NUMBERS = ("before_bytes", "after_bytes", "live_bytes", "advised_bytes", "pause_ns", "cpu_ns")
_MOST_NUMBER = 2**53 - 1


class NoRequest(Exception):
    """Why a line is no request."""


class Request:
    """What to give back."""

    def __init__(self, heap=True, trim=True, level="keep"):
        for name, value in (("heap", heap), ("trim", trim)):
            if value is not True and value is not False:
                raise NoRequest(f'"{name}" has to be true or false')
        if level not in ("keep", "all"):
            raise NoRequest('"level" has to be "keep" or "all"')
        self.heap = heap
        self.trim = trim
        self.everything = level == "all"


def parse(line):
    """The request in a line."""
    try:
        message = json.loads(line.decode(), object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise NoRequest("the line is no JSON") from None
    body = _members(message, "the request", {"squeeze"}).get("squeeze")
    if body is None:
        raise NoRequest('the request has no "squeeze"')
    return Request(**_members(body, '"squeeze"', {"heap", "trim", "level"}))


def _object(pairs):
    """An object as it was written; nobody may mean two things by one key."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NoRequest("a key is there twice")
    return members


def _members(value, name, known):
    if not isinstance(value, dict):
        raise NoRequest(f"{name} has to be an object")
    for key in value:
        if key not in known:
            raise NoRequest(f"{name} has a key that is not known: {json.dumps(key)[:100]}")
    return value


def hello(refused):
    """The line with which a conversation begins."""
    words = {
        "squeezer": 1,
        "runtime": "cpython",
        "runtime_version": sys.version.split()[0],
        "collector": None,
        "pid": os.getpid(),
    }
    if refused:
        words["refused"] = refused
    return _line(words)


def answer(numbers=(), error=None):
    """The line that answers a request; a number that is not known is 0."""
    known = dict(numbers)
    words = {name: min(max(int(known.get(name, 0)), 0), _MOST_NUMBER) for name in NUMBERS}
    words["error"] = error
    return _line(words)


def _line(words):
    return json.dumps(words, separators=(",", ":")).encode() + b"\n"
