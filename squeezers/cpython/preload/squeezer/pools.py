"""Free pools inside of pymalloc's arenas; experimental, and off unless it is asked for.

The work is in ../../pools.c, with the argument why it is safe.
"""
import ctypes
import os
import sys

_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libpools.so")

# Those whose obmalloc.c was read, and that the tests run with.
_KNOWN = ((3, 11), (3, 12), (3, 13), (3, 14))

_library = None


def install():
    """Notes arenas from now on, so that their free pools can be given back; returns why not."""
    global _library
    if sys.version_info[:2] not in _KNOWN:
        return f"CPython {sys.version.split()[0]} is not known"
    if "t" in sys.abiflags:
        return "a free-threaded build has no pymalloc"
    try:
        # Its functions are called with the interpreter's lock held.
        library = ctypes.PyDLL(_LIBRARY)
    except OSError as error:
        return f"{error}; make -C squeezers/cpython builds it"
    library.squeezy_pools_install.restype = ctypes.c_char_p
    library.squeezy_pools_release.restype = ctypes.c_size_t
    why_not = library.squeezy_pools_install()
    if why_not is not None:
        return why_not.decode()
    _library = library
    return None


def release():
    """Gives back free pools; returns the addresses given back, in bytes."""
    return 0 if _library is None else _library.squeezy_pools_release()
