"""The Nodes that are tested, and tests that run once for each of them and each route."""

import os

from conformance.case import for_each

# Of build.sh; and the same without the addon, where the inspector collects.
PRELOADS = {"addon": os.environ["V8_PRELOAD"], "inspector": os.environ["V8_PRELOAD_WITHOUT_ADDON"]}
# Major version, or what else tells it from others, to its home.
NODES = dict(node.split("=", 1) for node in os.environ["V8_NODES"].split())


def node(name):
    return os.path.join(NODES[str(name)], "bin", "node")


# Makes test_WHAT_NODE_ROUTE of each method each_WHAT(self, node, route).
for_each_node = for_each({f"{version}_{route}": (node(version), route) for version in NODES for route in PRELOADS})
