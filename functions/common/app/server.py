"""OpenWhisk's action interface over HTTP: POST /init once, then POST /run, one at a time.

The function is in the image (what OpenWhisk calls a blackbox action), so /init takes parameters
and environment but no code.
"""

import importlib
import os
import sys
import traceback

import waitress
from flask import Flask, jsonify, request
from werkzeug.exceptions import HTTPException

# OpenWhisk cuts the logs of activations apart at this line.
END_OF_ACTIVATION = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX"
# OpenWhisk's own limit for arguments, with room for the envelope around them. Bytes.
MAX_REQUEST_BYTES = (1 << 20) + (64 << 10)
LISTEN = "0.0.0.0:8080"

app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = MAX_REQUEST_BYTES


class Refused(Exception):
    """A request that is not carried out, with the HTTP status that says so."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Action:
    """The function, from /init on."""

    def __init__(self):
        self.run = None

    def load(self, value):
        """Take the parameters of /init and find the function in the image."""
        if self.run is not None:
            raise Refused(403, "Cannot initialize the action more than once.")
        if value.get("code"):
            raise Refused(400, "This image holds its function: /init takes no code.")
        environment = value.get("env") or {}
        if not isinstance(environment, dict):
            raise Refused(400, "env has to be a JSON object.")
        for name, setting in environment.items():
            os.environ[name] = setting if isinstance(setting, str) else app.json.dumps(setting)
        main = value.get("main") or "main"
        function = getattr(importlib.import_module("action"), main, None)
        if not callable(function):
            raise Refused(400, f"The function has no entry point {main!r}.")
        self.run = function


action = Action()


def body_value():
    """Return the "value" of the request's body, a JSON object in a JSON object."""
    body = request.get_json(silent=True)
    value = body.get("value", {}) if isinstance(body, dict) else None
    if not isinstance(value, dict):
        raise Refused(400, 'The body has to be a JSON object with an object "value".')
    return body, value


@app.errorhandler(Refused)
def refused(error):
    """Answer a request that is not carried out."""
    return jsonify(error=str(error)), error.status


@app.errorhandler(HTTPException)
def impossible(error):
    """Answer a request that Flask does not take: too large, or to another path."""
    return jsonify(error=error.description), error.code


@app.post("/init")
def init():
    """Prepare the function; every further request here is refused."""
    _, value = body_value()
    action.load(value)
    return jsonify(ok=True)


@app.post("/run")
def run():
    """Run the function with "value" as its arguments; everything else becomes __OW_ variables."""
    try:
        body, arguments = body_value()
        if action.run is None:
            raise Refused(409, "POST /init comes before POST /run.")
        for key, setting in body.items():
            if key != "value" and isinstance(setting, (str, int, float)):
                os.environ[f"__OW_{key.upper()}"] = str(setting)
        try:
            result = action.run(arguments)
        except Exception as error:  # whatever the function raises is its answer, not our end
            traceback.print_exc()
            return jsonify(error=f"The action raised {type(error).__name__}: {error}"), 502
        if not isinstance(result, dict):
            raise Refused(502, "The action did not return a dictionary.")
        return jsonify(result)
    finally:
        for stream in (sys.stdout, sys.stderr):
            print(END_OF_ACTIVATION, file=stream, flush=True)


if __name__ == "__main__":
    waitress.serve(
        app,
        listen=LISTEN,
        threads=1,
        ident=None,
        # Until here it is Flask that refuses, in JSON; what is larger still is not even read.
        max_request_body_size=8 * MAX_REQUEST_BYTES,
        _quiet=True,
    )
