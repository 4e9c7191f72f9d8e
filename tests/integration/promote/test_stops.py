"""What a candidate lost by stops of the sweep alone, and what it lost by anything else."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from fairtrial.evidence.bench import ArmAggregate
from fairtrial.evidence.resample import FalsePromotion
from fairtrial.evolve.stops import is_lost_by_stops
from fairtrial.promote.binding import Binding
from fairtrial.promote.promotion import BoundDecision, BoundSweep, Promotion, RunStatus
from fairtrial.store.layout import Results
from fairtrial.sweep.loop_sweep import SWEEP_KILLED

Row = dict[str, Any]
MakePairs = Callable[..., list[Row]]
WriteResults = Callable[..., Results]
RATE = FalsePromotion(
    seed=1,
    n_resamples=2000,
    n_promoted=0,
    n_promoted_spread=0,
    n_insufficient=0,
    p_promoted=0.0,
    unmeasured_reason=None,
)
KILLED = {"error_kind": "interrupted", "error_detail": SWEEP_KILLED}
STOPPED = {"error_kind": "cancelled", "error_detail": "stopped by signal 15"}


def promotion(
    *,
    decision: str = "promote",
    unusable: bool = False,
    promotable: bool = False,
    status: RunStatus = RunStatus.COMPLETE,
) -> Promotion:
    decided = BoundDecision(
        incumbent_arm="workflow",
        candidate_arm="candidate_workflow",
        promotable=promotable,
        decision={"decision": decision},
        as_failures={"decision": "keep_incumbent"},
        inadmissible=({"kind": "unsealed", "detail": "d"},) if unusable else (),
        false_promotion=RATE,
        aggregates=dict[str, dict[str, ArmAggregate]](),
    )
    return Promotion(
        schema="promotion/1",
        generated_at="g",
        evidence_expires_at="e",
        run_status=status,
        promotable=promotable,
        rehearsal=False,
        sweep=BoundSweep(id="s", sweep_json_sha256="d"),
        binding=cast("Binding", None),
        selected_tasks=(),
        decisions=(decided,),
    )


@pytest.mark.parametrize(
    ("voids", "expected"),
    [
        ((KILLED,), True),
        ((STOPPED, KILLED), True),
        (({"error_kind": "interrupted", "error_detail": "the worker died (status 9)"},), False),
        ((KILLED, {"error_kind": "session-error", "error_detail": "529"}), False),
        (({"error_kind": "infra-error", "error_detail": SWEEP_KILLED},), False),
    ],
    ids=["killed", "stopped", "worker", "outage", "fault"],
)
def test_only_a_stop_of_the_whole_sweep_is_made_good(
    voids: tuple[Row, ...], expected: bool, make_pairs: MakePairs, write_results: WriteResults
) -> None:
    rows = make_pairs()
    lost = [{**rows[1], "resolved": False, "cost_usd": None, **void} for void in voids]
    assert is_lost_by_stops(promotion(), write_results([*lost, *rows])) is expected


@pytest.mark.parametrize(
    "found",
    [
        promotion(decision="keep_incumbent"),
        promotion(decision="insufficient_evidence"),
        promotion(unusable=True),
        promotion(promotable=True),
        promotion(status=RunStatus.ABORTED),
    ],
    ids=["kept", "insufficient", "unusable", "promotable", "aborted"],
)
def test_a_candidate_that_does_not_win_but_for_stops_is_not_asked_again(
    found: Promotion, make_pairs: MakePairs, write_results: WriteResults
) -> None:
    rows = make_pairs()
    lost = {**rows[1], "resolved": False, "cost_usd": None, **KILLED}
    assert is_lost_by_stops(found, write_results([lost, *rows])) is False
