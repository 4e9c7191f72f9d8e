"""The fields of a verdict row, each from its own source."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

from fairtrial.loop.fault_cases import FaultCase
from fairtrial.loop.observe import OnTheWire
from fairtrial.loop.rows import Row
from fairtrial.loop.seed import NOTES
from fairtrial.loop.stage import HeadLook, Stage
from fairtrial.loop.truth import Expectation
from fairtrial.loop.work import NO_WIRE
from fairtrial.model.loop import LocalState, Place, Sabotage, Transport, Truth
from fairtrial.model.process import ProcessResult
from fairtrial.wire.ledger import ForwardLedger

__all__ = [
    "Prepared",
    "Published",
    "case_fields",
    "fault_fields",
    "invalid_fields",
    "last_words",
    "local_fields",
    "notes_sha256",
    "wire_fields",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The work that is about to be published.

    Attributes:
        place: Where it is.
        expected: What the server must hold of it.
        notes_sha256: Digest of the notes in the workspace; None when they are not there.
        rival: The head of another writer who went first; None without one.
        before: A look at the branch's head once that writer had published; None without one.
        sabotage: How the store was made to fail; None when it was not.
    """

    place: Place
    expected: Expectation
    notes_sha256: str | None
    rival: str | None
    before: HeadLook | None
    sabotage: Sabotage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What was seen of the publication before anything was asked or repaired.

    Attributes:
        result: The client's ending.
        at_exit: A look at the branch's head in the store when the client had just ended.
        drained: Nothing was in flight any more when the rest was read; None where nobody can know.
        revived: The fault had ended the server, and it was started again.
        requests_from: Which of the forwarder's requests is its first.
        ledger: What the forwarder saw; None where there is none.
        truth: What was read back.
        elapsed_ms: Time that the harness took for all this, in ms.
    """

    result: ProcessResult
    at_exit: HeadLook
    drained: bool | None
    revived: bool
    requests_from: int
    ledger: ForwardLedger | None
    truth: Truth
    elapsed_ms: float


def local_fields(stage: Stage, prepared: Prepared) -> Row:
    """Whether the local work is as it was, and what the workspace says of itself."""
    place = prepared.place
    head, state = stage.subject.client_head(stage.probe, place), stage.subject.local_state(stage.probe, place)
    head_kept = prepared.expected.head is not None and head == prepared.expected.head
    payload_kept = prepared.notes_sha256 is not None and notes_sha256(place) == prepared.notes_sha256
    return {
        "local_head_preserved": head_kept,
        "worktree_payload_preserved": payload_kept,
        "local_work_preserved": head_kept and payload_kept,
        **_state_fields(state),
    }


def _state_fields(state: LocalState) -> Row:
    return {"unpublished_after": state.unpublished, "working_tree_dirty_after": state.dirty}


def notes_sha256(place: Place) -> str | None:
    """Digest of the notes in a workspace; None when they are not there."""
    path = place.workspace / NOTES
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def case_fields(stage: Stage, case: FaultCase) -> Row:
    """What was planned."""
    return {
        "fault_case": case.name,
        "fault_kind": _kind(case),
        "connection_reuse": case.reuse if stage.spec.loop.transport is Transport.HTTP else None,
        "client_end": case.client_end,
    }


def _kind(case: FaultCase) -> str | None:
    if case.wire is not None:
        return case.wire.kind
    return case.store


def invalid_fields(stage: Stage, case: FaultCase, reason: str) -> Row:
    """All that is to say of a case whose work failed before it could be published."""
    return case_fields(stage, case) | {"valid": False, "invalid_reason": reason, "verdict": None}


def fault_fields(ledger: ForwardLedger | None, sabotage: Sabotage | None) -> Row:
    """What became of the fault, by its own account."""
    faults = () if ledger is None else ledger.faults
    marks = 0
    if sabotage is not None and sabotage.mark is not None and sabotage.mark.exists():
        marks = len(sabotage.mark.read_text().splitlines())
    return {
        "faults": [asdict(report.fault) for report in faults],
        "fault_matched": sum(report.n_matched for report in faults),
        "fault_fired": sum(report.n_fired for report in faults) + marks,
    }


def wire_fields(stage: Stage, published: Published, wire: OnTheWire | None) -> Row:
    """What the forwarder saw."""
    if wire is None or published.ledger is None:
        return {
            "delivery": None,
            "delivery_reason": NO_WIRE[stage.spec.loop.transport],
            "mutation_requests_observed": None,
            "blind_replay_requests": None,
            "publication_bytes": None,
            "drained": published.drained,
        }
    seen: Sequence[int] = [
        record.request_wire_bytes + record.reply_wire_bytes
        for record in published.ledger.requests[published.requests_from :]
    ]
    return {
        "delivery": wire.delivery,
        "delivery_reason": None,
        "mutation_requests_observed": wire.n_mutations,
        "blind_replay_requests": wire.n_replays,
        # only there is a record one request: over native it begins at the mark, over ssh it is a whole session
        "publication_bytes": sum(seen) if stage.spec.loop.transport is Transport.HTTP else None,
        "drained": published.drained,
    }


def last_words(result: ProcessResult) -> str:
    """The end of what the client printed, on both streams."""
    text = (result.stdout.tail + b"\n" + result.stderr.tail).decode("utf-8", "replace").strip()
    return text[-400:]
