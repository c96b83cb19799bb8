"""The function's server, with a client beside it in the same sandbox.

Runs instead of the server, which is unchanged: `python3 -c THIS PORT SERVER`. A call that asks for
`calls_inside` is answered once the client has called the server so often; every other call is the
function's own.
"""

import http.client
import json
import os
import runpy
import sys
import time

PORT, SERVER = int(sys.argv[1]), sys.argv[2]


def call_inside(arguments, calls):
    """Call the server one call after the other; how long each took, and the bytes of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT)
    body = json.dumps({"value": arguments})
    latencies_ns, length = [], 0
    for _ in range(calls):
        start = time.perf_counter_ns()
        connection.request("POST", "/run", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        latencies_ns.append(time.perf_counter_ns() - start)
        if answer.status != 200:
            return {"error": f"from inside: status {answer.status}: {content[:200]}"}
        length = len(content)
    connection.close()
    return {"latencies_ns": latencies_ns, "answer_bytes": length}


def start_client():
    """Start the client, a process of its own; return the pipes to it and from it."""
    (orders, order), (results, result) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(order)
        os.close(results)
        with os.fdopen(orders) as orders, os.fdopen(result, "w", buffering=1) as result:
            for line in orders:
                print(json.dumps(call_inside(*json.loads(line))), file=result)
        os._exit(0)
    os.close(orders)
    os.close(result)
    return os.fdopen(order, "w", buffering=1), os.fdopen(results)


def serve():
    """Serve the function, and what the client is told to do."""
    order, results = start_client()

    import action
    import waitress

    main, waitress_serve = action.main, waitress.serve

    def ordered(arguments):
        calls = arguments.pop("calls_inside", None)
        if calls is None:
            return main(arguments)
        print(json.dumps([arguments, calls]), file=order)
        return json.loads(results.readline())

    # One thread waits for the client, the other serves it.
    waitress.serve = lambda app, **options: waitress_serve(app, **{**options, "threads": 2})
    action.main = ordered
    runpy.run_path(SERVER, run_name="__main__")


serve()
