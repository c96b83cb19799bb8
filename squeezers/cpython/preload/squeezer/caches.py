"""What can be made again: caches that modules of the standard library can empty themselves.

Not those of functools: a program may rely on getting the same object again. Not that of linecache:
sources of code that was made at run time are nowhere else.
"""
import sys

_EMPTIED_BY = (("re", "purge"), ("filecmp", "clear_cache"), ("urllib.parse", "clear_cache"))


def drop():
    """Empties the caches of the modules that the program has loaded."""
    for module, function in _EMPTIED_BY:
        empty = getattr(sys.modules.get(module), function, None)
        if empty is not None:
            empty()
