import io
import json
from collections.abc import Sequence

from rich.console import Console

from fairtrial.evidence.loop_report import LoopSummary, summarize_loop
from fairtrial.evidence.loop_runs import LoopFold, PlannedRun, Setting
from fairtrial.report.loop import loop_report_json, render_loop_markdown, render_loop_terminal

WEIGHTED = "estimated_cost_weighted_tokens_with_envelope"


def total(subject: str, run: int, **fields: object) -> dict[str, object]:
    return {
        "subject": subject,
        "scenario": "task_loop",
        "run": run,
        "remote_transport": "http",
        "host": "h",
        "block": f"b{run}",
        "operation": "task_loop.total",
        "step_kind": "summary",
        "returncode": 0,
        "elapsed_ms": 100.25 + run,
        "acquire_ms_task": 20.0,
        "acquire_ms_followup": 15.0,
        "followup_warm_delta_ms": -5.0,
        "tool_call_count": 12,
        "raw_output_bytes": 4000,
        "estimated_tokens": 300,
        WEIGHTED: 900,
        "cpu_user_s": 0.25,
        "null_control": subject.endswith("(null)"),
        "oracle_payload_on_remote_branch": True,
        "coverage_complete": True,
        "token_method": "chars-div-4/1",
        **fields,
    }


def cold_warm(**fields: object) -> dict[str, object]:
    return {
        **total("git", 0, scenario="agent_task_baseline_v1", remote_transport="file", operation="agent_task.total"),
        "acquire_ms_task": None,
        "acquire_ms_followup": None,
        "followup_warm_delta_ms": None,
        "phase_elapsed_ms": {"cold": 70.0, "warm": 30.0},
        "acquire_ms_cold": 40.0,
        "acquire_ms_warm": 10.0,
        "warm_acquire_delta_ms": -30.0,
        "coverage_complete": False,
        "network_bytes": None,
        "network_bytes_reason": "file transport",
        **fields,
    }


def publication(**fields: object) -> dict[str, object]:
    return {
        **total("oak", 0, operation="interrupted_publication.total"),
        "scenario": "interrupted_publication_after_request_v1",
        "publication_outcome": "unreported",
        "fixture_delivery_state": "complete_request_observed",
        "mutation_requests_observed": 1,
        "network_request_bytes_observed": 500,
        "local_head_preserved": True,
        "local_work_preserved": False,
        **fields,
    }


def summarize(*rows: dict[str, object], plan: Sequence[PlannedRun] | None = None) -> LoopSummary:
    fold = LoopFold()
    for row in rows:
        fold.add(row)
    return summarize_loop(fold, plan)


def table(markdown: str, title: str) -> list[list[str]]:
    """Give the lines of one table, header first, cells split."""
    body = markdown.split(f"## {title}\n\n", 1)[1].split("\n\n", 1)[0].splitlines()
    return [line.strip("| ").split(" | ") for line in body if not line.startswith("| ---")]


SWEEP = [total(subject, run) for run in range(2) for subject in ("git", "git(null)", "hg")]


def test_the_header_says_that_steps_and_settings_are_not_equivalent() -> None:
    markdown = render_loop_markdown(summarize(*SWEEP))
    assert markdown.startswith("# fairtrial loop report\n\nThis is whole-task evidence. Steps are not equal")
    assert "one scenario, one transport and one machine" in markdown
    assert "Tokens are estimates" in markdown
    assert "Rules: chars-div-4/1." in markdown
    assert "Rules:" not in render_loop_markdown(summarize())


def test_each_section_has_a_line_a_subject() -> None:
    markdown = render_loop_markdown(summarize(*SWEEP))
    header, git, hg, control = table(markdown, "Subjects: task_loop over http on h")
    assert header[:2] == ["subject", "planned"]
    assert git == [
        "git", "", "2 / 2", "2 / 2", "100.8", "20.0", "15.0", "-5.0", "12", "4000", "300", "900", "pass", "complete",
        "0.250 + unmeasured", "unmeasured", "unmeasured",
    ]  # fmt: skip
    assert hg[0] == "hg"
    assert control[0] == "git(null) \\[control\\]"


def test_differences_stand_beside_the_controls_spread_or_the_reason_for_none() -> None:
    markdown = render_loop_markdown(summarize(*SWEEP))
    lines = table(markdown, "Differences from git: task_loop over http on h")
    assert lines[1] == ["hg", "wall ms", "2", "0.0", "too few: 2 of 5 blocks", "no timing claim: 2 of 10 runs"]
    assert lines[5] == ["hg", "calls", "2", "0.0", "too few: 2 of 5 blocks", "no timing"]
    many = [total(subject, run) for run in range(5) for subject in ("git", "git(null)", "hg")]
    lines = table(render_loop_markdown(summarize(*many)), "Differences from git: task_loop over http on h")
    assert lines[1][4] == "0.0, 0.0"


def test_the_controls_own_spread_is_shown_even_without_another_subject() -> None:
    rows = [total(subject, run) for run in range(5) for subject in ("git", "git(null)")]
    markdown = render_loop_markdown(summarize(*rows))
    lines = table(markdown, "Control, git against git(null): task_loop over http on h")
    assert lines[1] == ["wall ms", "5", "0.0", "0.0"]
    few = table(render_loop_markdown(summarize(*SWEEP)), "Control, git against git(null): task_loop over http on h")
    assert few[1] == ["wall ms", "2", "too few: 2 of 5 blocks", "too few: 2 of 5 blocks"]
    assert "Control," not in render_loop_markdown(summarize(total("git", 0)))
    shown = [line.split() for line in on_terminal(summarize(*rows), 200).splitlines()]
    assert ["task_loop", "git,", "git(null)", "wall", "ms", "5", "0.0,", "0.0"] in shown


def test_each_run_has_a_line_with_the_columns_of_the_spec() -> None:
    rows = [total("git", 0), total("git", 1, returncode=1, oracle_payload_on_remote_branch=False)]
    rows += [total("git", 2, elapsed_ms=None, oracle_payload_on_remote_branch=None, remote_transport=None)]
    markdown = render_loop_markdown(summarize(*rows))
    lines = table(markdown, "Runs over http on h")
    assert lines[0] == [
        "scenario", "transport", "subject", "run", "wall ms", "calls", "weighted tokens", "warm delta ms",
        "truth check",
    ]  # fmt: skip
    assert lines[1] == ["task_loop", "http", "git", "0", "100.2", "12", "900", "-5.0", "pass"]
    assert lines[2] == ["task_loop", "http", "git", "1 failed", "101.2", "12", "900", "-5.0", "FAIL"]
    assert len(lines) == 3
    (unnamed,) = table(markdown, "Runs over an unnamed transport on h")[1:]
    assert unnamed == ["task_loop", "unmeasured", "git", "2", "unmeasured", "12", "900", "-5.0", "unmeasured"]


def test_the_cold_and_warm_table_stands_only_for_its_scenario() -> None:
    markdown = render_loop_markdown(summarize(cold_warm(), cold_warm(run=1, coverage_complete=None)))
    lines = table(markdown, "Cold clone and warm isolated task over file on h")
    assert lines[1] == ["file", "git", "0", "70.0", "30.0", "40.0", "10.0", "pass", "partial"]
    assert lines[2][-1] == "unmeasured"
    subjects = table(markdown, "Subjects: agent_task_baseline_v1 over file on h")
    assert subjects[1][5:8] == ["40.0", "10.0", "-30.0"]
    assert "network bytes of git: file transport" in markdown
    assert "Cold clone" not in render_loop_markdown(summarize(*SWEEP))


def test_the_publication_table_stands_only_when_there_are_such_rows() -> None:
    bare = publication(run=1, publication_outcome=None, fixture_delivery_state=None, local_head_preserved=None)
    markdown = render_loop_markdown(summarize(publication(), bare, total("git", 0)))
    lines = table(markdown, "Interrupted publication")
    assert lines[1] == ["http", "oak", "0", "unreported", "complete_request_observed", "1", "500", "yes", "no"]
    assert lines[2] == ["http", "oak", "1", "unmeasured", "unmeasured", "1", "500", "unmeasured", "no"]
    assert len(lines) == 3
    assert "Interrupted publication" not in render_loop_markdown(summarize(*SWEEP))


def test_what_nobody_was_meant_to_play_is_listed_as_left_out_and_has_no_table_of_its_own() -> None:
    skip = {
        "operation": "agent_task.skipped",
        "returncode": 77,
        "skip_reason": "file only",
        "remote_transport": "native",
    }
    rows = summarize(total("git", 0), total("hg", 0, scenario="agent_task_baseline_v1", **skip))
    for text in (render_loop_markdown(rows), on_terminal(rows, 200)):
        before, _, left_out = text.partition("file only")[0].rpartition("agent_task_baseline_v1")
        assert "native" in left_out
        assert "agent_task_baseline_v1" not in before
    void = total("hg", 0, scenario="agent_task_baseline_v1", error_kind="harness-error", returncode=1, valid=False)
    assert "Subjects: agent_task_baseline_v1" in render_loop_markdown(summarize(void))


def test_skips_voids_and_failures_are_listed_with_seventy_characters_of_reason() -> None:
    skip = {"operation": "task_loop.skipped", "returncode": 77, "skip_reason": "r" * 100}
    markdown = render_loop_markdown(
        summarize(
            total("git", 0, **skip),
            total("git", 1, **skip),
            total("git", 2, error_kind="infra-error", error_detail="d" * 100),
            total("git", 3, returncode=1, stderr="s" * 100),
        )
    )
    where = "task_loop over http on h"
    assert table(markdown, "Skipped")[1] == [where, "git", "(whole run)", "2", "r" * 69 + "…"]
    assert table(markdown, "Void runs")[1] == [where, "git", "2", "infra-error", "d" * 69 + "…"]
    assert table(markdown, "Failed runs")[1] == [where, "git", "3", "s" * 69 + "…"]
    only_steps = render_loop_markdown(summarize())
    assert "##" not in only_steps


def planned(subject: str, *, scenario: str = "task_loop", null_control: bool = False) -> PlannedRun:
    setting = Setting(scenario=scenario, remote_transport="http", host="h")
    return PlannedRun(key=f"{scenario}/{subject}", setting=setting, subject=subject, null_control=null_control)


def test_every_planned_trial_stands_in_the_report_with_what_became_of_it() -> None:
    fault = {"scenario": "publication_under_fault_v1", "publications": [{"fault_case": "control", "valid": True}]}
    stop = {"error_kind": "cancelled", "error_detail": "stopped by signal 15"}
    rows = [
        total("git", 0, key="task_loop/git", attempt=1),
        total("hg", 0, key="task_loop/hg", attempt=1, **stop),
        total("hg", 0, key="publication_under_fault_v1/hg", attempt=1, **fault),
        total("jj", 0, key="publication_under_fault_v1/jj", attempt=1, **fault | stop | {"publications": None}),
    ]
    plan = [planned(name) for name in ("git", "hg", "oak")] + [planned("git(null)", null_control=True)]
    plan += [planned(name, scenario="publication_under_fault_v1") for name in ("hg", "jj", "oak")]
    plan.append(planned("git", scenario="parallel_tasks_v1"))
    summary = summarize(*rows, plan=plan)
    markdown = render_loop_markdown(summary)
    said = "INCOMPLETE: 6 of 8 planned trials have no counting attempt: 2 void, 4 never begun."
    assert said in markdown
    assert said in on_terminal(summary, 200)
    where = "task_loop over http on h"
    lines = table(markdown, f"Subjects: {where}")
    assert [line[:4] for line in lines[1:]] == [
        ["git", "1", "1 / 1", "1 / 1"],
        ["hg", "1", "0 / 0", "0 / 1"],
        ["oak", "1", "0 / 0", "0 / 0"],
        ["git(null) \\[control\\]", "1", "0 / 0", "0 / 0"],
    ]
    assert table(markdown, "Void runs")[2] == [where, "hg", "0", "cancelled", "stopped by signal 15"]
    assert [line[:2] + line[3:] for line in table(markdown, "Never begun")[1:]] == [
        ["parallel_tasks_v1 over http on h", "git", "1"],
        ["publication_under_fault_v1 over http on h", "oak", "1"],
        [where, "oak", "1"],
        [where, "git(null)", "1"],
    ]
    assert (
        "Planned runs that are not in this table: jj (1 void, 0 never begun), oak (0 void, 1 never begun)." in markdown
    )
    for text in (markdown, " ".join(on_terminal(summary, 200).split())):
        assert text.count("Under faults each subject plays the cases that it can meet, which are not the same") == 1
    report = loop_report_json(summary, sealed=False)
    assert (report["planned"], report["uncounted"]) == (8, 6)
    subjects = [each for section in report["sections"] for each in section["subjects"]]  # type: ignore[attr-defined]
    assert [(each["subject"], each["planned"], each["not_begun"]) for each in subjects] == [
        ("git", 1, 1), ("hg", 1, 0), ("jj", 1, 0), ("oak", 1, 1),
        ("git", 1, 0), ("hg", 1, 0), ("oak", 1, 1), ("git(null)", 1, 1),
    ]  # fmt: skip


def test_bare_rows_have_no_plan_and_a_whole_sweep_is_not_called_incomplete() -> None:
    bare = summarize(total("git", 0, error_kind="cancelled"))
    assert "INCOMPLETE" not in render_loop_markdown(bare)
    report = loop_report_json(bare, sealed=False)
    assert (report["planned"], report["uncounted"]) == (None, None)
    whole = summarize(total("git", 0, key="task_loop/git", attempt=1), plan=[planned("git")])
    assert "INCOMPLETE" not in render_loop_markdown(whole)
    report = loop_report_json(whole, sealed=False)
    assert (report["planned"], report["uncounted"]) == (1, 0)


def test_foreign_text_is_escaped_in_both_renderings() -> None:
    evil = "\x1b[2J</td>|[x](http://y)"
    rows = [
        total(evil, 0, scenario=evil, remote_transport=evil, host=evil, returncode=1, stderr=evil),
        total("git", 1, operation="a.skipped", returncode=77, skip_reason=evil),
        total("git", 2, error_kind="infra-error", error_detail=evil),
        publication(publication_outcome=evil, fixture_delivery_state=evil),
        total("hg", 3, network_bytes_reason=evil),
    ]
    summary = summarize(*rows)
    markdown = render_loop_markdown(summary)
    assert "\x1b" not in markdown
    assert "</td>" not in markdown
    assert "http://" not in markdown
    console = Console(file=io.StringIO(), width=400)
    render_loop_terminal(summary, console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "\x1b[2J" not in shown
    assert "\\x1b[2J" in shown


def on_terminal(summary: LoopSummary, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    render_loop_terminal(summary, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_terminal_shows_what_a_task_costs_and_each_run() -> None:
    shown = on_terminal(summarize(*SWEEP, cold_warm(), total("hg", 2, cpu_system_s=0.5, peak_memory_bytes=2**21)), 200)
    lines = [line.split() for line in shown.splitlines()]
    assert ["agent_task_baseline_v1", "git", "1", "/", "1", "100.2", "-30.0", "12", "900", "pass"] in lines
    assert ["task_loop", "git(null)", "2", "/", "2", "100.8", "-5.0", "12", "900", "pass"] in lines
    costs = ["4000", "300", "unmeasured", "40.0", "10.0", "unmeasured", "unmeasured"]
    assert ["git", *costs] in lines
    assert "What agent_task_baseline_v1 over file on h costs" in shown
    assert ["task_loop", "http", "hg", "1", "101.2", "12", "900", "-5.0", "pass"] in lines
    assert "too few: 2 of 5 blocks" in shown
    assert "no timing claim: 2 of 10 runs" in shown
    assert "Differences from the reference (git) over http on h" in shown
    enough = [total(subject, run) for run in range(5) for subject in ("git", "git(null)", "hg")]
    assert "0.0, 0.0" in on_terminal(summarize(*enough), 200)
    whole = total("hg", 0, network_bytes=5000, cpu_system_s=0.5, peak_memory_bytes=2**21)
    lines = [line.split() for line in on_terminal(summarize(whole), 200).splitlines()]
    assert ["hg", "4000", "300", "5000", "20.0", "15.0", "0.750", "2.0"] in lines
    bounded = summarize(total("hg", 0, peak_memory_bytes=None, peak_memory_below_bytes=2**20))
    assert "< 1.0" in on_terminal(bounded, 200)
    assert "below 1048576" in render_loop_markdown(bounded)
    assert "costs" not in on_terminal(summarize(total("hg", 0, returncode=1)), 200)


def test_times_of_unlike_transports_or_machines_never_stand_in_one_table() -> None:
    http = [total(subject, 0, elapsed_ms=111.5) for subject in ("git", "git(null)", "hg")]
    file = [total(each, 0, remote_transport="file", elapsed_ms=222.5) for each in ("git", "git(null)", "hg")]
    away = [total(each, 0, host="other", elapsed_ms=333.5) for each in ("git", "hg")]
    cold = [
        cold_warm(remote_transport=each, phase_elapsed_ms={"cold": ms, "warm": ms})
        for each, ms in (("file", 222.5), ("http", 111.5))
    ]
    parallel = [
        total("git", 0, remote_transport=each, lost_updates=0, parallel_work_wall_ms=ms)
        for each, ms in (("file", 222.5), ("http", 111.5))
    ]
    summary = summarize(*http, *file, *away, *cold, *parallel)
    markdown = render_loop_markdown(summary).split("\n## ")[1:]
    terminal = on_terminal(summary, 200).split("\n\n")[1:]
    for part in (*markdown, *terminal):
        assert sum(ms in part for ms in ("111.5", "222.5", "333.5")) <= 1, part
    assert sum("111.5" in part for part in markdown) >= 4


def test_one_subject_has_neither_differences_nor_a_control_to_show() -> None:
    shown = on_terminal(summarize(total("git", 0, remote_transport=None)), 200)
    assert "Differences from" not in shown
    assert "Control:" not in shown


def test_eighty_columns_break_no_name() -> None:
    for words in ("task_loop", "git(null)", "transport", "difference"):
        assert words in on_terminal(summarize(*SWEEP), 80)


def test_the_same_rows_give_the_same_bytes() -> None:
    assert render_loop_markdown(summarize(*SWEEP)) == render_loop_markdown(summarize(*reversed(SWEEP)))


def test_the_json_report_is_plain_and_complete() -> None:
    rows = [
        *SWEEP,
        total("git", 2, error_kind="infra-error", error_detail="d", key="k", attempt=1),
        total("git", 2, error_kind="infra-error", error_detail="d", key="k", attempt=2),
        total("git", 3, returncode=1, stderr="s", remote_transport=None, host=None),
        total("git", 4, operation="task_loop.skipped", returncode=77, skip_reason="r"),
    ]
    report = loop_report_json(summarize(*rows), sealed=True)
    assert report == json.loads(json.dumps(report))
    assert (report["schema"], report["sealed"], report["audited"]) == ("loop-report/1", True, False)
    assert report["rows"] == len(rows)
    assert "Not audited:" in render_loop_markdown(summarize(*rows)).split("##")[0]
    assert report["token_rules"] == ["chars-div-4/1"]
    sections = report["sections"]
    assert isinstance(sections, list)
    assert [section["remote_transport"] for section in sections] == [None, "http"]
    http = sections[1]
    assert (http["scenario"], http["host"], http["reference"]) == ("task_loop", "h", "git")
    git = http["subjects"][0]
    assert git["as_failures"] == {"passed": 2, "runs": 4}
    assert (git["runs"], git["passed"], git["skipped"], git["void"], git["voided_attempts"]) == (2, 2, 1, 1, 1)
    assert git["medians"]["elapsed_ms"] == 100.75
    assert (git["medians"]["raw_output_bytes"], git["medians"]["network_bytes"]) == (4000, None)
    assert (git["truth_check"], git["coverage"], git["network_bytes_reason"]) == ("pass", "complete", None)
    assert http["control"][0] == {
        "field": "elapsed_ms",
        "subject": "git",
        "null_subject": "git(null)",
        "blocks": 2,
        "largest": None,
        "median": None,
        "reason": "too few: 2 of 5 blocks",
    }
    assert sections[0]["control"][0]["subject"] is None
    difference = http["differences"][0]
    assert difference["field"] == "elapsed_ms"
    assert difference["control"] == {"blocks": 2, "largest": None, "median": None, "reason": "too few: 2 of 5 blocks"}
    assert difference["timing_claim"] == "no timing claim: 2 of 10 runs"
    assert http["differences"][4]["timing_claim"] is None
    runs = report["runs"]
    assert isinstance(runs, list)
    assert len(runs) == 7
    assert runs[1] == {
        "scenario": "task_loop",
        "remote_transport": "http",
        "host": "h",
        "subject": "git",
        "run": 0,
        "block": "b0",
        "attempt": 0,
        "passed": True,
        "elapsed_ms": 100.25,
        "tool_call_count": 12,
        WEIGHTED: 900,
        "warm_acquire_delta_ms": -5.0,
        "truth_check": "pass",
        "coverage_complete": True,
    }
    place = {"scenario": "task_loop", "remote_transport": "http", "host": "h", "subject": "git"}
    assert report["skipped"] == [{**place, "operation": "(whole run)", "reason": "r", "runs": 1}]
    assert report["void"] == [{**place, "run": 2, "error_kind": "infra-error", "detail": "d"}]
    assert report["failed"] == [{**place, "remote_transport": None, "host": None, "run": 3, "detail": "s"}]
