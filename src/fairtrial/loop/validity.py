"""Whether what was seen of a publication under a fault is evidence: each fault exactly as planned, all of it read."""

from typing import Final

from fairtrial.evidence.publication import Delivery, ServerTruth
from fairtrial.loop.fault_cases import ClientEnd, FaultCase
from fairtrial.loop.observe import OnTheWire
from fairtrial.loop.truth import unread_of
from fairtrial.loop.verdict_row import Prepared, Published

__all__ = ["DRAIN_S", "landed_unseen", "why_invalid"]

DRAIN_S: Final = 30.0
"""How long nothing may stay in flight after the client's end, in seconds."""


def why_invalid(
    case: FaultCase, prepared: Prepared, published: Published, wire: OnTheWire | None, truth: ServerTruth | None
) -> str:
    """Why the row is no evidence; "" when it is."""
    ledger, mark = published.ledger, None if prepared.sabotage is None else prepared.sabotage.mark
    if prepared.expected.head is None:
        return "no head could be read before the publication"
    if published.at_exit.unread:
        return f"nobody could look at the client's end: {published.at_exit.unread}"
    if truth is None:
        return f"not everything could be read: {'; '.join(unread_of(published.truth)) or 'the notes'}"
    if published.drained is False:
        return f"something was still in flight after {DRAIN_S:g} s"
    if case.wire is not None and ledger is None:
        return "nothing stood on the wire that could have failed"
    if ledger is not None and not ledger.faults_as_planned:
        reports = ", ".join(f"{r.fault.kind}: matched {r.n_matched}, fired {r.n_fired}" for r in ledger.faults)
        return f"the fault did not fire as planned ({reports})"
    if mark is not None and not mark.exists():
        return "the server's fault did not fire"
    if prepared.sabotage is not None and mark is None and (wire is None or wire.delivery is not Delivery.COMPLETE):
        return "the refused request never reached the server"
    if case.client_end is ClientEnd.KILLED and not published.result.forced_kill:
        return "the client ended before it could be killed"
    if case.client_end is ClientEnd.TIME_LIMIT and not published.result.timed_out:
        return "the client ended before its limit"
    if case.rival and prepared.rival is None:
        return "the other writer's head could not be read"
    if prepared.before is not None and prepared.before.head != prepared.rival:
        there = prepared.before.unread or prepared.before.head or "nothing"
        return f"the other writer's work was not on the branch before the publication ({there})"
    return ""


def landed_unseen(truth: ServerTruth | None, head: str | None, found: str | None, *, n_publishes: int) -> str:
    """Why a truth that was read too early is no evidence; "" when it was not.

    A server says of no request whose client is gone that it has done it. The wait for it is bounded, and what lands
    after that would stand there as absent for good.

    Args:
        truth: What was read of the store once nothing was in flight.
        head: What was published.
        found: The branch's head in the store after the recovery.
        n_publishes: Publications in between: with any, nobody can tell whose it is.
    """
    if truth is not ServerTruth.ABSENT or head is None or found != head or n_publishes:
        return ""
    return "it landed after the store had been read as absent: nobody had published again"
