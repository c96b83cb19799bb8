"""The Nodes that are tested, and tests that run once for each of them and each route."""

import os

# Of build.sh; and the same without the addon, where the inspector collects.
PRELOADS = {"addon": os.environ["V8_PRELOAD"], "inspector": os.environ["V8_PRELOAD_WITHOUT_ADDON"]}
# Major version, or what else tells it from others, to its home.
NODES = dict(node.split("=", 1) for node in os.environ["V8_NODES"].split())
STRESS = os.environ.get("V8_STRESS") == "1"


def node(name):
    return os.path.join(NODES[str(name)], "bin", "node")


def for_each_node(test_case):
    """Makes test_WHAT_NODE_ROUTE of each method each_WHAT(self, node, route)."""
    for name in [name for name in dir(test_case) if name.startswith("each_")]:
        each = getattr(test_case, name)
        for version in NODES:
            for route in PRELOADS:

                def test(self, each=each, version=version, route=route):
                    each(self, node(version), route)

                setattr(test_case, f"test_{name[5:]}_{version}_{route}", test)
    return test_case
