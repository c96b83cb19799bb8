"""What ends a conversion."""

import sys

# Names in an image may be as long as they like.
MAX_LINE = 400


class Problem(Exception):
    """Why an image cannot be used, in one line."""


def run(main):
    """Run main; what ends it becomes one line on standard error, and status 1."""
    try:
        main()
    except (Problem, OSError) as problem:
        line = " ".join(str(problem).split())
        # Nor does an image tell the terminal what to do.
        line = "".join(char if char.isprintable() else "?" for char in line)
        half = MAX_LINE // 2
        sys.exit(line if len(line) <= MAX_LINE else f"{line[:half]} ... {line[-half:]}")
