"""Reads a daemon's metrics in both of Prometheus's formats, with the parsers of its Python client, and has its
own tool check them.

usage: check.py URL
"""

import pathlib
import subprocess
import sys
import urllib.request

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as classic

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
RUN = pathlib.Path(__file__).with_name("run.sh")
# Types in the older format.
KINDS = {"counter", "gauge", "histogram", "summary"}


def scrape(url, accept):
    """Return the type and the text of an answer."""
    headers = {"Accept": accept} if accept else {}
    request = urllib.request.Request(f"{url}/metrics", headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=20) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def read(families):
    """Return the values of all samples; each family has a type, a help text and samples of its own."""
    values = {}
    for family in families:
        assert family.documentation, family.name
        for sample in family.samples:
            assert family.type not in ("unknown", "untyped"), sample
            values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return values


def main():
    (url,) = sys.argv[1:]
    kind, text = scrape(url, PROMETHEUS)
    assert kind.startswith("application/openmetrics-text; version=1.0.0"), kind
    new = read(openmetrics.text_string_to_metric_families(text))
    for accept in (None, "text/plain", "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"):
        kind, text = scrape(url, accept)
        assert kind.startswith("text/plain; version=0.0.4"), kind
        kinds = {line.split()[3] for line in text.splitlines() if line.startswith("# TYPE ")}
        assert kinds <= KINDS, kinds
        old = read(classic.text_string_to_metric_families(text))
        assert old.keys() == new.keys(), old.keys() ^ new.keys()
        assert len(old) > 20
        subprocess.run([RUN, "promtool", "check", "metrics"], input=text.encode(), check=True)


main()
