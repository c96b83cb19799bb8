#!/usr/bin/env python3
"""Measures what a squeeze gives back, and what it costs, with a function of the standard library.

usage: measure.py [--python PROGRAM] [--client PROGRAM] [--calls N] [--repetitions N]

The function parses a document of JSON, sorts and groups its records, and writes a table of HTML. It is
called so many times, then squeezed, then called again. A line for each way to allocate: medians.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20

FUNCTION = """
import html, json, random, string, sys, time
generator = random.Random(1)
def word():
    return "".join(generator.choices(string.ascii_letters, k=12))
document = json.dumps([
    {"name": word(), "group": word()[:1], "value": generator.random(), "tags": [word() for _ in range(5)]}
    for _ in range(4000)
])
cache = {}
def function():
    groups = {}
    for record in sorted(json.loads(document), key=lambda record: record["value"]):
        groups.setdefault(record["group"], []).append(record)
    rows = []
    for name, records in groups.items():
        for record in records:
            rows.append(f"<tr><td>{html.escape(name)}</td><td>{html.escape(record['name'])}</td></tr>")
            record["group"] = records  # a cycle, for the collector
    # What a function keeps of a call lies between what it does not keep.
    cache[len(cache)] = rows[::100]
    return len("".join(rows))
for line in sys.stdin:
    start = time.process_time_ns()
    for _ in range(int(line)):
        function()
    print(time.process_time_ns() - start, flush=True)
"""

WAYS = {
    "pymalloc, no squeezer": None,
    "pymalloc": {},
    "pymalloc, free pools": {"SQUEEZER_EXPERIMENTAL": "1"},
    "malloc": {"PYTHONMALLOC": "malloc"},
}


def resident(pid):
    """USS of a process in bytes."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith(("Private_Clean", "Private_Dirty")))


def once(arguments, environment):
    """Runs the function and squeezes it; returns what is printed, in the order of the heading."""
    squeezer = environment is not None
    process = subprocess.Popen(
        [arguments.python, "-c", FUNCTION], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        env={**os.environ, **({"PYTHONPATH": os.path.join(FOLDER, "preload"), **environment} if squeezer else {})},
    )

    def call(count):
        process.stdin.write(f"{count}\n")
        return int(process.stdout.readline()) / 1e6 / count

    try:
        milliseconds = call(arguments.calls)
        before, answer = resident(process.pid), {}
        if squeezer:
            done = subprocess.run([arguments.client, str(process.pid), "--json"], check=True, capture_output=True)
            answer = json.loads(done.stdout)["answer"]
        after = resident(process.pid)
        return (before / MIB, after / MIB, answer.get("live_bytes", 0) / MIB, answer.get("pause_ns", 0) / 1e6,
                answer.get("cpu_ns", 0) / 1e6, milliseconds, call(1), resident(process.pid) / MIB)
    finally:
        process.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--client", default=os.path.join(FOLDER, "../../target/release/squeezer"))
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=10)
    arguments = parser.parse_args()
    print("| | USS before, MiB | after | live | pause, ms | its CPU, ms | a call's CPU, ms | the next one's | USS after that |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    # In turns, so that a noisy moment is everybody's.
    runs = {way: [] for way in WAYS}
    for _ in range(arguments.repetitions):
        for way, environment in WAYS.items():
            runs[way].append(once(arguments, environment))
    for way, results in runs.items():
        medians = [statistics.median(column) for column in zip(*results)]
        print("| " + " | ".join([way, *(f"{median:.1f}" for median in medians)]) + " |")


if __name__ == "__main__":
    main()
