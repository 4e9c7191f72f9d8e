"""A stand-in for `ssh`: runs the server's command on this machine, counts what passes, and can lose the connection.

`fake_ssh.py DIRECTORY [ssh options] HOST COMMAND...`. The plan is read from DIRECTORY/plan.json, one line for each call
is appended to DIRECTORY/calls.jsonl, and DIRECTORY/running is locked (shared) while a call lasts. Standard library
only; nobody imports this file.
"""

import fcntl
import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Final, cast

CHUNK_BYTES: Final = 64 * 1024
OPTIONS_WITH_VALUE: Final = frozenset("bcDEeFIiJLlmOopQRSWw")
QUIET_S: Final = 0.3
LOST: Final = 255  # what ssh ends with when the connection is gone


class Call:
    """One connection: what passed, where the mark was, and the fault that hit it."""

    def __init__(self, plan: dict[str, Any], n_before: int) -> None:
        self.mark = str(plan["watch"]).encode()
        self.faults: list[dict[str, Any]] = plan["faults"]
        self.n_matched = n_before
        self.up = self.to_server = self.down = self.to_client = 0  # as a forwarder's four counters
        self.past = self.swallowed = 0
        self.marked = self.cut = self.fired = False
        self.fault: dict[str, Any] | None = None
        self.tail = b""

    def see(self, data: bytes) -> int:
        """Look for the mark; how many bytes of the piece stand before its end, or -1 when it is not there."""
        if self.marked:
            return -1
        seen = self.tail + data
        at = seen.find(self.mark)
        if at < 0:
            self.tail = seen[max(0, len(seen) - len(self.mark) + 1) :]
            return -1
        self.marked = True
        self.n_matched += 1
        due = (fault for fault in self.faults if fault["nth"] in {0, self.n_matched})
        self.fault = next(due, None)
        return at + len(self.mark) - len(self.tail)

    @property
    def kind(self) -> str:
        """What is done to the connection; "" for nothing."""
        return "" if self.fault is None else str(self.fault["kind"])


def carry(call: Call, server: "subprocess.Popen[bytes]") -> int:
    """Move bytes both ways until the server has ended or the connection is lost; the exit status of ssh."""
    answers = cast("IO[bytes]", server.stdout)
    selector = selectors.PollSelector()  # standard input may be /dev/null, which epoll refuses
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ, "up")
    selector.register(answers, selectors.EVENT_READ, "down")
    while True:
        ready = selector.select(QUIET_S if call.swallowed else None)
        if not ready:  # what there was to swallow is over, and the server waits for more
            call.fired = True
            server.kill()
            return LOST
        for key, _ in ready:
            data = os.read(key.fd, CHUNK_BYTES)
            if key.data == "up":
                if not data:
                    selector.unregister(key.fileobj)
                    cast("IO[bytes]", server.stdin).close()
                elif not upload(call, server, data):
                    return LOST
            elif not data:
                status = server.wait()
                if call.kind == "drop_reply":
                    call.fired = call.swallowed > 0
                    return LOST
                return status
            else:
                call.down += len(data)
                if call.kind == "drop_reply":
                    call.swallowed += len(data)
                elif not answer(call, data):
                    cast("IO[bytes]", server.stdin).close()
                    answers.close()
                    server.wait()  # what it does yet is still in flight
                    return LOST


def upload(call: Call, server: "subprocess.Popen[bytes]", data: bytes) -> bool:
    """Pass a piece on to the server; false when the connection is lost on the way."""
    call.up += len(data)
    before = call.see(data)
    if before >= 0:
        write(call, server, data[:before])
        data = data[before:]
        if call.kind == "rst_connect":
            call.cut = call.fired = True
            server.kill()
            return False
        if call.kind == "delay":
            time.sleep((call.fault or {}).get("parameter", 0) / 1000)
            call.fired = True
    if call.marked and call.kind == "drop_mid_request":
        left = int((call.fault or {})["parameter"]) - call.past
        if len(data) > left:
            write(call, server, data[:left])
            call.past += left
            call.cut = call.fired = True
            cast("IO[bytes]", server.stdin).close()
            server.wait()
            return False
    write(call, server, data)
    call.past += len(data) if call.marked else 0
    return True


def answer(call: Call, data: bytes) -> bool:
    """Pass a piece on to the client; false when that has left."""
    try:
        call.to_client += os.write(sys.stdout.fileno(), data)
    except BrokenPipeError:
        return False
    return True


def write(call: Call, server: "subprocess.Popen[bytes]", data: bytes) -> None:
    """Write all of it and count it; a server that has left wants no more."""
    stdin = cast("IO[bytes]", server.stdin)
    try:
        stdin.write(data)
    except BrokenPipeError:
        return
    call.to_server += len(data)


def command_in(arguments: list[str]) -> str:
    """The command behind the options and the host's name."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if len(option) == 2 and option[1] in OPTIONS_WITH_VALUE:
            rest.pop(0)
    return " ".join(rest[1:])


def main() -> int:
    """Serve one call."""
    directory, arguments = Path(sys.argv[1]), sys.argv[2:]
    with (directory / "running").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        calls = directory / "calls.jsonl"
        plan = json.loads((directory / "plan.json").read_text())
        before = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
        call = Call(plan, sum(each["marked"] for each in before if each["plan"] == plan["plan"]))
        argv = ["/bin/sh", "-c", command_in(arguments)]
        # unbuffered: what a server that has left did not take would be written once more, and fail, at the close
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as server:
            status = carry(call, server)
        record = {
            "plan": plan["plan"],
            "up": call.up,
            "to_server": call.to_server,
            "down": call.down,
            "to_client": call.to_client,
            "marked": call.marked,
            "past": call.past,
            "cut": call.cut,
            "fault": call.kind or None,
            "fired": call.fired,
            "status": status,
        }
        with calls.open("a") as file:
            file.write(json.dumps(record) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
