#!/usr/bin/python3 -IS
"""Runs a command of the candidate's where the candidate is: in another sandbox.

    $FAIRTRIAL_CANDIDATE COMMAND [ARGUMENT...]

Its standard input, output, error and exit status are the command's, as if it ran here; 128 + n for signal n. Exit code
125: the candidate's sandbox does not answer. Runs on Python 3.9 or newer with nothing but the standard library, and is
imported by nobody.
"""

from __future__ import annotations

import base64
import json
import socket
import sys

__all__ = ["main", "receive"]

SOCKET = "/fairtrial/candidate.sock"
LENGTH_BYTES = 8
MOST_REPLY_BYTES = 64 << 20
NO_ANSWER = 125


def receive(channel: socket.socket, n_bytes: int) -> bytes:
    """Receive so many bytes.

    Raises:
        OSError: The other end has gone.
    """
    data = b""
    while len(data) < n_bytes:
        chunk = channel.recv(n_bytes - len(data))
        if not chunk:
            raise OSError("it has gone")
        data += chunk
    return data


def main() -> int:
    """Run the command."""
    request = {"argv": sys.argv[1:], "stdin": base64.b64encode(sys.stdin.buffer.read()).decode()}
    text = json.dumps(request).encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.connect(SOCKET)
            channel.sendall(len(text).to_bytes(LENGTH_BYTES, "big") + text)
            length = int.from_bytes(receive(channel, LENGTH_BYTES), "big")
            reply = json.loads(receive(channel, min(length, MOST_REPLY_BYTES)))
        sys.stdout.buffer.write(base64.b64decode(reply["stdout"]))
        sys.stderr.buffer.write(base64.b64decode(reply["stderr"]))
        returncode = int(reply["returncode"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        sys.stderr.write(f"candidate: no answer: {problem}\n")
        return NO_ANSWER
    return returncode if 0 <= returncode <= 255 else 128 - returncode if -128 < returncode < 0 else NO_ANSWER


if __name__ == "__main__":
    sys.exit(main())
