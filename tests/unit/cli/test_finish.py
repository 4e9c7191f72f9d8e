"""Exit codes of sweeps, over every way that one can end."""

from collections.abc import Mapping

import pytest

from fairtrial.cli.finish import bench_exit_code, exit_code
from fairtrial.evidence.bench import MEDIAN_FIELDS, SPENT_FIELDS, ArmAggregate, BenchSummary
from fairtrial.evidence.endings import ENDINGS, CountsAs, EndingKind
from fairtrial.evidence.loop_report import LoopSummary, summarize_loop
from fairtrial.evidence.loop_runs import LoopFold

STOPPED = 15
VOIDS = [kind for kind, ending in ENDINGS.items() if ending.counts_as is CountsAs.VOID]
FAILURES = [kind for kind, ending in ENDINGS.items() if ending.counts_as is CountsAs.FAILURE]


def cell(valid: int = 2, *, resolved: int | None = None, **kinds: int) -> ArmAggregate:
    n_void = sum(n for name, n in kinds.items() if EndingKind(name.replace("_", "-")) in VOIDS)
    return ArmAggregate(
        medians=dict.fromkeys(MEDIAN_FIELDS, 1.0),
        resolved=valid if resolved is None else resolved,
        runs=valid + n_void,
        valid_runs=valid,
        excluded_runs=n_void,
        voided_attempts=0,
        transcripts_missing=0,
        task_class="c",
        error_kinds={name.replace("_", "-"): n for name, n in kinds.items()},
        spent=dict.fromkeys(SPENT_FIELDS, 1.0),
    )


def bench(
    arms: Mapping[str, ArmAggregate], *, planned: int = 4, stopped: int | None = None, tripped: bool = False
) -> int:
    summary = BenchSummary(aggregates={"t": arms}, final_streak=0, max_streak=0)
    return bench_exit_code(summary, n_planned=planned, stopped_by=stopped, tripped=tripped)


GOOD = {"baseline": cell(), "workflow": cell()}
BROKEN = {"baseline": cell(), "workflow": cell(resolved=0, oracle_failed=2)}
BUG = {"baseline": cell(), "workflow": cell(1, unknown=1)}


@pytest.mark.parametrize(
    ("arms", "code"),
    [
        (GOOD, 0),
        ({"baseline": cell(resolved=0, oracle_failed=2), "workflow": cell()}, 0),
        (BROKEN, 1),
        ({"baseline": cell()}, 5),
        ({}, 5),
        (BUG, 70),
        ({"baseline": cell(), "workflow": cell(0, resolved=0, unknown=2)}, 70),
    ],
    ids=["whole", "a baseline is no incumbent", "broken incumbent", "lacking", "nothing", "bug", "nothing but bugs"],
)
def test_a_bench_sweep_that_ran_to_its_end(arms: Mapping[str, ArmAggregate], code: int) -> None:
    assert bench(arms) == code


@pytest.mark.parametrize("kind", FAILURES)
def test_failures_of_an_arm_are_results(kind: EndingKind) -> None:
    failed = cell(resolved=1, **{kind.replace("-", "_"): 1})
    assert bench({"baseline": cell(), "workflow": failed}) == 0


@pytest.mark.parametrize("kind", VOIDS)
def test_a_void_leaves_the_sweep_short_of_evidence_and_one_of_ours_is_our_bug(kind: EndingKind) -> None:
    void = cell(1, **{kind.replace("-", "_"): 1})
    assert bench({"baseline": cell(), "workflow": void}) == (70 if kind is EndingKind.UNKNOWN else 5)


@pytest.mark.parametrize(
    ("arms", "stopped", "tripped", "code"),
    [
        (BUG, STOPPED, True, 128 + STOPPED),
        (BUG, None, True, 70),
        (BROKEN, None, True, 5),
        (GOOD, None, True, 5),
        (BROKEN, STOPPED, False, 128 + STOPPED),
    ],
)
def test_a_stop_comes_before_a_bug_a_bug_before_an_outage_and_that_before_the_answer(
    arms: Mapping[str, ArmAggregate], stopped: int | None, code: int, *, tripped: bool
) -> None:
    assert bench(arms, stopped=stopped, tripped=tripped) == code


def total(run: int, **fields: object) -> dict[str, object]:
    return {
        "subject": "git",
        "scenario": "task_loop",
        "run": run,
        "remote_transport": "file",
        "host": "h",
        "block": f"b{run}",
        "operation": "task_loop.total",
        "step_kind": "summary",
        "returncode": 0,
        "elapsed_ms": 10.0,
        "tool_call_count": 12,
        "null_control": False,
        "oracle_payload_on_remote_branch": True,
        "coverage_complete": True,
        **fields,
    }


def summarize(*rows: dict[str, object]) -> LoopSummary:
    fold = LoopFold()
    for row in rows:
        fold.add(row)
    return summarize_loop(fold)


SKIPPED = {"operation": "task_loop.skipped", "returncode": 77, "skip_reason": "it is not here"}
OURS = {"returncode": 1, "error_kind": "unknown", "error_detail": "ZeroDivisionError"}
HOST = {"returncode": 1, "error_kind": "infra-error", "error_detail": "the host failed"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        (SKIPPED, 0),
        (HOST, 5),
        ({"returncode": 1}, 1),
        ({"returncode": 1, "oracle_payload_on_remote_branch": False}, 1),
        (OURS, 70),
    ],
    ids=["whole", "skipped", "void", "a step failed", "a truth check failed", "bug"],
)
def test_a_loop_sweep_that_ran_to_its_end_and_one_that_was_stopped(fields: dict[str, object], code: int) -> None:
    summary = summarize(total(0), total(1, **fields))
    assert exit_code(summary, n_planned=2, stopped_by=None) == code
    assert exit_code(summary, n_planned=2, stopped_by=STOPPED) == 128 + STOPPED


def test_a_loop_sweep_with_a_trial_that_never_began_lacks_evidence() -> None:
    assert exit_code(summarize(total(0)), n_planned=2, stopped_by=None) == 5


def test_a_bug_of_ours_comes_before_a_failed_truth_check() -> None:
    summary = summarize(total(0, **OURS), total(1, returncode=1))
    assert exit_code(summary, n_planned=2, stopped_by=None) == 70
