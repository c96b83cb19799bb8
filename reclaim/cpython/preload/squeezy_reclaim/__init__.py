"""An agent that makes this CPython process give its free memory back when it is asked to.

reclaim/README.md has the protocol, reclaim/cpython/README.md what this agent does and does not.
"""
import os
import sys

_agent = None


def start():
    """Starts the agent of this process; does nothing the second time.

    It never fails: without an agent the program runs as it would, and standard error says why.
    """
    global _agent
    if _agent is not None:
        return
    try:
        from . import address
        from .agent import Agent
        if os.environ.get("SQUEEZY_RECLAIM_EXPERIMENTAL") == "1":
            _install_pools()
        try:
            _agent = Agent()
        except address.Served:
            pass
    except Exception as error:  # whatever it is, the program must run
        say(error)


def _install_pools():
    from . import pools
    why_not = pools.install()
    if why_not is not None:
        say(why_not, "free pools are not given back")


def say(what, so="this process runs without an agent"):
    """One line for whoever runs the program."""
    try:
        sys.stderr.write(f"squeezy-reclaim: {what}; {so}\n")
    except Exception:  # closed, or not there
        pass
