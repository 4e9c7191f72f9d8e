"""Standard streams to a unix socket and back: how a session reaches a tool server that lives in another sandbox.

    python3 -I -S bridge.py SOCKET

It ends when the server ends its side, and tells the server when its own input ends. Runs on the system's Python 3.9 or
newer with nothing but the standard library, and is imported by nobody. Exit codes: 0 the server ended, 2 wrong usage,
125 there is nobody at the socket.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Sequence

__all__ = ["carry_in", "carry_out", "main"]

READ_BYTES = 64 * 1024
BAD_USAGE, CANNOT_CONNECT = 2, 125


def carry_in(server: socket.socket) -> None:
    """Send what the client writes until its end, then say so."""
    try:
        while data := os.read(0, READ_BYTES):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the server is gone: the other direction has ended too


def carry_out(server: socket.socket) -> None:
    """Write what the server sends until its end, or until nobody reads it any more."""
    try:
        while data := server.recv(READ_BYTES):
            left = memoryview(data)
            while left:
                left = left[os.write(1, left) :]
    except OSError:
        return


def main(arguments: Sequence[str]) -> int:
    """Connect and carry until the server's end."""
    if len(arguments) != 1:
        os.write(2, b"bridge: usage: bridge.py SOCKET\n")
        return BAD_USAGE
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(arguments[0])
    except OSError as problem:
        os.write(2, f"bridge: {arguments[0]}: {problem.strerror}\n".encode("utf-8", "replace"))
        return CANNOT_CONNECT
    threading.Thread(target=carry_in, args=(server,), daemon=True).start()
    carry_out(server)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # the other thread may be reading an input that never ends
