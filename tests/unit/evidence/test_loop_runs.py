# ruff: noqa: S106 - tokens of text, no secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.errors import FairtrialError, IntegrityError, UsageError
from fairtrial.evidence.loop_report import summarize_loop
from fairtrial.evidence.loop_runs import LoopFold, LoopRun, RunEnding


def ending_row(operation: str = "task_loop.total", **fields: object) -> dict[str, object]:
    return {
        "subject": "git",
        "scenario": "task_loop",
        "run": 0,
        "remote_transport": "file",
        "operation": operation,
        "step_kind": "summary",
        "returncode": 0,
        **fields,
    }


def fold(*rows: dict[str, object]) -> LoopFold:
    made = LoopFold()
    for row in rows:
        made.add(row)
    return made


def only(*rows: dict[str, object]) -> LoopRun:
    (run,) = fold(*rows).runs
    return run


def skip(operation: str, reason: str, **fields: object) -> dict[str, object]:
    return ending_row(operation, returncode=77, skipped=True, skip_reason=reason, **fields)


@pytest.mark.parametrize("kind", ["vcs", "edit", "harness"])
def test_steps_are_counted_and_forgotten(kind: str) -> None:
    made = fold({"step_kind": kind, "returncode": 1}, {"step_kind": kind, "returncode": 0})
    assert made.n_rows == 2
    assert not made.runs


def test_a_total_is_a_measured_run_with_its_figures() -> None:
    run = only(
        ending_row(
            elapsed_ms=12.5,
            followup_warm_delta_ms=-3.0,
            tool_call_count=True,
            cpu_user_s=-1,
            phase_elapsed_ms={"cold": 7.0, "task": 1.0},
            task_phase_ms=None,
            oracle_payload_on_remote_branch=True,
            coverage_complete=False,
            null_control=True,
            block="b1",
            position_in_block=2,
            host="h",
        )
    )
    assert run.ending is RunEnding.MEASURED
    assert run.passed
    assert run.number("elapsed_ms") == 12.5
    assert run.number("followup_warm_delta_ms") == -3.0
    assert run.number("tool_call_count") is None
    assert run.number("cpu_user_s") is None
    assert run.number("cold_phase_ms") == 7.0
    assert run.number("task_phase_ms") is None
    assert (run.truth, run.coverage_complete, run.null_control) == (True, False, True)
    assert (run.block, run.position_in_block, run.setting.host) == ("b1", 2, "h")
    assert (run.setting.scenario, run.setting.remote_transport) == ("task_loop", "file")


def test_a_block_may_be_a_number() -> None:
    assert only(ending_row(block=3)).block == "3"
    assert only(ending_row()).block is None


@pytest.mark.parametrize("fields", [{"returncode": 1}, {"returncode": None}, {"error_kind": "agent-timeout"}])
def test_a_failed_total_is_measured_but_not_passed(fields: dict[str, object]) -> None:
    run = only(ending_row(stderr="oracle_payload_missing_from_remote_branch", **fields))
    assert run.ending is RunEnding.MEASURED
    assert run.failed
    assert not run.passed
    assert run.explanation == "oracle_payload_missing_from_remote_branch"


def test_a_skipped_run_keeps_its_reason_and_is_no_failure() -> None:
    run = only(skip("agent_task.skipped", "git only"))
    assert (run.ending, run.explanation, run.failed) == (RunEnding.SKIPPED, "git only", False)


def test_a_void_row_ends_a_run_whatever_its_operation() -> None:
    run = only(ending_row("task_loop.interrupted", error_kind="interrupted", error_detail="killed", returncode=None))
    assert (run.ending, run.error_kind, run.explanation) == (RunEnding.VOID, "interrupted", "killed")
    assert not run.failed
    assert not run.passed


def test_holes_belong_to_the_run_of_their_own_attempt() -> None:
    hole = skip("cold.ci.observe", "no CI", key="a", attempt=1)
    other = skip("cold.ci.observe", "lost", key="b", attempt=1)
    one_with_step_kind = {**skip("warm.ci.observe", "no CI", key="a", attempt=1), "step_kind": "vcs"}
    run = only(hole, other, one_with_step_kind, ending_row(key="a", attempt=1))
    assert [(h.operation, h.reason) for h in run.holes] == [("cold.ci.observe", "no CI"), ("warm.ci.observe", "no CI")]


def test_one_attempt_a_key_counts_and_superseded_voids_are_counted() -> None:
    rows = [
        ending_row(key="a", attempt=1, error_kind="interrupted"),
        ending_row(key="a", attempt=2, elapsed_ms=1),
        ending_row(key="a", attempt=3, elapsed_ms=2),
        ending_row(key="a", attempt=4, error_kind="cancelled"),
        ending_row(key="b", attempt=1, error_kind="interrupted"),
        ending_row(key="b", attempt=2, error_kind="infra-error"),
        ending_row(key="c", attempt=1, elapsed_ms=3),
    ]
    for order in (rows, rows[::-1]):
        made = fold(*order)
        assert sorted((run.attempt, run.number("elapsed_ms") or 0) for run in made.runs) == [(1, 3), (2, 0), (2, 1)]
        assert list(made.voided_attempts.values()) == [3]


def test_a_bare_row_has_attempt_zero_and_may_lack_its_place() -> None:
    run = only(ending_row(remote_transport=None, stderr="x" * 401))
    assert run.attempt == 0
    assert (run.setting.remote_transport, run.setting.host) == ("", "")
    assert run.explanation == "x" * 400


def test_a_hole_without_words_is_still_one() -> None:
    hole = {**ending_row(), "operation": None, "returncode": 77}
    assert [(h.operation, h.reason) for h in only(hole, ending_row()).holes] == [("", "")]


def test_the_second_row_is_refused_as_the_second() -> None:
    with pytest.raises(UsageError, match="row 2: 'attempt' must be an integer"):
        fold(ending_row(), ending_row(key="a"))


def test_bare_rows_all_count() -> None:
    assert len(fold(ending_row(), ending_row()).runs) == 2


def test_an_attempt_that_ends_twice_is_an_integrity_error() -> None:
    with pytest.raises(IntegrityError, match="ended twice"):
        fold(ending_row(key="a", attempt=1), ending_row(key="a", attempt=1))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"task": "t", "arm": "a"}, "row 1: neither a step, a skip, a void nor a total"),
        (ending_row("task_loop.note"), "operation 'task_loop.note'"),
        (ending_row(step_kind=["vcs"], operation=None), r"step_kind \['vcs'\]"),
        (ending_row(subject=None), "row 1: 'subject' must be"),
        (ending_row(scenario=""), "row 1: 'scenario' must be"),
        (ending_row(key="a"), "'attempt' must be an integer"),
    ],
)
def test_rows_that_are_none_of_this_lane_are_refused_by_their_place(row: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fold(row)


def test_what_an_interrupted_publication_showed_is_kept() -> None:
    facts = only(
        ending_row(
            "interrupted_publication.total",
            publication_outcome="unreported",
            fixture_delivery_state="complete_request_observed",
            mutation_requests_observed=1,
            network_request_bytes_observed=None,
            local_head_preserved=True,
            local_work_preserved="yes",
        )
    ).publication
    assert facts is not None
    assert (facts.publication_outcome, facts.fixture_delivery_state) == ("unreported", "complete_request_observed")
    assert (facts.mutation_requests_observed, facts.network_request_bytes_observed) == (1, None)
    assert (facts.local_head_preserved, facts.local_work_preserved) == (True, None)
    assert only(ending_row()).publication is None


def test_the_rules_of_token_estimates_are_collected() -> None:
    made = fold(ending_row(token_method="a/1", token_weights="w/1"), ending_row(token_method="b/1"))
    assert made.token_rules == {"a/1", "b/1", "w/1"}


leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = leaf | st.lists(leaf, max_size=2) | st.dictionaries(st.text(max_size=3), leaf, max_size=2)
FIELDS = [
    *ending_row(),
    "error_kind",
    "key",
    "attempt",
    "block",
    "elapsed_ms",
    "phase_elapsed_ms",
    "skip_reason",
    "stderr",
]


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), anything), max_size=3))
def test_any_row_is_either_folded_or_refused_with_one_line(changes: list[dict[str, object]]) -> None:
    made, refusals = LoopFold(), list[str]()
    for change in changes:
        try:
            made.add({**ending_row(), **change})
        except FairtrialError as error:
            refusals.append(str(error))
    assert all(len(refusal.splitlines()) == 1 for refusal in refusals)
    assert len(made.runs) + len(refusals) <= len(changes)
    summarize_loop(made)
