"""The `ssh` transport: a stand-in for ssh on the client's PATH, whose account of itself is read as a wire's ledger."""

import fcntl
import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from fairtrial.wire.faults import Fault, FaultKind, FaultReport
from fairtrial.wire.ledger import (
    LEDGER_SCHEMA,
    ByteCounts,
    ConnectionReuse,
    Delivery,
    ForwardLedger,
    RequestRecord,
    WireLedger,
)

__all__ = ["METHOD", "SshWire"]

METHOD: Final = "SSH"
POLL_S: Final = 0.01
SCRIPT: Final = Path(__file__).parents[1] / "payload" / "fake_ssh.py"


class SshWire:
    """The files through which the stand-in is told what to do and tells what it did.

    Attributes:
        path: The directory that must stand first on the client's PATH.
    """

    def __init__(self, directory: Path, watch: str) -> None:
        """Make them."""
        self._directory = directory
        self._watch = watch
        self._n_plans = 0
        self._faults: tuple[Fault, ...] = ()
        self.path = directory / "bin"
        self.path.mkdir(parents=True)
        self._link("ssh", sys.executable, "-I", "-S", str(SCRIPT), str(directory))
        self.set_faults(())

    def serve_by(self, name: str, binary: str) -> None:
        """Let the server's commands of that name be carried out by this program: over ssh a client names no path."""
        self._link(name, binary)

    def _link(self, name: str, *command: str) -> None:
        script = self.path / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)

    def set_faults(self, faults: Sequence[Fault], reuse: ConnectionReuse | None = None) -> None:  # noqa: ARG002 - as a wire
        """Replace the plan of faults and its counts; one connection is one command, so there is no reuse."""
        self._n_plans += 1
        self._faults = tuple(faults)
        rules = [asdict(fault) for fault in faults]
        plan = {"plan": self._n_plans, "watch": self._watch, "faults": rules}
        new = self._directory / "plan.new"
        new.write_text(json.dumps(plan))
        new.replace(self._directory / "plan.json")

    def drain(self, timeout_s: float) -> bool:
        """Wait until no connection is left, for at most so long; whether none is."""
        deadline_s = time.monotonic() + timeout_s
        with (self._directory / "running").open("a") as lock:
            while time.monotonic() < deadline_s:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(POLL_S)
                else:
                    return True
        return False

    def ledger(self) -> WireLedger:
        """What passed so far, in the form of a wire's ledger: one record for each connection that published."""
        path = self._directory / "calls.jsonl"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        names = ("up", "to_server", "down", "to_client")
        up, to_server, down, to_client = (sum(call[name] for call in calls) for name in names)
        reports = tuple(self._report(fault, calls) for fault in self._faults)
        return WireLedger(
            schema=LEDGER_SCHEMA,
            forward=ForwardLedger(
                connection_reuse=ConnectionReuse.FRESH,
                connections=len(calls),
                in_flight=0,
                bytes=ByteCounts(
                    client_to_proxy=up, proxy_to_server=to_server, server_to_proxy=down, proxy_to_client=to_client
                ),
                requests=tuple(self._record(n, call) for n, call in enumerate(calls, 1) if call["marked"]),
                faults=reports,
                faults_as_planned=all(report.as_planned for report in reports),
            ),
            front=None,
            internal_errors=(),
        )

    def _report(self, fault: Fault, calls: Sequence[Mapping[str, Any]]) -> FaultReport:
        own = [call for call in calls if call["plan"] == self._n_plans and call["marked"]]
        n_fired = sum(call["fired"] for call in own)
        n_due = len(own) if fault.nth == 0 else int(len(own) >= fault.nth)
        return FaultReport(fault=fault, n_matched=len(own), n_fired=n_fired, as_planned=n_fired == n_due > 0)

    def _record(self, number: int, call: Mapping[str, Any]) -> RequestRecord:
        delivery = Delivery.COMPLETE
        if call["cut"]:
            delivery = Delivery.PARTIAL if call["past"] else Delivery.NOT_SENT
        return RequestRecord(
            connection=number,
            method=METHOD,
            target=self._watch,
            started_ms=None,
            elapsed_ms=None,
            request_declared_bytes=None,
            request_head_bytes=0,
            request_body_bytes=call["up"],
            request_wire_bytes=call["up"],
            request_complete=None,
            delivery=delivery,
            status=None,
            reply_head_bytes=0,
            reply_body_bytes=call["down"],
            reply_wire_bytes=call["down"],
            reply_complete=None,
            client_status=None,
            client_gone=None,
            fault=None if call["fault"] is None else FaultKind(call["fault"]),
            fault_fired=call["fired"],
            error=None,
        )
