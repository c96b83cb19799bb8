"""The JVMs that are tested, and tests that run once for each of them."""

import os

COLLECTORS = ("Serial", "Parallel", "G1")
# Version of Java, home.
JDKS = [tuple(jdk.split("=", 1)) for jdk in os.environ["HOTSPOT_JDKS"].split()]
STRESS = os.environ.get("HOTSPOT_STRESS") == "1"


def java(version):
    """The java of the first JDK of a version."""
    return dict(reversed(JDKS))[str(version)] + "/bin/java"


def label(version, home):
    """The version, and which JDK it is where there is another one."""
    return version if dict(reversed(JDKS))[version] == home else version + "_" + os.path.basename(home).replace("-", "_")


def for_each_jvm(test_case):
    """Makes test_WHAT_VERSION_COLLECTOR of each method each_WHAT(self, java, collector)."""
    for name in [name for name in dir(test_case) if name.startswith("each_")]:
        for version, home in JDKS:
            for collector in COLLECTORS:
                method = getattr(test_case, name)

                def test(self, method=method, home=home, collector=collector):
                    method(self, home + "/bin/java", collector)

                setattr(test_case, f"test_{name[5:]}_{label(version, home)}_{collector.lower()}", test)
    return test_case
