"""Measures what a squeeze gives back and what it costs: called by measure.sh. Prints a table in Markdown."""

import json
import pathlib
import statistics
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests"))

from matrix import NODES, node
from program import Program

APPLICATION = pathlib.Path(__file__).with_name("application.js")
MEBIBYTE = 1 << 20
REPETITIONS = 10
WARMING = 2
# What is invoked, and what the function holds besides the catalogue, in MiB.
WORKS = [("shop", 0), ("shop", 24), ("shop", 96), ("objects", 0)]
# Name, route, level (None: no squeeze), whether the function keeps one of each of its objects.
CONDITIONS = [
    ("none", "addon", None, False),
    ("addon, keep", "addon", "keep", False),
    ("addon, keep, samples held", "addon", "keep", True),
    ("addon, all", "addon", "all", False),
    ("inspector", "inspector", "keep", False),
]


def repetition(program, work, level):
    program.do("churn")
    program.do("invoke", work, 20)
    time.sleep(0.05)
    measured = {"rss_before": program.memory("Rss"), "own_before": program.memory()}
    answer = program.squeeze(heap=level is not None, trim=level is not None, level=level or "keep")
    if level is None:
        answer |= {"pause_ns": 0, "cpu_ns": 0}
    measured |= {"rss_after": program.memory("Rss"), "own_after": program.memory(), **answer}
    measured["optimized"] = program.do("optimized", work)
    burst = program.do("invoke", work, 10)
    measured |= {"first_ns": burst["durations"][0], "ten_ns": sum(burst["durations"]), "ten_cpu_ns": burst["cpu_ns"]}
    # Until it is as fast as it was.
    program.do("invoke", work, 100)
    return measured


def measure(version, work, held, condition):
    name, route, level, samples = condition
    with Program(node(version), route, name=APPLICATION, options=["--allow-natives-syntax"]) as program:
        program.do("hold", held)
        program.do("invoke", work, 200)
        if samples:
            program.do("sample")
        results = [repetition(program, work, level) for _ in range(WARMING + REPETITIONS)][WARMING:]
    median = {key: statistics.median(result[key] for result in results) for key in results[0] if key != "error"}
    median["for_live"] = median["after_bytes"] / median["live_bytes"] if median["live_bytes"] else 0
    return {"work": work, "held_mib": held, "node": version, "condition": name, **median}


# Heading, key, unit, digits. Each cell has a number for each Node.
COLUMNS = [
    ("live", "live_bytes", MEBIBYTE, 0),
    ("for live", "for_live", 1, 2),
    ("own", "own_after", MEBIBYTE, 0),
    ("pause", "pause_ns", 1e6, 0),
    ("CPU", "cpu_ns", 1e6, 0),
    ("first", "first_ns", 1e6, 1),
    ("ten", "ten_ns", 1e6, 0),
    ("ten, CPU", "ten_cpu_ns", 1e6, 0),
    ("optimised %", "optimized", 0.01, 0),
]


def row(results):
    cells = [results[0]["work"], f"{results[0]['held_mib']}", results[0]["condition"]]
    for _, key, unit, digits in COLUMNS:
        known = all(result[key] for result in results) or key == "optimized"
        cells.append(" / ".join(f"{result[key] / unit:.{digits}f}" for result in results) if known else "")
    return f"| {' | '.join(cells)} |"


def main():
    lines = open(sys.argv[1], "w", encoding="utf-8") if len(sys.argv) > 1 else None
    headings = ["", "holds", "squeeze", *(heading for heading, *_ in COLUMNS)]
    print(f"Node {' / '.join(NODES)}\n\n| {' | '.join(headings)} |\n|{' --- |' * len(headings)}", flush=True)
    for work, held in WORKS:
        for condition in CONDITIONS:
            results = [measure(version, work, held, condition) for version in NODES]
            print(row(results), flush=True)
            if lines:
                lines.writelines(json.dumps(result) + "\n" for result in results)
                lines.flush()


if __name__ == "__main__":
    main()
