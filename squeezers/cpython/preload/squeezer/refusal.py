"""Which runtimes this squeezer knows."""
import sys

_OLDEST = (3, 11)


def reason():
    """Why nothing is given back in this process; None where it is."""
    name = sys.implementation.name
    if name != "cpython":
        return f"{name} is not known: this squeezer is for CPython"
    if sys.version_info < _OLDEST:
        return f"CPython {sys.version.split()[0]} is not known: 3.11 and later are"
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} is not known: this squeezer is for Linux"
    return None
