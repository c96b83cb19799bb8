"""Drives a running daemon with requests: OpenWhisk has no library for Python, and this is how programs in it do.

host/squeezy/tests/openwhisk.rs starts both. usage: client.py URL KEY
"""

import sys
import time

import requests

CODE = """
def main(args):
    print('called by', args['who'])
    if 'fail' in args:
        return {'error': 'as told'}
    return {'who': args['who'], 'count': args.get('count', 0) + 1}
"""

# How long a call may take, in seconds: a VM may boot for longer than a call that blocks waits.
PATIENCE = 180


class Client:
    """What a program has for OpenWhisk: an address, a key, and a session."""

    def __init__(self, url, key):
        self.base = f"{url}/api/v1/namespaces"
        self.session = requests.Session()
        self.session.auth = tuple(key.split(":", 1))
        # Nothing of the user's.
        self.session.trust_env = False

    def ask(self, method, path, body=None, **parameters):
        """Return the answer, which is JSON; raise what requests has for an error of HTTP."""
        answer = self.session.request(method, f"{self.base}{path}", json=body, params=parameters, timeout=PATIENCE)
        answer.raise_for_status()
        return answer.json()

    def put(self, what, name, body, **parameters):
        return self.ask("PUT", f"/_/{what}/{name}", body, **parameters)

    def get(self, path, **parameters):
        return self.ask("GET", f"/_/{path}", **parameters)

    def delete(self, path):
        return self.ask("DELETE", f"/_/{path}")

    def invoke(self, name, arguments, **parameters):
        return self.ask("POST", f"/_/actions/{name}", arguments, **parameters)

    def ended(self, identifier):
        """Return the activation of a call, once that has ended."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self.get(f"activations/{identifier}")
            except requests.HTTPError as error:
                if error.response.status_code != 404 or time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def called(self, name, arguments):
        """Return the activation of a call that blocks, or of one that has taken too long for that."""
        return self.ended(self.invoke(name, arguments, blocking="true")["activationId"])


def refused(status, part, operation, *arguments, **parameters):
    """Check that an operation raises the error of requests; return the answer."""
    try:
        operation(*arguments, **parameters)
    except requests.HTTPError as error:
        answer = error.response
        same(answer.status_code, status)
        if part not in answer.text:
            raise AssertionError(f"{answer.text} has no {part!r}") from error
        return answer.json()
    raise AssertionError(f"it should have failed with {status}: {part}")


def same(found, right):
    """Check a value."""
    if found != right:
        raise AssertionError(f"{found!r} is not {right!r}")


def pairs(**values):
    return [{"key": key, "value": value} for key, value in values.items()]


def names(listed):
    return [one["name"] for one in listed]


def actions(client):
    exec_ = {"kind": "python:3", "code": CODE}
    limits = {"timeout": 50000, "memory": 128, "logs": 1}
    body = {"exec": exec_, "parameters": pairs(who="first"), "annotations": pairs(made="here"), "limits": limits}
    made = client.put("actions", "hello", body)
    same(made["exec"]["kind"], "python:3.11")
    same(made["limits"], limits | {"concurrency": 1})
    same(made["annotations"], pairs(made="here"))
    refused(409, "resource already exists", client.put, "actions", "hello", body)
    updated = client.put("actions", "hello", {"parameters": pairs(who="second")}, overwrite="true")
    same((updated["version"], updated["limits"]), ("0.0.2", made["limits"]))
    same(client.get("actions/hello")["exec"]["code"], CODE)
    same(client.get("actions/hello", code="false"), updated)
    # The daemon serves one from its configuration, too.
    same(names(client.get("actions")), ["hello", "html"])
    same(names(client.get("actions", limit=1, skip=1)), ["html"])


def calls(client):
    activation = client.called("hello", {"count": 1})
    same(activation["response"]["result"], {"who": "second", "count": 2})
    same(activation["response"]["status"], "success")
    same([line.split(" stdout: ")[-1] for line in activation["logs"]], ["called by second"])
    path = f"activations/{activation['activationId']}"
    same(client.get(f"{path}/logs"), {"logs": activation["logs"]})
    same(client.get(f"{path}/result"), activation["response"])
    same(client.invoke("hello", {"count": 5}, blocking="true", result="true"), {"who": "second", "count": 6})
    later = client.invoke("hello", {"count": 6})
    same(client.ended(later["activationId"])["response"]["result"]["count"], 7)
    failed = refused(502, "as told", client.invoke, "hello", {"fail": True}, blocking="true")
    same(failed["response"]["status"], "application error")
    listed = client.get("activations", name="hello")
    same([one["statusCode"] for one in listed], [1, 0, 0, 0])
    same(client.get("activations", name="hello", count="true"), {"activations": 4})
    refused(404, "does not exist", client.get, f"activations/{'0' * 32}")


def packages(client):
    client.put("packages", "tools", {"parameters": pairs(who="tools")})
    binding = {"namespace": "_", "name": "tools"}
    client.put("packages", "mine", {"binding": binding, "parameters": pairs(count=10)})
    client.put("actions", "tools/hello", {"exec": {"kind": "python:3", "code": CODE}})
    same(names(client.get("actions/tools/")), ["hello"])
    same(names(client.get("packages")), ["mine", "tools"])
    same(names(client.get("packages/mine")["actions"]), ["hello"])
    activation = client.called("mine/hello", {})
    same(activation["response"]["result"], {"who": "tools", "count": 11})
    refused(409, "not empty", client.delete, "packages/tools")


def sequences(client):
    exec_ = {"kind": "sequence", "components": ["/_/hello", "/_/tools/hello"]}
    client.put("actions", "both", {"exec": exec_})
    whole = client.called("both", {"count": 1})
    # The second one gets the first one's result, over what its package has for it.
    same(whole["response"]["result"], {"who": "second", "count": 3})
    parts = [client.ended(identifier) for identifier in whole["logs"]]
    same([part["cause"] for part in parts], [whole["activationId"]] * 2)


def web_actions(client, url):
    exported = pairs(**{"web-export": True})
    client.put("actions", "hello", {"annotations": exported}, overwrite="true")
    stranger = requests.Session()
    stranger.trust_env = False
    address = f"{url}/api/v1/web/guest/default/hello"
    answer = stranger.get(f"{address}.json", timeout=PATIENCE)
    same((answer.status_code, answer.json()), (200, {"who": "second", "count": 1}))
    answer = stranger.post(f"{address}.json", json={"count": 4}, timeout=PATIENCE)
    same((answer.status_code, answer.json()["count"]), (200, 5))


def refusals(client, url):
    stranger = Client(url, "nobody:0123456789abcdef")
    refused(401, "The supplied authentication is invalid", stranger.get, "actions")
    refused(404, "does not exist", client.get, "actions/none")
    php = {"exec": {"kind": "php:8", "code": "x"}}
    refused(400, "the kinds here are blackbox, python:3.11", client.put, "actions", "bad", php)
    little = {"limits": {"memory": 1}}
    refused(400, "limits.memory must be from 32", client.put, "actions", "hello", little, overwrite="true")


def deletions(client):
    for path in ["actions/both", "actions/tools/hello", "actions/hello", "packages/mine", "packages/tools"]:
        same(client.delete(path)["name"], path.split("/")[-1])
        refused(404, "does not exist", client.get, path)
    same(names(client.get("actions")), ["html"])


def main(url, key):
    client = Client(url, key)
    same(client.ask("GET", ""), ["guest"])
    actions(client)
    calls(client)
    packages(client)
    sequences(client)
    web_actions(client, url)
    refusals(client, url)
    deletions(client)
    print("all right")


if __name__ == "__main__":
    main(*sys.argv[1:])
