"""Loads an action in Python and answers its calls: launcher.py DIRECTORY MAIN.

A call is a line of JSON on standard input, its answer one on descriptor 3 (OpenWhisk's actionloop
protocol). What the action prints goes to standard output and error, which are its log.
"""

import importlib.util
import json
import os
import pathlib
import sys
import traceback

# Of the file that an archive is entered by, and that code as text becomes; OpenWhisk's name for it.
ENTRY = "__main__.py"


def channel():
    """Return the streams of calls and answers, and keep the action and its children from both."""
    calls = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(3), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.close(3)
    return calls, answers


def search_path(directory):
    """Let the action import what came with it: beside it, or in OpenWhisk's virtualenv."""
    packages = directory.glob("virtualenv/lib/python3*/site-packages")
    sys.path[:1] = [str(directory), *map(str, packages)]


def load(directory, main):
    """Return the action's function."""
    entry = directory / ENTRY
    if not entry.is_file():
        raise FileNotFoundError(f"the archive has no {ENTRY}")
    # Not __main__, so that what an action does only as a script is left out.
    specification = importlib.util.spec_from_file_location("action", entry)
    module = importlib.util.module_from_spec(specification)
    sys.modules["action"] = module
    specification.loader.exec_module(module)
    function = getattr(module, main, None)
    if not callable(function):
        raise TypeError(f"there is no function {main}")
    return function


def describe(error):
    """Return what an exception says, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def call(function, line):
    """Return the answer to a call; what comes with the arguments becomes __OW_ variables."""
    request = json.loads(line)
    for name, setting in request.items():
        if name != "value" and isinstance(setting, (str, int, float)):
            os.environ[f"__OW_{name.upper()}"] = str(setting)
    result = function(request.get("value") or {})
    if not isinstance(result, dict):
        raise TypeError("the action did not return a dictionary")
    return json.dumps(result)


def main():
    """Load the action, then answer calls until there are no more."""
    calls, answers = channel()

    def answer(text):
        # The log of a call comes before its answer.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        print(text, file=answers, flush=True)

    def failed(error):
        traceback.print_exception(error)
        return json.dumps({"error": describe(error)})

    directory = pathlib.Path(sys.argv[1])
    search_path(directory)
    try:
        function = load(directory, sys.argv[2])
    except (Exception, SystemExit) as error:  # whatever the code raises is why it is not loaded
        answer(failed(error))
        sys.exit(1)
    answer('{"ok":true}')
    for line in calls:
        try:
            text = call(function, line)
        except (Exception, SystemExit) as error:  # whatever the action raises is its answer
            text = failed(error)
        answer(text)


if __name__ == "__main__":
    main()
