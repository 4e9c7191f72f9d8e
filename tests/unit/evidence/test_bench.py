from collections.abc import Iterable

import pytest

from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evidence.bench import (
    MEDIAN_FIELDS,
    BenchFold,
    BenchSummary,
    broken_incumbents,
    first_trip_index,
    savings,
)


def row(arm: str = "workflow", *, task: str = "t", kind: str | None = None, **fields: object) -> dict[str, object]:
    figures: dict[str, object] = dict.fromkeys(MEDIAN_FIELDS, 10)
    return {"task": task, "arm": arm, "class": "c", "error_kind": kind, "resolved": kind is None, **figures, **fields}


def summarize(rows: Iterable[dict[str, object]]) -> BenchSummary:
    fold = BenchFold()
    for each in rows:
        fold.add(each)
    return fold.summary()


def test_medians_are_over_valid_runs_and_failures_count() -> None:
    rows = [row(cost_usd=1), row(cost_usd=3, kind="agent-timeout"), row(cost_usd=900, kind="infra-error")]
    arm = summarize(rows).aggregates["t"]["workflow"]
    assert arm.medians["cost_usd"] == 2.0
    assert (arm.resolved, arm.runs, arm.valid_runs, arm.excluded_runs) == (1, 3, 2, 1)
    assert arm.error_kinds == {"agent-timeout": 1, "infra-error": 1}


@pytest.mark.parametrize("name", MEDIAN_FIELDS)
@pytest.mark.parametrize("unmeasured", [None, True, -1, "3", float("nan")])
def test_one_unmeasured_valid_run_makes_a_median_unknown(name: str, unmeasured: object) -> None:
    assert summarize([row(), row(**{name: unmeasured})]).aggregates["t"]["workflow"].medians[name] is None


def test_medians_over_no_valid_run_are_unknown_not_zero() -> None:
    medians = summarize([row(kind="session-error")]).aggregates["t"]["workflow"].medians
    assert set(medians.values()) == {None}


@pytest.mark.parametrize("kind", ["verify-failed", "cleanup-failure", "invented"])
def test_a_row_that_says_resolved_beside_an_error_kind_is_not_resolved(kind: str) -> None:
    assert summarize([row(kind=kind, resolved=True)]).aggregates["t"]["workflow"].resolved == 0


def test_a_truthy_resolved_is_not_true() -> None:
    assert summarize([row(resolved=1)]).aggregates["t"]["workflow"].resolved == 0


def test_the_class_is_the_first_that_a_row_names_and_missing_transcripts_are_counted() -> None:
    rows = [row(**{"class": None}), row(**{"class": "late"}, transcript_missing=True), row(**{"class": "later"})]
    arm = summarize(rows).aggregates["t"]["workflow"]
    assert arm.task_class == "late"
    assert arm.transcripts_missing == 1


def test_one_attempt_a_key_counts_and_superseded_voids_stay_visible() -> None:
    rows = [
        row(kind="interrupted", key="a", attempt=1, cost_usd=5),
        row(key="a", attempt=2, cost_usd=1),
        row(kind="infra-error", key="b", attempt=1, cost_usd=7),
        row(kind="cancelled", key="b", attempt=2, cost_usd=7),
        row(key="c", attempt=1, cost_usd=3),
        row(key="c", attempt=2, cost_usd=100, kind="agent-crash"),
    ]
    arm = summarize(rows).aggregates["t"]["workflow"]
    assert (arm.runs, arm.valid_runs, arm.excluded_runs, arm.resolved) == (3, 2, 1, 2)
    assert arm.voided_attempts == 2
    assert arm.runs_as_failures == 5
    assert arm.error_kinds == {"cancelled": 1}
    assert arm.medians["cost_usd"] == 2.0
    assert arm.spent["cost_usd"] == 123


def test_spending_with_an_unmeasured_attempt_is_unknown() -> None:
    rows = [row(key="a", attempt=1, kind="interrupted", cost_usd=None), row(key="a", attempt=2)]
    spent = summarize(rows).aggregates["t"]["workflow"].spent
    assert spent["cost_usd"] is None
    assert spent["output_tokens"] == 20


def test_bare_rows_all_count_even_when_they_are_equal() -> None:
    assert summarize([row(), row()]).aggregates["t"]["workflow"].runs == 2


def test_a_duplicated_row_of_a_sweep_is_an_integrity_error() -> None:
    with pytest.raises(IntegrityError, match="ended twice"):
        summarize([row(key="a", attempt=1), row(key="a", attempt=1)])


@pytest.mark.parametrize("field", ["task", "arm"])
def test_a_row_without_task_or_arm_is_refused_by_its_place(field: str) -> None:
    with pytest.raises(UsageError, match=f"row 2: '{field}' must be a nonempty string"):
        summarize([row(), row(**{field: None})])


def test_tasks_and_arms_stand_in_name_order() -> None:
    aggregates = summarize([row("b", task="z"), row("a", task="z"), row("a", task="y")]).aggregates
    assert [(task, *arms) for task, arms in aggregates.items()] == [("y", "a"), ("z", "a", "b")]


def test_savings_are_against_the_baseline_only_where_it_ran() -> None:
    rows = [
        row("baseline", cost_usd=10, duration_s=0, output_tokens=None),
        row("workflow", cost_usd=7),
        row("workflow", task="alone"),
    ]
    saved = savings(summarize(rows).aggregates)
    assert saved["alone"] == {}
    assert list(saved["t"]) == ["workflow"]
    assert saved["t"]["workflow"]["cost_usd"] == 30.0
    assert saved["t"]["workflow"]["duration_s"] is None
    assert saved["t"]["workflow"]["output_tokens"] is None
    assert saved["t"]["workflow"]["input_tokens"] == 0.0


def test_an_incumbent_is_broken_when_it_resolved_nothing_anywhere_even_if_all_is_void() -> None:
    rows = [
        row("workflow", kind="infra-error"),
        row("workflow_direct", task="a", kind="verify-failed"),
        row("workflow_direct", task="b"),
        row("candidate_workflow", kind="verify-failed"),
    ]
    aggregates = summarize(rows).aggregates
    assert broken_incumbents(aggregates) == ["workflow"]
    assert broken_incumbents(aggregates, incumbents=["candidate_workflow", "absent"]) == ["candidate_workflow"]


def test_a_reviewing_incumbent_is_broken_when_no_review_can_be_believed_and_not_when_none_is_perfect() -> None:
    review = {"clean_control": False, "weighted_f1": 0.5, "verdict_correct": False}
    rows = [
        row("review", task="a", kind="oracle-failed", review=review),
        row("review", task="b", kind="infra-error"),
        row("other", kind="review-evidence-invalid", review=review),
        row("workflow", kind="oracle-failed"),
    ]
    aggregates = summarize(rows).aggregates
    assert broken_incumbents(aggregates, incumbents=["review", "other", "workflow"]) == ["other", "workflow"]


def test_only_consecutive_outage_endings_make_a_streak() -> None:
    kinds = [
        "infra-error",
        "session-error",
        "evidence-unverified",
        "cleanup-failure",
        "infra-error",
        "infra-error",
        None,
    ]
    rows = [row(kind=kind) for kind in kinds]
    summary = summarize(rows)
    assert (summary.final_streak, summary.max_streak) == (0, 3)
    assert summarize(rows[:-1]).final_streak == 3
    assert first_trip_index(rows, limit=3) == 5
    assert first_trip_index(rows, limit=1) == 0
    assert (summarize([]).final_streak, summarize([]).max_streak) == (0, 0)
    assert first_trip_index(rows, limit=4) is None
    assert first_trip_index(rows, limit=0) is None
