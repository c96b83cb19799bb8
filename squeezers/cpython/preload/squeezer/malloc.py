"""The allocators below the interpreter: the C library's malloc, and pymalloc above it.

Both are asked by functions that they export; where one is not there, as in musl, its part is nothing.
"""
import ctypes

_libc = ctypes.CDLL(None)


class _Mallinfo2(ctypes.Structure):
    """mallinfo2(3), as the GNU C library has it since 2.33."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]


def _function(library, name, result, *arguments):
    """A function of a library; None if it has none of that name."""
    try:
        function = getattr(library, name)
    except AttributeError:
        return None
    function.restype = result
    function.argtypes = arguments
    return function


# These let other threads run, which wait only if they allocate.
_malloc_trim = _function(_libc, "malloc_trim", ctypes.c_int, ctypes.c_size_t)
_mallinfo2 = _function(_libc, "mallinfo2", _Mallinfo2)
# This one does not: it walks through arenas.
_print_pymalloc = _function(ctypes.pythonapi, "_PyObject_DebugMallocStats", ctypes.c_int, ctypes.c_void_p)

_open_memstream = _function(
    _libc, "open_memstream", ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)
)
_fclose = _function(_libc, "fclose", ctypes.c_int, ctypes.c_void_p)
_free = _function(_libc, "free", None, ctypes.c_void_p)

_ALLOCATED = b"# bytes in allocated blocks"


def trim():
    """Gives back every free page of malloc, in the middle of its heaps too."""
    if _malloc_trim is not None:
        _malloc_trim(0)


def live_bytes():
    """What programs have been given and have not freed; 0 if it is not known."""
    if _mallinfo2 is None:
        return 0
    info = _mallinfo2()
    return info.uordblks + info.hblkhd + _pymalloc_live_bytes()


def _pymalloc_live_bytes():
    """Blocks of pymalloc that are allocated; 0 where it is not used (PYTHONMALLOC=malloc)."""
    for line in _pymalloc_statistics().splitlines():
        if line.startswith(_ALLOCATED):
            return int(line.partition(b"=")[2].replace(b",", b""))
    return 0


def _pymalloc_statistics():
    """What sys._debugmallocstats() prints to standard error."""
    if _print_pymalloc is None:
        return b""
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    stream = _open_memstream(ctypes.byref(text), ctypes.byref(size))
    if not stream:
        return b""
    try:
        _print_pymalloc(stream)
    finally:
        _fclose(stream)
    try:
        return ctypes.string_at(text, size.value)
    finally:
        _free(text)
