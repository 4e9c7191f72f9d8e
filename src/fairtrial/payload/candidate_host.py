"""Runs commands of a candidate, in a sandbox of its own, for an oracle that sits in another one.

    python3 -I -S candidate_host.py

Descriptor 3 is a listening unix socket. Each caller sends one request, a length in eight bytes (big end first) and as
many bytes of JSON: `argv`, and `stdin` in base64. It is run in the directory in which this was started; the reply, in
the same form, has `returncode`, `stdout` and `stderr`, the first MOST_OUTPUT_BYTES of each in base64. What lies to the
caller here lies about its own work only. Runs on Python 3.9 or newer with nothing but the standard library, and is
imported by nobody.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading

__all__ = ["main", "receive", "run", "serve"]

LISTENER_FD = 3
LENGTH_BYTES = 8
MOST_REQUEST_BYTES = 64 << 20
MOST_OUTPUT_BYTES = 16 << 20
NOT_FOUND = 127


def receive(caller: socket.socket, n_bytes: int) -> bytes:
    """Receive so many bytes; fewer when the caller ends before."""
    data = b""
    while len(data) < n_bytes:
        chunk = caller.recv(n_bytes - len(data))
        if not chunk:
            break
        data += chunk
    return data


def run(argv: list[str], stdin: bytes) -> dict[str, object]:
    """Run a command to its end, and end what it left of its process group."""
    # Files, and not pipes: whoever inherits them keeps nobody waiting, and the file system's size is their bound.
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        source.write(stdin)
        source.seek(0)
        try:
            child = subprocess.Popen(argv, stdin=source, stdout=out, stderr=err, start_new_session=True)
        except OSError as problem:
            return {"returncode": NOT_FOUND, "stdout": "", "stderr": base64.b64encode(str(problem).encode()).decode()}
        returncode = child.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        out.seek(0)
        err.seek(0)
        return {
            "returncode": returncode,
            "stdout": base64.b64encode(out.read(MOST_OUTPUT_BYTES)).decode(),
            "stderr": base64.b64encode(err.read(MOST_OUTPUT_BYTES)).decode(),
        }


def serve(caller: socket.socket) -> None:
    """Serve one caller."""
    with caller:
        length = int.from_bytes(receive(caller, LENGTH_BYTES), "big")
        if length > MOST_REQUEST_BYTES:
            return
        request = json.loads(receive(caller, length))
        reply = json.dumps(run(request["argv"], base64.b64decode(request["stdin"]))).encode()
        caller.sendall(len(reply).to_bytes(LENGTH_BYTES, "big") + reply)


def main() -> None:
    """Serve until killed."""
    listener = socket.socket(fileno=LISTENER_FD)
    listener.set_inheritable(False)
    while True:
        caller, _ = listener.accept()
        threading.Thread(target=serve, args=(caller,), daemon=True).start()


if __name__ == "__main__":
    main()
