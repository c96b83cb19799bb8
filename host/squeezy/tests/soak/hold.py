"""Holds threads of a process until they are killed: hold.py THREAD...

The other threads go on. So a VMM whose processors are held answers its monitor as ever, and nothing
in its guest does. Says "held" once they stand still. If this ends first, they go on too.
"""

import ctypes
import os
import sys

# From linux/ptrace.h and linux/wait.h.
PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
WALL = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, thread):
    """Do this to the thread, or end with the reason why it cannot be done."""
    if libc.ptrace(request, thread, None, None) < 0:
        sys.exit(f"thread {thread} cannot be held: {os.strerror(ctypes.get_errno())}")


threads = [int(argument) for argument in sys.argv[1:]]
for thread in threads:
    ptrace(PTRACE_SEIZE, thread)
    ptrace(PTRACE_INTERRUPT, thread)
    os.waitpid(thread, WALL)
print("held", flush=True)
# A held thread is not notified of anything but its end.
for thread in threads:
    os.waitpid(thread, WALL)
