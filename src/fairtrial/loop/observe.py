"""What became of one publication, each fact from its own source: the wire, the store. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairtrial.evidence.publication import Delivery, ServerTruth
from fairtrial.loop.truth import Expectation, judge_truth, unread_of
from fairtrial.model.loop import Truth
from fairtrial.wire import ledger as wire

__all__ = ["OnTheWire", "read_delivery", "server_truth"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTheWire:
    """What passed of one publication.

    Attributes:
        delivery: How much of it the server was sent, and whether more than once.
        n_mutations: Requests observed that can move a branch.
        n_replays: Those beyond what an undisturbed publication sends.
    """

    delivery: Delivery
    n_mutations: int
    n_replays: int


def read_delivery(requests: Sequence[wire.RequestRecord], publication_request: str, *, n_usual: int) -> OnTheWire:
    """Read the forwarder's records of one publication.

    Args:
        requests: What it saw from the publication's beginning to the end of everything in flight.
        publication_request: The substring of "METHOD target" that tells which can move a branch.
        n_usual: How many of those an undisturbed publication sends.
    """
    mutations = [each for each in requests if publication_request in f"{each.method} {each.target}"]
    n_replays = max(0, len(mutations) - n_usual)
    reached = {each.delivery for each in mutations}
    if n_replays:
        delivery = Delivery.REPLAYED
    elif wire.Delivery.COMPLETE in reached:
        delivery = Delivery.COMPLETE
    elif wire.Delivery.PARTIAL in reached:
        delivery = Delivery.PARTIAL
    else:
        delivery = Delivery.NOT_SENT
    return OnTheWire(delivery=delivery, n_mutations=len(mutations), n_replays=n_replays)


def server_truth(
    expected: Expectation, head_at_exit: str | None, truth: Truth
) -> tuple[ServerTruth | None, tuple[str, ...]]:
    """What the server holds of a publication, and every way in which that is not what was published.

    Args:
        expected: What was published.
        head_at_exit: The branch's head in the store when the client had just ended.
        truth: Everything read back once nothing was in flight.

    Returns:
        None for the truth when there is nothing to compare with, or not everything could be read: a head that nobody
        could look for is not absent, and notes that could not be read are no other notes.
    """
    check = judge_truth(expected, replace(truth, integrity=None))  # a store's soundness is a fact of its own
    if check.holds is None or unread_of(truth):
        return None, check.failures
    if check.holds:
        late = head_at_exit != expected.head
        return ServerTruth.DURABLE_LATE if late else ServerTruth.DURABLE, ()
    if all(reading.head is None for reading in truth.readings):
        return ServerTruth.ABSENT, check.failures
    differs = any(each.head != expected.head or each.content not in {None, expected.content} for each in truth.readings)
    return ServerTruth.OTHER_HEAD if differs else None, check.failures
