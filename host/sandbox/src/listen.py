"""Listens at some addresses, gives the sockets to whoever is at the other end of standard input, and becomes a tool.

usage: listen.py ADDRESS... -- PROGRAM ARGUMENT...
"""

import os
import signal
import socket
import sys

split = sys.argv.index("--")
addresses, program = sys.argv[1:split], sys.argv[split + 1 :]
said = program[0]
try:
    listeners = []
    for address in addresses:
        said = address
        host, port = address.rsplit(":", 1)
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        listeners.append(socket.create_server((host.strip("[]"), int(port)), family=family))
    said = "standard input"
    with socket.socket(fileno=os.dup(0)) as outside:
        socket.send_fds(outside, [b"\n"], [listener.fileno() for listener in listeners])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    said = program[0]
    # It has none of the sockets: they are closed when it begins.
    os.execvp(program[0], program)
except OSError as error:
    sys.exit(f"listen.py: {said}: {error.strerror}")
