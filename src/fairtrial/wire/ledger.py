"""What the wire saw, as frozen values, and their one JSON form."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from fairtrial.wire.faults import FaultKind, FaultReport
from fairtrial.wire.fixture import FixtureLedger

__all__ = [
    "LEDGER_SCHEMA",
    "ByteCounts",
    "ConnectionReuse",
    "Delivery",
    "ForwardLedger",
    "FrontLedger",
    "RequestRecord",
    "WireLedger",
    "render_ledger",
]

LEDGER_SCHEMA = "wire-ledger/1"


class ConnectionReuse(StrEnum):
    """Whether a client may send its next request on the connection of the last one.

    It decides whether libcurl takes a lost reply for a stale connection and sends a POST again: a factor, not a detail.
    """

    REUSED = "reused"
    FRESH = "fresh"


class Delivery(StrEnum):
    """How much of one request the server was sent."""

    NOT_SENT = "not_sent"
    PARTIAL = "partial"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteCounts:
    """Raw bytes, heads and framing included. Received: out of the kernel; sent: handed to it.

    Attributes:
        client_to_proxy: Received from clients.
        proxy_to_server: Sent to the server.
        server_to_proxy: Received from the server.
        proxy_to_client: Sent to clients.
    """

    client_to_proxy: int
    proxy_to_server: int
    server_to_proxy: int
    proxy_to_client: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request and what became of it.

    Attributes:
        connection: Number of the client connection, from 1.
        method: The method; "" when the head could not be read.
        target: The request target, undecoded; "" likewise.
        started_ms: From the forwarder's start to the end of the head, in milliseconds; None where no clock ran.
        elapsed_ms: From the end of the head to the end of the exchange, in milliseconds; None likewise.
        request_declared_bytes: Content-Length; None when none was declared.
        request_head_bytes: Bytes of the head.
        request_body_bytes: Payload bytes of the body that arrived.
        request_wire_bytes: Head and body as they arrived, chunk framing included.
        request_complete: The whole request arrived from the client; None where only bytes are known.
        delivery: How much of it the server was sent; where only bytes are known, of what the client sent.
        status: The server's status; None when it sent none.
        reply_head_bytes: Bytes of all heads of the reply, interim ones too.
        reply_body_bytes: Payload bytes of the reply's body that the server sent.
        reply_wire_bytes: Heads and body as the server sent them, chunk framing included.
        reply_complete: The whole reply arrived from the server; None where only bytes are known.
        client_status: The status the client was sent; None when it was sent none.
        client_gone: The client left before the exchange ended; None where only bytes are known.
        fault: The kind of the fault that hit this request, fired or not; None without.
        fault_fired: Its effect was complete.
        error: What went wrong without being planned, in one line; None when nothing did.
    """

    connection: int
    method: str
    target: str
    started_ms: float | None
    elapsed_ms: float | None
    request_declared_bytes: int | None
    request_head_bytes: int
    request_body_bytes: int
    request_wire_bytes: int
    request_complete: bool | None
    delivery: Delivery
    status: int | None
    reply_head_bytes: int
    reply_body_bytes: int
    reply_wire_bytes: int
    reply_complete: bool | None
    client_status: int | None
    client_gone: bool | None
    fault: FaultKind | None
    fault_fired: bool
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardLedger:
    """What the forwarder saw so far.

    Attributes:
        connection_reuse: The factor it ran with.
        connections: Client connections accepted.
        in_flight: Requests whose upstream work is not finished.
        bytes: The four raw counters.
        requests: Finished exchanges in the order in which they finished.
        faults: What became of each planned fault.
        faults_as_planned: Every planned fault fired exactly as planned; true of an empty plan.
    """

    connection_reuse: ConnectionReuse
    connections: int
    in_flight: int
    bytes: ByteCounts
    requests: tuple[RequestRecord, ...]
    faults: tuple[FaultReport, ...]
    faults_as_planned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontLedger:
    """What the git front did so far.

    Attributes:
        requests: CGI children started.
        running: CGI children not yet reaped.
        stderr_tail: The last of what the children wrote to standard error.
    """

    requests: int
    running: int
    stderr_tail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLedger:
    """What one wire server saw so far.

    Attributes:
        schema: `wire-ledger/1`.
        forward: The forwarder's part; None when none was asked for.
        front: The git front's part; None likewise.
        fixture: The fixture's part; None likewise.
        internal_errors: Failures of the instrument itself; a row measured while there is one is invalid.
    """

    schema: str
    forward: ForwardLedger | None
    front: FrontLedger | None
    internal_errors: tuple[str, ...]
    fixture: FixtureLedger | None = None


def render_ledger(ledger: WireLedger) -> str:
    """Return the ledger as one JSON line, without its newline."""
    return json.dumps(asdict(ledger), separators=(",", ":"))
