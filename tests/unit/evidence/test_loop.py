# ruff: noqa: S105, S106 - tokens of text, no secrets

import pytest

from fairtrial.evidence.loop import (
    cold_followup_summary,
    cold_warm_summary,
    has_lane_failures,
    loop_summary,
    row_failed,
    scenario_stem,
    total_row,
)

COUNTS = {
    "tool_call_count": 1,
    "terminal_tool_call_count": 1,
    "vcs_tool_call_count": 1,
    "harness_command_count": 0,
    "retry_count": 0,
    "human_action_count": 0,
}


def step(
    operation: str, elapsed_ms: float | None = 10.0, returncode: int | None = 0, **fields: object
) -> dict[str, object]:
    identity = {"subject": "git", "scenario": "task_loop", "run": 0}
    return {
        **identity,
        "operation": operation,
        "step_kind": "vcs",
        "elapsed_ms": elapsed_ms,
        "returncode": returncode,
        "command": ["git", operation],
        **COUNTS,
        **fields,
    }


def hole(operation: str) -> dict[str, object]:
    return step(operation, 0.0, 77, skipped=True, command=[], step_kind="summary", **dict.fromkeys(COUNTS, 0))


def test_a_total_sums_times_counts_and_phases() -> None:
    rows = [step("setup.seed", 1.0, step_kind="harness"), step("task.acquire", 2.0004), step("task.edit", 3.0)]
    total = total_row(["task.acquire", "task.edit"], rows)
    assert total["operation"] == "task_loop.total"
    assert total["step_kind"] == "summary"
    assert total["elapsed_ms"] == 6.0
    assert total["phase_elapsed_ms"] == {"setup": 1.0, "task": 5.0}
    assert list(total["phase_elapsed_ms"]) == ["setup", "task"]  # type: ignore[call-overload]
    assert (total["returncode"], total["coverage_complete"], total["unmeasured_operations"]) == (0, True, [])
    assert total["tool_call_count"] == total["agent_tool_call_count"] == 3
    assert total["command"] == [["git", "setup.seed"], ["git", "task.acquire"], ["git", "task.edit"]]
    assert total["summarized_operations"] == ["setup.seed", "task.acquire", "task.edit"]
    assert (total["subject"], total["scenario"], total["run"]) == ("git", "task_loop", 0)


def test_a_step_without_a_time_makes_every_sum_over_it_unknown_but_does_not_fail_the_total() -> None:
    total = total_row([], [step("task.acquire", None), step("followup.acquire")])
    assert total["elapsed_ms"] is None
    assert total["phase_elapsed_ms"] == {"followup": 10.0, "task": None}
    assert total["returncode"] == 0
    assert total["unmeasured_operations"] == ["task.acquire"]
    assert total["coverage_complete"] is False


def test_a_hole_is_left_out_of_sums_and_named() -> None:
    total = total_row(["task.ci.observe"], [step("task.acquire"), hole("task.ci.observe")])
    assert total["elapsed_ms"] == 10.0
    assert total["returncode"] == 0
    assert total["unmeasured_operations"] == ["task.ci.observe"]
    assert total["coverage_complete"] is False
    assert total["summarized_operations"] == ["task.acquire", "task.ci.observe"]


def test_a_planned_operation_without_a_row_fails_the_total_and_is_named() -> None:
    total = total_row(["task.acquire", "task.edit"], [step("task.acquire")])
    assert total["elapsed_ms"] == 10.0
    assert total["returncode"] == 1
    assert total["unmeasured_operations"] == ["task.edit"]
    assert total["coverage_complete"] is False


def test_only_holes_are_no_measurement_of_zero_milliseconds() -> None:
    total = total_row([], [hole("task.acquire")])
    assert total["elapsed_ms"] is None
    assert total["phase_elapsed_ms"] == {"task": None}


def test_a_run_without_any_row_still_has_a_total() -> None:
    total = total_row(["task.acquire"], [], identity={"subject": "git", "scenario": "task_loop", "run": 2, "host": "h"})
    assert (total["subject"], total["run"], total["operation"]) == ("git", 2, "task_loop.total")
    assert (total["elapsed_ms"], total["returncode"], total["tool_call_count"]) == (None, 1, 0)
    assert total["phase_elapsed_ms"] == {}
    assert "host" not in total


def test_an_operation_that_is_unmeasured_twice_is_named_once() -> None:
    assert total_row([], [hole("a.b"), step("a.b", None)])["unmeasured_operations"] == ["a.b"]


def test_a_count_that_a_step_lacks_is_unknown() -> None:
    rows = [step("task.acquire"), step("task.edit", retry_count=None)]
    assert total_row([], rows)["retry_count"] is None


def test_tokens_are_summed_and_labelled_with_their_rules() -> None:
    labels = {"token_envelope": "envelope/1"}
    steps = [step("t.a", estimated_tokens=5, **labels), step("t.b", estimated_tokens=7, **labels)]
    rows = [*steps, step("t.c", step_kind="harness"), hole("t.d")]
    total = total_row([], rows)
    assert total["estimated_tokens"] == 12
    assert total["token_envelope"] == "envelope/1"
    assert "estimated_tokens_with_envelope" not in total
    assert "token_weights" not in total


def test_estimates_made_by_unlike_rules_have_no_sum() -> None:
    rows = [step("t.a", estimated_tokens=5, token_weights="a/1"), step("t.b", estimated_tokens=7, token_weights="b/1")]
    total = total_row([], rows)
    assert total["estimated_tokens"] is None
    assert total["token_weights"] is None


@pytest.mark.parametrize("field", ["estimated_tokens", "raw_output_bytes", "cpu_user_s"])
def test_what_one_step_did_not_measure_has_no_sum_but_harness_work_may_lack_it(field: str) -> None:
    known, unknown = step("t.a", **{field: 5}), step("t.b", **{field: None})
    assert total_row([], [known, step("t.c", step_kind="harness")])[field] == 5
    assert total_row([], [known, unknown])[field] is None
    assert total_row([], [known, step("t.c")])[field] is None
    assert field not in total_row([], [step("t.c")])


def test_cpu_seconds_are_rounded_to_microseconds_and_include_harness_work_that_has_them() -> None:
    rows = [step("t.a", cpu_user_s=0.1), step("t.b", cpu_user_s=0.2000004, step_kind="harness")]
    assert total_row([], rows)["cpu_user_s"] == 0.3


def test_a_row_without_an_operation_has_a_phase_without_a_name() -> None:
    total = total_row([], [{**step("task.acquire"), "operation": None}])
    assert total["phase_elapsed_ms"] == {"": 10.0}
    assert total["summarized_operations"] == [""]


def test_the_peak_is_the_largest_or_unknown_with_a_reason() -> None:
    known = step("t.a", peak_memory_bytes=5)
    total = total_row([], [known, step("t.b", peak_memory_bytes=9), step("t.c", step_kind="harness")])
    assert (total["peak_memory_bytes"], total["peak_memory_reason"]) == (9, None)
    total = total_row([], [known, step("t.b", peak_memory_bytes=None)])
    assert (total["peak_memory_bytes"], total["peak_memory_reason"]) == (None, "1 of 2 steps have no figure")
    assert total["peak_memory_below_bytes"] is None
    bound = step("t.b", peak_memory_bytes=None, peak_memory_below_bytes=7)
    assert total_row([], [known, bound])["peak_memory_below_bytes"] == 7
    larger = step("t.c", peak_memory_bytes=8)
    assert total_row([], [bound, larger])["peak_memory_below_bytes"] == 8
    assert total_row([], [known, larger])["peak_memory_below_bytes"] is None
    assert "peak_memory_bytes" not in total_row([], [step("t.a")])


@pytest.mark.parametrize(
    ("scenario", "stem"),
    [
        ("task_loop", "task_loop"),
        ("agent_task_baseline_v1", "agent_task"),
        ("agent_task_oak_local_v1", "agent_task_oak_local"),
        ("interrupted_publication_after_request_v1", "interrupted_publication"),
        ("publication_under_fault_v12", "publication_under_fault"),
    ],
)
def test_summary_operations_keep_the_names_of_the_spec(scenario: str, stem: str) -> None:
    assert scenario_stem(scenario) == stem


def test_the_warm_delta_is_the_followup_acquire_less_the_task_acquire() -> None:
    rows = [step("task.acquire", 30.0), step("task.edit", 1.0), step("followup.acquire", 10.0004)]
    assert loop_summary(rows) == {
        "task_phase_ms": 31.0,
        "followup_phase_ms": 10.0,
        "acquire_ms_task": 30.0,
        "acquire_ms_followup": 10.0,
        "followup_warm_delta_ms": -20.0,
    }


def test_an_acquire_of_several_commands_is_their_sum() -> None:
    rows = [step("cold.acquire.clone", 30.0), step("cold.acquire.open", 2.0), step("warm.acquire", 5.0)]
    assert cold_warm_summary(rows) == {
        "cold_phase_ms": 32.0,
        "warm_phase_ms": 5.0,
        "acquire_ms_cold": 32.0,
        "acquire_ms_warm": 5.0,
        "warm_acquire_delta_ms": -27.0,
    }


@pytest.mark.parametrize(
    "acquire", [step("followup.acquire", None), step("followup.acquire", 5.0, 1), hole("followup.acquire")]
)
def test_an_acquire_counts_only_if_it_was_measured_and_succeeded(acquire: dict[str, object]) -> None:
    summary = loop_summary([step("task.acquire"), acquire])
    assert summary["acquire_ms_task"] == 10.0
    assert summary["acquire_ms_followup"] is None
    assert summary["followup_warm_delta_ms"] is None


def test_without_a_first_acquire_there_is_no_warm_delta() -> None:
    summary = loop_summary([step("followup.acquire")])
    assert (summary["acquire_ms_followup"], summary["followup_warm_delta_ms"]) == (10.0, None)


def test_a_phase_without_any_row_is_unknown() -> None:
    assert set(loop_summary([]).values()) == {None}


@pytest.mark.parametrize(
    ("returncode", "failed"), [(0, False), (77, False), (1, True), (-9, True), (None, True), ("0", True)]
)
def test_anything_but_zero_and_a_hole_is_a_failure(returncode: object, *, failed: bool) -> None:
    assert row_failed({"returncode": returncode}) == failed
    assert has_lane_failures([{"returncode": 0}, {"returncode": returncode}]) == failed


def test_a_failed_step_fails_the_total() -> None:
    assert total_row([], [step("task.acquire", 5.0, 128)])["returncode"] == 1


def test_a_second_clone_is_compared_with_the_first_under_names_of_its_own() -> None:
    summary = cold_followup_summary([step("cold.acquire", elapsed_ms=30.0), step("followup.acquire", elapsed_ms=20.0)])
    assert summary == {
        "cold_phase_ms": 30.0,
        "followup_phase_ms": 20.0,
        "acquire_ms_cold": 30.0,
        "acquire_ms_followup": 20.0,
        "followup_acquire_delta_ms": -10.0,
    }
