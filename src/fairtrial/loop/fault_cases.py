"""The cases of `publication_under_fault_v1` as data. A name is immutable: a changed meaning is a new name."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fairtrial.model.loop import Manner, StoreFault, Transport
from fairtrial.wire.faults import Fault, FaultKind
from fairtrial.wire.ledger import ConnectionReuse

__all__ = ["CONTROL", "FAULT_CASES", "ClientEnd", "FaultCase", "Hit", "WireFault", "cases_elsewhere", "chosen_cases"]

HELD_MS: Final = 60_000
"""How long the request of a client that is killed is held at most: it is let go once the store was looked at."""

HTTP: Final = frozenset({Transport.HTTP})
NATIVE: Final = frozenset({Transport.NATIVE})
SSH: Final = frozenset({Transport.SSH})
OWN_SERVERS: Final = frozenset({Transport.HTTP, Transport.FILE, Transport.NATIVE, Transport.SSH})
EVERY: Final = OWN_SERVERS | {Transport.HOSTED}
"""A hosted remote is nobody's to break, nothing is seen inside its TLS, and no branch of it is ever forced."""


class Hit(StrEnum):
    """Which of a publication's requests a wire fault hits."""

    PUBLICATION = "publication"  # what can move the branch
    FIRST = "first"  # whatever comes first: for most tools a question that changes nothing


class ClientEnd(StrEnum):
    """How the publishing client ends."""

    ITS_OWN = "its_own"
    KILLED = "killed"  # SIGKILL while its request is held
    TIME_LIMIT = "time_limit"  # it hangs when the fault has hit it, and is ended after a while


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFault:
    """What the forwarder does to one request, or to each of a kind.

    Attributes:
        kind: What is done.
        parameter: As `FaultKind` says.
        nth: Which matching request, from 1; 0 = every one.
        hit: Which requests match.
    """

    kind: FaultKind
    parameter: int | None = None
    nth: int = 1
    hit: Hit = Hit.PUBLICATION

    def rule(self, publication: str) -> Fault:
        """The forwarder's rule, given what tells a publication."""
        match = publication if self.hit is Hit.PUBLICATION else ""
        return Fault(match=match, nth=self.nth, kind=self.kind, parameter=self.parameter)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCase:
    """One way in which a publication is disturbed.

    Attributes:
        name: Its name.
        transports: Where it can be done.
        wire: What the forwarder does; None for nothing.
        reuse: Whether the client may send its publication on the connection of its questions; a factor of HTTP alone.
        client_end: How the client ends.
        store: What the server's own store does; None for nothing.
        rival: Another writer publishes to the same branch first.
        manner: How the client publishes.
    """

    name: str
    transports: frozenset[Transport] = HTTP
    wire: WireFault | None = None
    reuse: ConnectionReuse = ConnectionReuse.REUSED
    client_end: ClientEnd = ClientEnd.ITS_OWN
    store: StoreFault | None = None
    rival: bool = False
    manner: Manner = Manner.PLAIN


CONTROL: Final = "control"
FRESH: Final = ConnectionReuse.FRESH

FAULT_CASES: Final[dict[str, FaultCase]] = {
    case.name: case
    for case in (
        FaultCase(name=CONTROL, transports=EVERY),
        FaultCase(name="control_fresh", reuse=FRESH),
        FaultCase(name="reply_lost_reused", wire=WireFault(kind=FaultKind.DROP_REPLY)),
        FaultCase(name="reply_lost_fresh", wire=WireFault(kind=FaultKind.DROP_REPLY), reuse=FRESH),
        FaultCase(name="every_reply_lost", wire=WireFault(kind=FaultKind.DROP_REPLY, nth=0)),
        FaultCase(name="reply_reset", wire=WireFault(kind=FaultKind.RST_REPLY)),
        FaultCase(name="reply_cut", wire=WireFault(kind=FaultKind.TRUNCATE_REPLY, parameter=10)),
        FaultCase(name="request_lost", wire=WireFault(kind=FaultKind.DROP_BEFORE_FORWARD)),
        FaultCase(name="request_lost_fresh", wire=WireFault(kind=FaultKind.DROP_BEFORE_FORWARD), reuse=FRESH),
        FaultCase(name="request_cut", wire=WireFault(kind=FaultKind.DROP_MID_REQUEST, parameter=100)),
        FaultCase(name="request_reset", wire=WireFault(kind=FaultKind.RST_CONNECT)),
        FaultCase(name="status_500", wire=WireFault(kind=FaultKind.STATUS, parameter=500)),
        FaultCase(name="status_503", wire=WireFault(kind=FaultKind.STATUS, parameter=503)),
        FaultCase(name="server_down", wire=WireFault(kind=FaultKind.RST_CONNECT, hit=Hit.FIRST, nth=0)),
        FaultCase(name="first_reply_lost", wire=WireFault(kind=FaultKind.DROP_REPLY, hit=Hit.FIRST)),
        FaultCase(name="request_delayed", wire=WireFault(kind=FaultKind.DELAY, parameter=500)),
        FaultCase(name="request_throttled", wire=WireFault(kind=FaultKind.THROTTLE, parameter=16_384)),
        FaultCase(
            name="client_killed",
            wire=WireFault(kind=FaultKind.DELAY, parameter=HELD_MS),
            client_end=ClientEnd.KILLED,
        ),
        FaultCase(name="reply_stalled", wire=WireFault(kind=FaultKind.STALL), client_end=ClientEnd.TIME_LIMIT),
        FaultCase(name="stream_reply_lost", transports=NATIVE, wire=WireFault(kind=FaultKind.DROP_REPLY)),
        FaultCase(name="stream_reply_reset", transports=NATIVE, wire=WireFault(kind=FaultKind.RST_REPLY)),
        FaultCase(name="stream_cut", transports=NATIVE, wire=WireFault(kind=FaultKind.DROP_MID_REQUEST, parameter=100)),
        FaultCase(name="stream_reset", transports=NATIVE, wire=WireFault(kind=FaultKind.RST_CONNECT)),
        FaultCase(name="stream_delayed", transports=NATIVE, wire=WireFault(kind=FaultKind.DELAY, parameter=500)),
        FaultCase(
            name="stream_client_killed",
            transports=NATIVE,
            wire=WireFault(kind=FaultKind.DELAY, parameter=HELD_MS),
            client_end=ClientEnd.KILLED,
        ),
        FaultCase(
            name="stream_stalled",
            transports=NATIVE,
            wire=WireFault(kind=FaultKind.STALL),
            client_end=ClientEnd.TIME_LIMIT,
        ),
        FaultCase(name="ssh_reply_lost", transports=SSH, wire=WireFault(kind=FaultKind.DROP_REPLY)),
        FaultCase(name="ssh_cut", transports=SSH, wire=WireFault(kind=FaultKind.DROP_MID_REQUEST, parameter=100)),
        FaultCase(name="ssh_reset", transports=SSH, wire=WireFault(kind=FaultKind.RST_CONNECT)),
        FaultCase(name="ssh_delayed", transports=SSH, wire=WireFault(kind=FaultKind.DELAY, parameter=500)),
        FaultCase(name="server_refuses", transports=OWN_SERVERS, store=StoreFault.REFUSE),
        FaultCase(name="server_killed_before", transports=OWN_SERVERS, store=StoreFault.KILL_BEFORE),
        FaultCase(name="server_killed_after", transports=OWN_SERVERS, store=StoreFault.KILL_AFTER),
        FaultCase(name="server_killed_at_report", transports=OWN_SERVERS, store=StoreFault.KILL_REPORT),
        FaultCase(name="rival_first", transports=EVERY, rival=True),
        FaultCase(name="rival_forced_over", transports=OWN_SERVERS, rival=True, manner=Manner.FORCE),
        FaultCase(
            name="rival_forced_over_reply_lost",
            rival=True,
            manner=Manner.FORCE,
            wire=WireFault(kind=FaultKind.DROP_REPLY),
        ),
    )
}


def chosen_cases(names: Sequence[str], transport: Transport) -> tuple[FaultCase, ...]:
    """The cases of those names that the transport has, in the catalogue's order; no names = all.

    The control of the transport is always among them: without it nothing else could be told from a replay.
    """
    return tuple(
        case
        for case in FAULT_CASES.values()
        if transport in case.transports and (not names or case.name in names or case.name == CONTROL)
    )


def cases_elsewhere(names: Sequence[str], transport: Transport) -> dict[str, str]:
    """The cases among those names that the transport does not have, each with why, in the catalogue's order."""
    return {
        case.name: f"{case.name} is defined for transport {', '.join(sorted(case.transports))} only"
        for case in FAULT_CASES.values()
        if case.name in names and transport not in case.transports
    }
