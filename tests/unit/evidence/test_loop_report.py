import dataclasses

import pytest

from fairtrial.evidence.loop_compare import ControlSpread, Difference
from fairtrial.evidence.loop_report import Coverage, LoopSummary, Section, Truth, summarize_loop
from fairtrial.evidence.loop_runs import LoopFold


def total(subject: str, run: int, elapsed_ms: float | None = 10.0, **fields: object) -> dict[str, object]:
    return {
        "subject": subject,
        "scenario": "task_loop",
        "run": run,
        "remote_transport": "file",
        "host": "h",
        "block": f"b{run}",
        "operation": "task_loop.total",
        "step_kind": "summary",
        "returncode": 0,
        "elapsed_ms": elapsed_ms,
        "tool_call_count": 12,
        "null_control": subject.endswith("(null)"),
        "oracle_payload_on_remote_branch": True,
        "coverage_complete": True,
        **fields,
    }


def summarize(*rows: dict[str, object]) -> LoopSummary:
    fold = LoopFold()
    for row in rows:
        fold.add(row)
    return summarize_loop(fold)


def section_of(*rows: dict[str, object]) -> Section:
    (section,) = summarize(*rows).sections
    return section


def sweep(n_runs: int, *, hg_ms: float = 15.0, null_ms: float = 11.0) -> list[dict[str, object]]:
    figures = (("git", 10.0), ("git(null)", null_ms), ("hg", hg_ms))
    return [total(subject, run, elapsed_ms + run) for run in range(n_runs) for subject, elapsed_ms in figures]


def wall(section: Section, subject: str = "hg") -> Difference:
    return next(d for d in section.differences if (d.subject, d.field) == (subject, "elapsed_ms"))


def test_medians_are_over_passed_runs_and_one_unmeasured_run_makes_them_unknown() -> None:
    section = section_of(total("git", 0, 10), total("git", 1, 30), total("git", 2, 900, returncode=1))
    (git,) = section.subjects
    assert (git.n_runs, git.n_passed) == (3, 2)
    assert git.medians["elapsed_ms"] == 20
    (git,) = section_of(total("git", 0, 10), total("git", 1, None)).subjects
    assert git.medians["elapsed_ms"] is None
    (git,) = section_of(total("git", 0, 10, returncode=1)).subjects
    assert git.medians["elapsed_ms"] is None


@pytest.mark.parametrize(("peaks", "expected"), [([5, 9, 7], 9), ([5, None], None), ([], None)])
def test_the_peak_is_the_largest_of_the_passed_runs_or_unknown(peaks: list[int | None], expected: int | None) -> None:
    rows = [total("git", run, peak_memory_bytes=peak) for run, peak in enumerate(peaks)]
    (git,) = section_of(*rows, total("git", 9, returncode=1, peak_memory_bytes=10**9)).subjects
    assert git.peak_memory_bytes == expected


@pytest.mark.parametrize(
    ("answers", "truth"),
    [
        ([True, True], Truth.PASS),
        ([True, False, None], Truth.FAIL),
        ([True, None], Truth.UNMEASURED),
        ([None], Truth.UNMEASURED),
    ],
)
def test_one_false_truth_fails_all_and_one_missing_leaves_the_rest_unproven(
    answers: list[bool | None], truth: Truth
) -> None:
    rows = [total("git", run, oracle_payload_on_remote_branch=answer) for run, answer in enumerate(answers)]
    assert section_of(*rows).subjects[0].truth is truth


@pytest.mark.parametrize(
    ("answers", "coverage"),
    [([True], Coverage.COMPLETE), ([True, False], Coverage.PARTIAL), ([None, True], Coverage.UNMEASURED)],
)
def test_coverage_is_complete_only_when_every_run_was(answers: list[bool | None], coverage: Coverage) -> None:
    rows = [total("git", run, coverage_complete=answer) for run, answer in enumerate(answers)]
    assert section_of(*rows).subjects[0].coverage is coverage


def test_skips_voids_and_failures_are_counted_and_listed() -> None:
    summary = summarize(
        total("git", 0, key="a", attempt=1, error_kind="interrupted"),
        total("git", 0, key="a", attempt=2, error_kind="infra-error", error_detail="no space"),
        total("git", 1, returncode=1, stderr="oracle_payload_missing_from_remote_branch"),
        total("git", 2, error_kind="agent-timeout"),
        total("git", 3, operation="task_loop.skipped", returncode=77, skip_reason="unset"),
        total("git", 4, operation="cold.ci.observe", returncode=77, skip_reason="no CI"),
        total("git", 4),
    )
    (git,) = summary.sections[0].subjects
    assert (git.n_runs, git.n_passed, git.n_skipped, git.n_void, git.voided_attempts) == (3, 1, 1, 1, 1)
    assert git.runs_as_failures == 5
    assert section_of(total("git", 0)).subjects[0].runs_as_failures == 1
    assert [(s.operation, s.reason, s.n_runs) for s in summary.skips] == [
        ("(whole run)", "unset", 1),
        ("cold.ci.observe", "no CI", 1),
    ]
    assert [(v.run, v.error_kind, v.detail) for v in summary.voids] == [(0, "infra-error", "no space")]
    assert [(f.run, f.detail) for f in summary.failures] == [
        (1, "oracle_payload_missing_from_remote_branch"),
        (2, "agent-timeout"),
    ]
    assert [run.run for run in summary.runs] == [1, 2, 4]


def test_a_failure_without_words_is_still_listed() -> None:
    assert summarize(total("git", 0, returncode=1)).failures[0].detail == "no detail"


def test_the_reference_stands_first_and_the_control_last() -> None:
    section = section_of(*sweep(1))
    assert section.reference == "git"
    assert [s.subject for s in section.subjects] == ["git", "hg", "git(null)"]
    assert [s.null_control for s in section.subjects] == [False, False, True]


def test_without_git_the_first_subject_by_name_is_the_reference() -> None:
    section = section_of(total("jj", 0), total("hg", 0))
    assert section.reference == "hg"
    assert {d.subject for d in section.differences} == {"jj"}


def test_a_control_alone_has_no_reference() -> None:
    section = section_of(total("git(null)", 0))
    assert section.reference is None
    assert section.differences == ()


def test_a_difference_is_the_median_over_blocks_beside_the_controls_spread() -> None:
    rows = [row for run in range(10) for row in (
        total("git", run, 10.0), total("git(null)", run, 10.0 + run), total("hg", run, 20.0 + run),
    )]  # fmt: skip
    difference = wall(section_of(*rows))
    assert difference.n_blocks == 10
    assert difference.median_difference == 14.5
    assert (difference.control.n_blocks, difference.control.largest, difference.control.median) == (10, 9.0, 4.5)
    assert difference.control.reason == ""
    assert difference.claim == "beyond the control's spread"


def test_only_fields_that_some_run_has_a_figure_of_are_compared_and_only_times_have_a_claim() -> None:
    section = section_of(*sweep(1))
    assert [(d.field, bool(d.claim)) for d in section.differences] == [("elapsed_ms", True), ("tool_call_count", False)]
    rows = [total("git", 0, acquire_ms_cold=3), total("hg", 0, acquire_ms_cold=None)]
    differences = section_of(*rows).differences
    assert [(d.field, d.median_difference) for d in differences] == [
        ("elapsed_ms", 0),
        ("acquire_ms_cold", None),
        ("tool_call_count", 0),
    ]


def test_the_control_is_shown_even_when_there_is_nothing_to_compare() -> None:
    rows = [total(subject, run, 10.0 + len(subject)) for run in range(5) for subject in ("git", "git(null)")]
    section = section_of(*rows)
    assert section.differences == ()
    assert section.control[0] == ControlSpread(
        field="elapsed_ms", control="git", null="git(null)", n_blocks=5, largest=6.0, median=6.0, reason=""
    )
    assert section_of(total("git", 0)).control[0].reason == "no null control"


def test_the_control_is_not_compared_with_the_reference() -> None:
    assert {d.subject for d in section_of(*sweep(1)).differences} == {"hg"}


@pytest.mark.parametrize(("n_runs", "reason"), [(4, "too few: 4 of 5 blocks"), (5, "")])
def test_below_five_blocks_there_is_no_spread(n_runs: int, reason: str) -> None:
    difference = wall(section_of(*sweep(n_runs)))
    assert difference.control.reason == reason
    assert (difference.control.largest is None) == bool(reason)
    assert (difference.control.median is None) == bool(reason)
    assert difference.control.n_blocks == n_runs


@pytest.mark.parametrize(
    ("n_runs", "hg_ms", "claim"),
    [
        (9, 90.0, "no timing claim: 9 of 10 runs"),
        (10, 90.0, "beyond the control's spread"),
        (10, 11.0, "within the control's spread"),
        (10, 9.0, "within the control's spread"),
        (10, 8.0, "beyond the control's spread"),
    ],
)
def test_a_timing_claim_needs_ten_runs_and_more_than_the_controls_spread(n_runs: int, hg_ms: float, claim: str) -> None:
    assert wall(section_of(*sweep(n_runs, hg_ms=hg_ms))).claim == claim


def test_without_a_control_there_is_no_timing_claim() -> None:
    rows = [row for row in sweep(10) if row["subject"] != "git(null)"]
    difference = wall(section_of(*rows))
    assert difference.control.reason == "no null control"
    assert difference.claim == "no timing claim: control: no null control"


def test_an_unmeasured_side_makes_the_difference_or_the_spread_unknown() -> None:
    rows = sweep(10)
    rows[2]["elapsed_ms"] = None
    assert wall(section_of(*rows)).median_difference is None
    assert wall(section_of(*rows)).claim == "no timing claim: unmeasured"
    rows = sweep(10)
    rows[0]["elapsed_ms"] = None
    assert wall(section_of(*rows)).median_difference is None
    rows = sweep(10)
    rows[1]["elapsed_ms"] = None
    assert wall(section_of(*rows)).control.reason == "unmeasured"
    assert wall(section_of(*rows)).claim == "no timing claim: control: unmeasured"


def test_a_block_in_which_one_side_failed_is_not_compared() -> None:
    rows = sweep(10)
    rows[0]["returncode"] = 1
    rows[4]["returncode"] = 1
    difference = wall(section_of(*rows))
    assert difference.n_blocks == 9
    assert difference.control.n_blocks == 8


def test_no_block_in_common_is_no_difference() -> None:
    assert section_of(total("git", 0), total("hg", 1)).differences == ()


def test_bare_rows_are_paired_by_run_and_one_partner_is_used_once() -> None:
    rows = [total("git", 0), total("hg", 0), total("hg", 0)]
    for row in rows:
        del row["block"]
    assert wall(section_of(*rows)).n_blocks == 1


def test_the_control_of_another_subject_serves_when_the_reference_has_none() -> None:
    rows = [row for run in range(5) for row in (total("git", run), total("hg", run, 5.0), total("hg(null)", run, 7.0))]
    assert wall(section_of(*rows)).control.largest == 2.0


def test_the_references_own_control_is_preferred_and_a_control_without_its_subject_is_none() -> None:
    rows = [row for run in range(5) for row in (
        total("git", run), total("hg", run), total("a(null)", run), total("git(null)", run, 11.0),
        total("hg(null)", run, 90.0), total("odd", run, null_control=True),
    )]  # fmt: skip
    assert wall(section_of(*rows)).control.largest == 1.0
    rows = [total("git", 0), total("hg", 0), total("a(null)", 0), total("odd", 0, null_control=True)]
    assert wall(section_of(*rows)).control.reason == "no null control"


@pytest.mark.parametrize("field", ["scenario", "remote_transport", "host"])
def test_unlike_settings_are_never_compared(field: str) -> None:
    rows = [total("git", run) for run in range(10)] + [total("hg", run, **{field: "other"}) for run in range(10)]
    summary = summarize(*rows)
    assert len(summary.sections) == 2
    assert all(section.differences == () for section in summary.sections)
    assert {(s.reference, len(s.subjects)) for s in summary.sections} == {("git", 1), ("hg", 1)}


def test_no_value_of_a_section_holds_runs_of_another_setting() -> None:
    # A difference names no setting: it can only be read inside the section that made it.
    assert {"setting", "remote_transport", "host"}.isdisjoint(f.name for f in dataclasses.fields(Difference))


def test_runs_stand_in_order_of_run_and_subject_those_without_a_number_first() -> None:
    rows = [total("hg", 0), total("git", 1), total("git", 0), {**total("git", 0), "run": None}]
    assert [(r.run, r.subject) for r in summarize(*rows).runs] == [(None, "git"), (0, "git"), (0, "hg"), (1, "git")]


def test_the_order_of_rows_does_not_change_the_summary() -> None:
    rows = sweep(6)
    assert summarize(*rows) == summarize(*reversed(rows))


def test_the_first_reason_for_unknown_network_bytes_is_kept() -> None:
    rows = [total("git", 0), total("git", 1, network_bytes=None, network_bytes_reason="file transport")]
    assert section_of(*rows).subjects[0].network_bytes_reason == "file transport"


def test_tasks_at_once_are_not_compared_and_the_sum_of_commands_that_overlap_is_no_time() -> None:
    at_once = {"n_tasks": 8, "tasks_published": 1, "tasks_refused": {"task1": "task1.acquire"}, "lost_updates": 0}
    section = section_of(*(row | at_once for row in sweep(10)))
    assert section.control == section.differences == ()
    assert {subject.medians["elapsed_ms"] for subject in section.subjects} == {None}
    assert [subject.n_passed for subject in section.subjects] == [10, 10, 10]
