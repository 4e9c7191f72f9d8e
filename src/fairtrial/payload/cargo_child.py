"""Starts a test binary for cargo, and believes its success only where it came to its end: see `test_runner.py`.

    python3 -I -S cargo_child.py OWN LIBRARY BINARY ARGUMENT...

OWN are the binaries of the oracle's own files, a colon between two; any other is started and left to itself. LIBRARY is
the descriptor of cargo_end.c's library. Exit codes: the binary's; 3 for a success before its end; 128 and the number of
the signal that ended it. Runs on the system's Python 3.9 or newer, and is imported by nobody.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import subprocess
import sys

__all__ = ["main"]

NOT_BELIEVED = 3
PR_SET_DUMPABLE = 4


def main() -> int:
    """Start it."""
    own, library, binary, *arguments = sys.argv[1:]
    if os.path.realpath(binary) not in own.split(os.pathsep):
        os.execv(binary, [binary, *arguments])  # noqa: S606 - as cargo does
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    key = secrets.token_bytes(32)
    ours, theirs = socket.socketpair()
    ours.sendall(key)
    env = {**os.environ, "LD_PRELOAD": f"/proc/self/fd/{library}", "FAIRTRIAL_END_FD": str(theirs.fileno())}
    with theirs:
        child = subprocess.Popen([binary, *arguments], env=env, pass_fds=[theirs.fileno(), int(library)])
    returncode = child.wait()
    # Whoever still holds the other end has nothing to say any more.
    ours.shutdown(socket.SHUT_RD)
    if returncode == 0 and ours.recv(2 * len(key)) != key:
        sys.stderr.write(f"test_runner: {binary} ended with 0 before its end\n")
        return NOT_BELIEVED
    return returncode if returncode >= 0 else 128 - returncode


if __name__ == "__main__":
    sys.exit(main())
