"""The JVMs that are tested, and tests that run once for each of them."""

import os

from conformance.case import for_each

COLLECTORS = ("Serial", "Parallel", "G1")
# Version of Java, home.
JDKS = [tuple(jdk.split("=", 1)) for jdk in os.environ["HOTSPOT_JDKS"].split()]


def java(version):
    """The java of the first JDK of a version."""
    return dict(reversed(JDKS))[str(version)] + "/bin/java"


def label(version, home):
    """The version, and which JDK it is where there is another one."""
    return version if dict(reversed(JDKS))[version] == home else version + "_" + os.path.basename(home).replace("-", "_")


# Makes test_WHAT_VERSION_COLLECTOR of each method each_WHAT(self, java, collector).
for_each_jvm = for_each({f"{label(version, home)}_{collector.lower()}": (home + "/bin/java", collector)
                         for version, home in JDKS for collector in COLLECTORS})
