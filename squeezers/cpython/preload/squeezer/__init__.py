"""A squeezer that makes this CPython process give its free memory back when it is asked to.

squeezers/README.md has the protocol, squeezers/cpython/README.md what this squeezer does and does not.
"""
import os

from .standard_error import say

_squeezer = None


def start():
    """Starts the squeezer of this process; does nothing the second time.

    It never fails: without a squeezer the program runs as it would, and standard error says why.
    """
    global _squeezer
    if _squeezer is not None:
        return
    try:
        from . import address
        from .squeezer import Squeezer
        if os.environ.get("SQUEEZER_EXPERIMENTAL") == "1":
            _install_pools()
        try:
            _squeezer = Squeezer()
        except address.Served:
            pass
    except Exception as error:  # whatever it is, the program must run
        say(error)


def _install_pools():
    from . import pools
    why_not = pools.install()
    if why_not is not None:
        say(why_not, "free pools are not given back")
