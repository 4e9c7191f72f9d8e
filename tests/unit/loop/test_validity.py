"""When a publication under a fault is no evidence, and the words for it."""

from pathlib import Path
from typing import Any

import pytest

from fairtrial.evidence.publication import Delivery, ServerTruth
from fairtrial.loop.fault_cases import FAULT_CASES
from fairtrial.loop.observe import OnTheWire
from fairtrial.loop.stage import HeadLook
from fairtrial.loop.truth import Expectation
from fairtrial.loop.validity import landed_unseen, why_invalid
from fairtrial.loop.verdict_row import Prepared, Published
from fairtrial.model.loop import Place, Reading, Sabotage, Truth
from fairtrial.model.process import ProcessResult, ProcessState, StreamCapture
from fairtrial.wire.faults import Fault, FaultKind
from fairtrial.wire.ledger import ByteCounts, ConnectionReuse, FaultReport, ForwardLedger

HEAD, OTHER = "a" * 40, "b" * 40
NOWHERE = Path("/nonexistent")
SILENT = StreamCapture(n_bytes=0, n_characters=0, head=b"", head_truncated=False, tail=b"", tail_truncated=False)
PLACE = Place(
    root=NOWHERE,
    store=NOWHERE,
    base=NOWHERE,
    workspace=NOWHERE,
    remote="",
    trunk="main",
    branch="work",
    message="Work",
)


def ending(**changes: Any) -> ProcessResult:  # noqa: ANN401 - as the process has them
    fields: dict[str, Any] = {
        "argv": ("vcs", "push"),
        "state": ProcessState.EXITED,
        "returncode": 1,
        "elapsed_ms": 1.0,
        "cpu_user_s": None,
        "cpu_system_s": None,
        "peak_memory_bytes": None,
        "peak_memory_reason": "not looked at",
        "timed_out": False,
        "forced_kill": False,
        "pipe_held": False,
        "stdout": SILENT,
        "stderr": SILENT,
        "detail": "",
    }
    return ProcessResult(**(fields | changes))


def ledger(n_fired: int) -> ForwardLedger:
    fault = Fault(match="POST", nth=1, kind=FaultKind.DROP_REPLY)
    return ForwardLedger(
        connection_reuse=ConnectionReuse.REUSED,
        connections=1,
        in_flight=0,
        bytes=ByteCounts(client_to_proxy=1, proxy_to_server=1, server_to_proxy=1, proxy_to_client=1),
        requests=(),
        faults=(FaultReport(fault=fault, n_matched=1, n_fired=n_fired, as_planned=n_fired == 1),),
        faults_as_planned=n_fired == 1,
    )


def why(case: str, **seen: Any) -> str:  # noqa: ANN401 - one of many kinds of fact
    """Why a case is no evidence when everything is as planned but what is told."""
    published = Published(
        result=seen.get("result", ending()),
        at_exit=seen.get("at_exit", HeadLook(None)),
        drained=seen.get("drained", True),
        revived=False,
        requests_from=0,
        ledger=seen.get("ledger", ledger(1)),
        truth=Truth(readings=seen.get("readings", ()), integrity=True),
        elapsed_ms=1.0,
    )
    prepared = Prepared(
        place=PLACE,
        expected=Expectation(branch="work", head=seen.get("head", HEAD), content=b"exact"),
        notes_sha256=None,
        rival=seen.get("rival"),
        before=seen.get("before"),
        sabotage=seen.get("sabotage"),
    )
    wire = OnTheWire(delivery=seen.get("delivery", Delivery.COMPLETE), n_mutations=1, n_replays=0)
    return why_invalid(FAULT_CASES[case], prepared, published, wire, seen.get("truth", ServerTruth.DURABLE))


UNMARKED = Sabotage(arm=(), disarm=())
UNREAD = Reading(source="wire", head=None, content=None, detail="refused", failed=True)
KILLED, LIMITED = ending(forced_kill=True), ending(timed_out=True)


@pytest.mark.parametrize(
    ("case", "seen", "reason"),
    [
        ("reply_reset", {}, ""),
        ("reply_reset", {"truth": None, "head": None}, "no head could be read before the publication"),
        ("reply_reset", {"at_exit": HeadLook(None, "locked")}, "nobody could look at the client's end: locked"),
        (
            "reply_reset",
            {"truth": None, "readings": (UNREAD,)},
            "not everything could be read: wire: could not be read (refused)",
        ),
        ("reply_reset", {"truth": None}, "not everything could be read: the notes"),
        ("reply_reset", {"drained": False}, "something was still in flight after 30 s"),
        ("reply_reset", {"drained": None}, ""),  # a hosted remote, where nobody can know
        ("reply_reset", {"ledger": ledger(0)}, "the fault did not fire as planned (drop_reply: matched 1, fired 0)"),
        ("reply_reset", {"ledger": None}, "nothing stood on the wire that could have failed"),
        ("server_refuses", {"ledger": None, "sabotage": UNMARKED}, ""),
        ("server_refuses", {"sabotage": Sabotage(arm=(), disarm=(), mark=NOWHERE)}, "the server's fault did not fire"),
        ("server_refuses", {"sabotage": Sabotage(arm=(), disarm=(), mark=Path(__file__))}, ""),
        ("server_refuses", {"sabotage": UNMARKED}, ""),
        (
            "server_refuses",
            {"sabotage": UNMARKED, "delivery": Delivery.PARTIAL},
            "the refused request never reached the server",
        ),
        ("client_killed", {}, "the client ended before it could be killed"),
        ("client_killed", {"result": KILLED}, ""),
        ("reply_stalled", {}, "the client ended before its limit"),
        ("reply_stalled", {"result": LIMITED}, ""),
        ("rival_first", {}, "the other writer's head could not be read"),
        ("rival_first", {"rival": OTHER, "before": HeadLook(OTHER)}, ""),
        (
            "rival_first",
            {"rival": OTHER, "before": HeadLook(HEAD)},
            f"the other writer's work was not on the branch before the publication ({HEAD})",
        ),
        (
            "rival_first",
            {"rival": OTHER, "before": HeadLook(None, "locked")},
            "the other writer's work was not on the branch before the publication (locked)",
        ),
    ],
)
def test_each_doubt_has_its_reason_and_nothing_else_has_one(case: str, seen: dict[str, Any], reason: str) -> None:
    assert why(case, **seen) == reason


@pytest.mark.parametrize("truth", [None, *ServerTruth])
@pytest.mark.parametrize(("head", "found"), [(HEAD, HEAD), (HEAD, OTHER), (HEAD, None), (None, None)])
@pytest.mark.parametrize("n_publishes", [0, 1])
def test_only_what_was_absent_and_came_without_another_publication_landed_unseen(
    truth: ServerTruth | None, head: str | None, found: str | None, n_publishes: int
) -> None:
    landed = (truth, head, found, n_publishes) == (ServerTruth.ABSENT, HEAD, HEAD, 0)
    assert bool(landed_unseen(truth, head, found, n_publishes=n_publishes)) is landed
