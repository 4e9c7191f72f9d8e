"""The report of an agent sweep. Nothing is computed here: the aggregates hold every figure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from rich.console import Console

from fairtrial.evidence.bench import (
    BASELINE,
    SAVINGS_FIELDS,
    SPENT_FIELDS,
    TOKEN_FIELDS,
    ArmAggregate,
    BenchSummary,
    broken_incumbents,
    savings,
)
from fairtrial.evidence.bench_remarks import Remarks
from fairtrial.report.document import NOT_AUDITED, Document, Table, print_document, render_markdown
from fairtrial.report.reviews import review_tables
from fairtrial.report.text import UNMEASURED, figure, signed_figure

__all__ = ["bench_report_json", "render_bench_markdown", "render_bench_terminal"]

SCHEMA: Final = "bench-report/1"
LABELS: Final = {
    "input_tokens": "input tokens",
    "cache_creation_input_tokens": "cache write tokens",
    "cache_read_input_tokens": "cache read tokens",
    "output_tokens": "output tokens",
    "cost_usd": "cost USD",
    "duration_s": "duration s",
    "num_turns": "turns",
    "diff_files": "files",
    "diff_insertions": "insertions",
    "diff_deletions": "deletions",
}
RESULT_FIELDS: Final = ("cost_usd", "duration_s")
WORK_FIELDS: Final = ("num_turns", "diff_files", "diff_insertions", "diff_deletions")
REMARK_LABELS: Final = {
    "tests_edited": "edit tests",
    "needs_its_tests": "pass only with their own tests",
    "auto_loaded": "change files that act by themselves",
    "disagreements": "wire and agent disagree",
    "other_models": "other models answered",
    "egress_refused": "asked for what is not granted",
    "probes": "looks for history or elsewhere",
    "same_change": "same bytes as another arm's",
}
TASK_LABELS: Final = {
    "task_base_sha": "commit",
    "sanitized_task_sha": "commit that agents saw",
    "task_prompt_digest": "prompt",
    "oracle_digest": "oracle",
    "isolation": "judged",
    "controls": "controls",
    "setup_network": "set-up with network",
}
MARKED_FIELDS: Final = frozenset({*TOKEN_FIELDS, "cost_usd"})
"""Fields that are lower bounds where replies broke off."""
DECIMALS: Final = {"cost_usd": 4, "duration_s": 1}
REMARKS_NOTE: Final = (
    "Counts of valid runs; none of these changes a verdict. Two arms may write the same bytes where a fix is short;"
    " where it is long, look for how the one came to the other's."
)
MEDIANS_NOTE: Final = (
    "Figures are medians over valid runs; failures count, voids do not. What was not measured in every valid run is"
    " unmeasured, never zero. The column 'voids as failures' counts each void attempt as a failed run."
)
BOUND_NOTE: Final = (
    "≥: at least so much, ≤: at most: replies broke off, by the session's doing or the provider's, and what they had"
    " used by then was counted as far as it was seen. ~: both, so that a saving may be none."
)
USAGE_NOTE: Final = (
    "Where usage comes from an agent's own words and not from the wire, tokens may cover only its main loop while cost"
    " includes its subagents."
)


def render_bench_markdown(summary: BenchSummary) -> str:
    """Give the report as Markdown."""
    return render_markdown(_document(summary))


def render_bench_terminal(summary: BenchSummary, console: Console) -> None:
    """Print the report."""
    print_document(_document(summary), console)


def bench_report_json(summary: BenchSummary, *, sealed: bool) -> dict[str, object]:
    """Give the report as one JSON object of schema `bench-report/1`.

    Args:
        summary: What the rows show.
        sealed: The rows come from a directory whose seal names its last row.
    """
    return {
        "schema": SCHEMA,
        "sealed": sealed,
        "audited": False,
        "aggregate": {
            task: {arm: _arm_json(aggregate) for arm, aggregate in arms.items()}
            for task, arms in summary.aggregates.items()
        },
        "savings": savings(summary.aggregates),
        "broken_incumbent_arms": broken_incumbents(summary.aggregates),
        "outage": {"final_streak": summary.final_streak, "max_streak": summary.max_streak},
        "planned": None if summary.planned is None else {task: dict(arms) for task, arms in summary.planned.items()},
        "uncounted": None if summary.planned is None else {t: dict(arms) for t, arms in summary.uncounted.items()},
        "skipped_tasks": list(summary.skipped_tasks),
        "exit_not_tried": list(summary.exit_not_tried),
        "remarks": _remarks_json(summary.remarks),
    }


def _remarks_json(remarks: Remarks) -> dict[str, object]:
    return {
        "cells": {task: {arm: asdict(cell) for arm, cell in arms.items()} for task, arms in remarks.cells.items()},
        "provenance": {name: list(values) for name, values in remarks.provenance.items()},
        "tasks": {task: {name: list(values) for name, values in f.items()} for task, f in remarks.tasks.items()},
        "disagreements": [asdict(each) for each in remarks.disagreements],
        "without_controls": dict(remarks.without_controls),
        "scripted_rows": remarks.scripted,
        "uncontained_rows": remarks.uncontained,
        "environment_differs": {task: list(names) for task, names in remarks.environment_differs.items()},
    }


def _arm_json(aggregate: ArmAggregate) -> dict[str, object]:
    return {
        **aggregate.medians,
        "resolved": aggregate.resolved,
        "runs": aggregate.runs,
        "valid_runs": aggregate.valid_runs,
        "excluded_runs": aggregate.excluded_runs,
        "voided_attempts": aggregate.voided_attempts,
        "as_failures": {"resolved": aggregate.resolved, "runs": aggregate.runs_as_failures},
        "transcripts_missing": aggregate.transcripts_missing,
        "class": aggregate.task_class,
        "error_kinds": dict(aggregate.error_kinds),
        "spent": dict(aggregate.spent),
        "review": None if aggregate.review is None else asdict(aggregate.review),
        "lower_bound_runs": aggregate.lower_bound_runs,
        "spent_is_lower_bound": aggregate.spent_is_lower_bound,
    }


def _document(summary: BenchSummary) -> Document:
    broken = broken_incumbents(summary.aggregates)
    notes = [NOT_AUDITED, MEDIANS_NOTE, USAGE_NOTE]
    if any(cell.spent_is_lower_bound for arms in summary.aggregates.values() for cell in arms.values()):
        notes.append(BOUND_NOTE)
    if broken:
        notes.append(f"BROKEN INCUMBENT: resolved nothing in any task: {', '.join(broken)}.")
    if summary.max_streak:
        notes.append(
            f"Outage: the longest streak of endings that an outage causes is {summary.max_streak} rows,"
            f" the one at the end {summary.final_streak}."
        )
    if summary.uncounted:
        n_planned = sum(n for arms in (summary.planned or {}).values() for n in arms.values())
        lacking = [f"{task}/{arm} ({n})" for task, arms in summary.uncounted.items() for arm, n in arms.items()]
        n_lacking = sum(n for arms in summary.uncounted.values() for n in arms.values())
        notes.append(
            f"INCOMPLETE: {n_lacking} of {n_planned} planned trials have no counting attempt: {', '.join(lacking)}."
        )
    if summary.skipped_tasks:
        notes.append(f"Left out because they are expensive: {', '.join(summary.skipped_tasks)}.")
    if summary.exit_not_tried:
        notes.append(
            f"NOT TRIED with code that ends its process with status 0 when it is loaded: "
            f"{', '.join(summary.exit_not_tried)}. No source file of the reference is in a language that we can make do"
            " so; a cheat of the task's own can show it."
        )
    notes += _remark_notes(summary.remarks)
    return Document(title="fairtrial bench report", notes=notes, tables=list(_tables(summary)))


def _remark_notes(remarks: Remarks) -> Iterator[str]:
    if remarks.scripted:
        yield f"A SCRIPT STOOD FOR THE MODEL in {remarks.scripted} rows: they say nothing of any model."
    if remarks.uncontained:
        yield f"NOT CONTAINED: {remarks.uncontained} rows ran without a sandbox: good for a look, and never promoted."
    if remarks.without_controls:
        tasks = ", ".join(f"{task} ({known})" for task, known in remarks.without_controls.items())
        yield f"NO FRESH CONTROLS, so nobody knows whether the oracle can be believed: {tasks}. Run `fairtrial check`."
    apart = [task for task, found in remarks.tasks.items() if "process" in found.get("isolation", ())]
    if apart:
        yield f"Judged with the candidate in a sandbox of its own (isolation: process): {', '.join(apart)}."
    for task, names in remarks.environment_differs.items():
        yield f"Task {task}: the arms saw different environments beyond what they declare: {', '.join(names)}."


def _tables(summary: BenchSummary) -> Iterator[Table]:
    cells = [(task, arm, aggregate) for task, arms in summary.aggregates.items() for arm, aggregate in arms.items()]
    yield Table(
        title="Results",
        headers=(
            *("task", "class", "arm", "planned", "resolved / valid", "excluded", "voids as failures"),
            *_labels(RESULT_FIELDS),
        ),
        rows=[
            _result_cells(task, arm, aggregate, (summary.planned or {}).get(task, {}).get(arm))
            for task, arm, aggregate in cells
        ],
    )
    yield Table(
        title="Work",
        headers=("task", "arm", *_labels(WORK_FIELDS)),
        rows=[(task, arm, *_medians(aggregate, WORK_FIELDS)) for task, arm, aggregate in cells],
    )
    yield Table(
        title="Tokens",
        headers=("task", "arm", *_labels(TOKEN_FIELDS), "transcripts missing"),
        rows=[
            (task, arm, *_medians(aggregate, TOKEN_FIELDS), str(aggregate.transcripts_missing))
            for task, arm, aggregate in cells
        ],
    )
    yield from review_tables(summary.aggregates)
    saved = [
        (task, arm, *(_saving(summary.aggregates[task], arm, name, fields[name]) for name in SAVINGS_FIELDS))
        for task, arms in savings(summary.aggregates).items()
        for arm, fields in arms.items()
    ]
    if saved:
        yield Table(
            title="Percent below the baseline",
            headers=("task", "arm", *(LABELS[name] for name in SAVINGS_FIELDS)),
            rows=saved,
            note="A negative figure lies above the baseline.",
        )
    kinds = [
        (task, arm, kind, str(n_runs))
        for task, arm, aggregate in cells
        for kind, n_runs in aggregate.error_kinds.items()
    ]
    if kinds:
        yield Table(title="How runs ended that were not resolved", headers=("task", "arm", "kind", "runs"), rows=kinds)
    yield from _remark_tables(summary.remarks)
    yield Table(
        title="Spent, superseded attempts included",
        headers=("task", "arm", "superseded voids", *(LABELS[name] for name in SPENT_FIELDS)),
        rows=[
            (
                task,
                arm,
                str(aggregate.voided_attempts),
                *_spent(aggregate),
            )
            for task, arm, aggregate in cells
        ],
    )


def _remark_tables(remarks: Remarks) -> Iterator[Table]:
    counts = [
        (task, arm, *(str(getattr(cell, name)) for name in REMARK_LABELS))
        for task, arms in remarks.cells.items()
        for arm, cell in arms.items()
        if any(getattr(cell, name) for name in REMARK_LABELS)
    ]
    if counts:
        yield Table(
            title="Runs to look at",
            headers=("task", "arm", *REMARK_LABELS.values()),
            rows=counts,
            note=REMARKS_NOTE,
        )
    if remarks.disagreements:
        yield Table(
            title="Where the wire and the agent disagree",
            headers=("task", "arm", "run", "what", "the wire", "the agent"),
            rows=[
                (each.task, each.arm, "" if each.run is None else str(each.run), each.what, each.wire, each.agent)
                for each in remarks.disagreements
            ],
            note="Every figure above is the wire's. Tokens are input + cache write + cache read + output.",
        )
    if any(remarks.tasks.values()):
        yield Table(
            title="Tasks",
            headers=("task", *TASK_LABELS.values()),
            rows=[
                (task, *(", ".join(value[:12] for value in found.get(name, ())) for name in TASK_LABELS))
                for task, found in remarks.tasks.items()
            ],
            note="Commits and digests are shown by their first twelve digits; the JSON report has all of them.",
        )
    if remarks.provenance:
        rows = [(name, ", ".join(values)) for name, values in remarks.provenance.items()]
        yield Table(title="Where it comes from", headers=("field", "values"), rows=rows)


def _labels(names: Sequence[str]) -> list[str]:
    return [LABELS[name] for name in names]


def _medians(aggregate: ArmAggregate, names: Sequence[str]) -> list[str]:
    mark = "≥" if aggregate.lower_bound_runs else ""
    return [_marked(figure(aggregate.medians[name], DECIMALS.get(name, 0)), name, mark) for name in names]


def _spent(aggregate: ArmAggregate) -> list[str]:
    mark = "≥" if aggregate.spent_is_lower_bound else ""
    return [_marked(figure(aggregate.spent[name], DECIMALS.get(name, 0)), name, mark) for name in SPENT_FIELDS]


def _saving(arms: Mapping[str, ArmAggregate], arm: str, name: str, percent: float | None) -> str:
    """A saving is at most this where the arm used more than was seen, at least where the baseline did."""
    match bool(arms[BASELINE].lower_bound_runs), bool(arms[arm].lower_bound_runs):
        case False, False:
            mark = ""
        case True, False:
            mark = "≥"
        case False, True:
            mark = "≤"
        case _:
            mark = "~"
    return _marked(signed_figure(percent), name, mark)


def _marked(shown: str, name: str, mark: str) -> str:
    return shown if name not in MARKED_FIELDS or shown == UNMEASURED else f"{mark}{shown}"


def _result_cells(task: str, arm: str, aggregate: ArmAggregate, n_planned: int | None) -> Sequence[str]:
    return (
        task,
        aggregate.task_class or "",
        arm,
        "" if n_planned is None else str(n_planned),
        f"{aggregate.resolved} / {aggregate.valid_runs}",
        str(aggregate.excluded_runs),
        f"{aggregate.resolved} / {aggregate.runs_as_failures}",
        *_medians(aggregate, RESULT_FIELDS),
    )
