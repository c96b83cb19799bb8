"""What a request does."""
import gc
from time import monotonic_ns, process_time_ns

from . import caches, malloc, pools


def squeeze(request):
    """Gives back what is asked for; returns the numbers of the answer."""
    before = resident_bytes()
    processor_time = process_time_ns()
    start = monotonic_ns()
    if request.everything:
        caches.drop()
    advised = 0
    if request.heap:
        gc.collect()
        advised = pools.release()
    if request.trim:
        malloc.trim()
    live = malloc.live_bytes()
    end = monotonic_ns()
    processor_time = process_time_ns() - processor_time
    after = resident_bytes()
    return {
        "before_bytes": before,
        "after_bytes": after,
        "live_bytes": live,
        # Neither the interpreter nor malloc says what it has given back: this much at least.
        "advised_bytes": max(advised, before - after),
        "pause_ns": end - start,
        "cpu_ns": processor_time,
    }


def resident_bytes():
    """Anonymous memory of the process that is resident; 0 if it is not known.

    Objects are in arenas of the interpreter, in malloc's heaps and in mappings of extensions; all of
    that is anonymous memory, and little else is.
    """
    try:
        with open("/proc/self/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith(b"Anonymous:"):
                    return int(line.split()[1]) * 1024
    except OSError:  # no /proc in a root of its own
        pass
    return 0
