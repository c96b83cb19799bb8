"""What whoever runs the program has to know."""
import sys


def say(what, so="this process runs without a squeezer"):
    """Writes one line to standard error, and never fails."""
    try:
        sys.stderr.write(f"squeezer: {what}; {so}\n")
    except Exception:  # closed, or not there
        pass
