import io
import json

from rich.console import Console

from fairtrial.evidence.bench import MEDIAN_FIELDS, BenchFold, BenchSummary, with_plan
from fairtrial.report.bench import bench_report_json, render_bench_markdown, render_bench_terminal


def row(arm: str = "workflow", *, kind: str | None = None, **fields: object) -> dict[str, object]:
    figures: dict[str, object] = dict.fromkeys(MEDIAN_FIELDS, 10)
    judged = {"error_kind": kind, "resolved": kind is None}
    return {"task": "t", "arm": arm, "class": "c", **judged, **figures, **fields}


def summarize(*rows: dict[str, object]) -> BenchSummary:
    fold = BenchFold()
    for each in rows:
        fold.add(each)
    return fold.summary()


ROWS = [
    row("baseline", cost_usd=2.0, duration_s=12.25),
    row("workflow", key="a", attempt=1, kind="infra-error", cost_usd=None),
    row("workflow", key="a", attempt=2, cost_usd=1.0, transcript_missing=True),
    row("workflow", key="b", attempt=1, kind="session-error", cost_usd=0.0),
]


def test_the_json_report_has_the_fields_of_its_schema() -> None:
    report = bench_report_json(summarize(*ROWS), sealed=True)
    assert report == json.loads(json.dumps(report))
    assert list(report) == [
        *("schema", "sealed", "audited", "aggregate", "savings", "broken_incumbent_arms", "outage"),
        *("planned", "uncounted", "skipped_tasks", "exit_not_tried", "remarks"),
    ]
    assert (report["planned"], report["uncounted"]) == (None, None), "bare rows have no plan"
    assert (report["schema"], report["sealed"], report["audited"]) == ("bench-report/1", True, False)
    assert "Not audited:" in render_bench_markdown(summarize(*ROWS)).split("##")[0]
    assert report["outage"] == {"final_streak": 1, "max_streak": 1}
    aggregate = report["aggregate"]
    assert isinstance(aggregate, dict)
    workflow = aggregate["t"]["workflow"]
    assert workflow["as_failures"] == {"resolved": 1, "runs": 3}
    assert (workflow["runs"], workflow["valid_runs"], workflow["excluded_runs"]) == (2, 1, 1)
    assert (workflow["voided_attempts"], workflow["transcripts_missing"], workflow["class"]) == (1, 1, "c")
    assert workflow["error_kinds"] == {"session-error": 1}
    assert workflow["cost_usd"] == 1.0
    assert workflow["spent"]["cost_usd"] is None
    assert workflow["spent"]["output_tokens"] == 30


def test_figures_of_runs_whose_replies_broke_off_are_marked_as_bounds() -> None:
    cut = {"usage_is_lower_bound": True}
    whole = summarize(row("baseline", cost_usd=2.0), row("one", cost_usd=1.0, usage_is_lower_bound=False))
    assert not set("≥≤~") & set(render_bench_markdown(whole))
    told = summarize(row("baseline", cost_usd=2.0), row("one", cost_usd=1.0, **cut), row("one", cost_usd=1.0))
    markdown = render_bench_markdown(told)
    assert "| t | c | one |  | 2 / 2 | 0 | 2 / 2 | ≥1.0000 | 10.0 |" in markdown
    assert "| t | one | ≥10 | ≥10 | ≥10 | ≥10 | 0 |" in markdown
    assert "| t | one | ≤0.0 | ≤0.0 | ≤0.0 | ≤0.0 | ≤+50.0 | 0.0 |" in markdown
    assert "| t | one | 0 | ≥20 | ≥20 | ≥20 | ≥20 | ≥2.0000 | 20 |" in markdown
    assert "≥: at least so much" in markdown
    assert "| ≥+50.0 | 0.0 |" in render_bench_markdown(
        summarize(row("baseline", cost_usd=2.0, **cut), row("one", cost_usd=1.0))
    )
    both = render_bench_markdown(summarize(row("baseline", cost_usd=2.0, **cut), row("one", cost_usd=1.0, **cut)))
    assert r"| \~+50.0 | 0.0 |" in both
    aggregate = bench_report_json(told, sealed=False)["aggregate"]
    assert isinstance(aggregate, dict)
    one = aggregate["t"]["one"]
    assert (one["lower_bound_runs"], one["spent_is_lower_bound"]) == (1, True)


def test_a_void_attempts_lower_bound_marks_what_was_spent_and_no_median() -> None:
    void = row("workflow", key="a", attempt=1, kind="interrupted", cost_usd=0.5, usage_is_lower_bound=True)
    markdown = render_bench_markdown(summarize(void, row("workflow", key="a", attempt=2, cost_usd=1.0)))
    assert "| t | c | workflow |  | 1 / 1 | 0 | 1 / 2 | 1.0000 | 10 |" in markdown
    assert "| t | workflow | 1 | ≥20 | ≥20 | ≥20 | ≥20 | ≥1.5000 | 20 |" in markdown


def test_markdown_shows_results_savings_endings_and_spending() -> None:
    markdown = render_bench_markdown(summarize(*ROWS))
    assert "| t | c | workflow |  | 1 / 1 | 1 | 1 / 3 |" in markdown
    assert "| t | c | baseline |  | 1 / 1 | 0 | 1 / 1 | 2.0000 | 12.2 |" in markdown
    assert "| t | baseline | 10 | 10 | 10 | 10 |" in markdown
    assert "| t | workflow | 0.0 | 0.0 | 0.0 | 0.0 | +50.0 | +18.4 |" in markdown
    assert "| t | workflow | session-error | 1 |" in markdown
    assert "| t | workflow | 1 | 30 | 30 | 30 | 30 | unmeasured | 30 |" in markdown
    assert "Outage: the longest streak of endings that an outage causes is 1 rows, the one at the end 1." in markdown
    assert "subagents" in markdown


def test_nothing_is_said_about_what_did_not_happen() -> None:
    markdown = render_bench_markdown(summarize(row()))
    for words in ("Percent below", "How runs ended", "Outage", "BROKEN"):
        assert words not in markdown


def test_what_makes_figures_doubtful_is_told() -> None:
    doubtful = row(
        controls="stale",
        scripted_model=True,
        tests_edited=["tests/t.py"],
        auto_loaded=["conftest.py"],
        oracle_passed=True,
        oracle_passed_source_only=False,
        integrity_flags=["usage"],
        model="m",
        environment_undeclared={"variables": ["A"]},
    )
    other = row("baseline", controls="held", model="n", environment_undeclared={"variables": ["A", "B"]})
    markdown = render_bench_markdown(summarize(doubtful, other))
    assert "NO FRESH CONTROLS" in markdown
    assert "t (stale)" in markdown
    assert "A SCRIPT STOOD FOR THE MODEL in 1 rows" in markdown
    assert "| t | workflow | 1 | 1 | 1 | 1 | 0 | 0 |" in markdown
    assert "| model | m, n |" in markdown
    assert "Task t: the arms saw different environments beyond what they declare: variables." in markdown


def test_the_same_bytes_from_two_arms_are_told() -> None:
    same, own = {"diff_digest": "ab" * 32}, {"diff_digest": "cd" * 32}
    rows = [
        *(row("workflow", run=0, **same), row("workflow", run=1, **same), row("workflow", run=2, **own)),
        *(row("baseline", run=0, **same), row("baseline", run=1, kind="infra-error", **own)),
        *(row("third", run=0, diff_digest=None), row("fourth", run=0, diff_digest=None)),
        row("baseline", run=0, **own) | {"task": "other"},
    ]
    cells = summarize(*rows).remarks.cells
    seen = {arm: cell.same_change for arm, cell in cells["t"].items()}
    assert seen == {"baseline": 1, "workflow": 2, "third": 0, "fourth": 0}
    assert cells["other"]["baseline"].same_change == 0
    markdown = render_bench_markdown(summarize(*rows))
    assert "same bytes as another arm's" in markdown
    assert "| t | workflow | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 2 |" in markdown


def test_two_arms_that_a_script_played_may_write_the_same_bytes() -> None:
    rows = [row(arm, diff_digest="ab" * 32, scripted_model=True) for arm in ("baseline", "workflow")]
    assert "Runs to look at" not in render_bench_markdown(summarize(*rows))


def test_a_broken_incumbent_is_told_first() -> None:
    markdown = render_bench_markdown(summarize(row("workflow", kind="verify-failed", **{"class": None})))
    assert "BROKEN INCUMBENT: resolved nothing in any task: workflow." in markdown.split("##")[0]


def test_foreign_text_is_escaped_in_both_renderings() -> None:
    summary = summarize(row("\x1b[2J<b>|", **{"class": "\x07"}, kind="\x1b]0;x"))
    console = Console(file=io.StringIO(), width=400)
    render_bench_terminal(summary, console)
    assert isinstance(console.file, io.StringIO)
    for shown in (render_bench_markdown(summary), console.file.getvalue()):
        assert "\x1b[2J" not in shown
        assert "\x07" not in shown
        assert "\x1b]0" not in shown
    assert "<b>" not in render_bench_markdown(summary)


def test_every_planned_trial_is_in_the_denominator() -> None:
    planned = [("t", "workflow")] * 3 + [("t", "baseline")] + [("never", "workflow")] * 2
    summary = with_plan(summarize(*ROWS), planned, ["dear"], ["t"])
    report = bench_report_json(summary, sealed=True)
    assert report["planned"] == {"t": {"workflow": 3, "baseline": 1}, "never": {"workflow": 2}}
    assert report["uncounted"] == {"t": {"workflow": 2}, "never": {"workflow": 2}}
    markdown = render_bench_markdown(summary)
    assert "INCOMPLETE: 4 of 6 planned trials have no counting attempt: t/workflow (2), never/workflow (2)." in markdown
    assert "Left out because they are expensive: dear." in markdown
    assert "NOT TRIED with code that ends its process with status 0 when it is loaded: t." in markdown
    assert report["exit_not_tried"] == ["t"]
    assert "| never |  | workflow | 2 | 0 / 0 | 0 | 0 / 0 | unmeasured |" in markdown


def test_where_the_wire_and_the_agent_disagree_both_are_shown() -> None:
    claim = {"input_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": None}
    doubtful = row(
        run=2,
        isolation="process",
        oracle_digest="ab" * 32,
        integrity_flags=[
            "work: usage",
            "work: cost",
            "work: skill acme",
            "work: says success after 529",
            "work: other model",
            "work: effort",
            "work: says success after a reply that it did not wait for",
            "work: plugin was not there",
        ],
        wire={"other_models": ["n"]},
        model="m",
        effort="max",
        reported_usage=[{"phase": "work", "usage": claim, "cost_usd": 0.5, "skills_used": []}],
        skill_invoked=True,
    )
    markdown = render_bench_markdown(summarize(doubtful))
    assert "| t | workflow | 2 | work: usage | 10 + 10 + 10 + 10 tokens | 1 + 0 + 0 + unknown tokens |" in markdown
    assert "| t | workflow | 2 | work: cost | 10 USD | 0.5 USD |" in markdown
    assert "| work: skill acme | skills proven: True | skills used: \\[\\] |" in markdown
    assert "| a fault of the provider | success |" in markdown
    assert "| work: effort | told another effort, or none | asked for: max |" in markdown
    assert "| its last reply had not ended | success |" in markdown
    assert "| work: plugin was not there | the plugin was not there | nothing of it |" in markdown
    assert "| work: other model | models: \\['n'\\] | asked for: m |" in markdown
    assert "isolation: process): t." in markdown
    assert "| t |  |  |  | abababababab | process |" in markdown


def test_an_arm_that_never_began_is_neither_broken_nor_a_baseline() -> None:
    report = bench_report_json(
        with_plan(summarize(row("candidate")), [("t", "workflow"), ("t", "baseline")], []), sealed=True
    )
    assert report["broken_incumbent_arms"] == []
    assert report["savings"] == {"t": {}}
