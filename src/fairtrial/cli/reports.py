"""Rows to reports: which lane, which renderer, which files. Shared by the commands that end with a report."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

from rich.console import Console

from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evidence.bench import BenchFold, BenchSummary, with_plan
from fairtrial.evidence.loop_report import LoopSummary, summarize_loop
from fairtrial.evidence.loop_runs import LoopFold, PlannedRun, Setting
from fairtrial.host.files import write_durably
from fairtrial.loop.rows import remote_of
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.model.loop import JsonObject, Transport
from fairtrial.report.bench import bench_report_json, render_bench_markdown, render_bench_terminal
from fairtrial.report.html import render_html
from fairtrial.report.loop import loop_report_json, render_loop_markdown, render_loop_terminal
from fairtrial.store.layout import Results
from fairtrial.store.rows import read_rows
from fairtrial.store.sweep_file import read_sweep

__all__ = ["Report", "summarize_file", "summarize_results", "write_reports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A summary of either lane, and its three forms.

    Attributes:
        summary: What the rows show.
    """

    summary: LoopSummary | BenchSummary

    def as_markdown(self) -> str:
        """The report for people."""
        if isinstance(self.summary, LoopSummary):
            return render_loop_markdown(self.summary)
        return render_bench_markdown(self.summary)

    def as_json(self, *, sealed: bool) -> JsonObject:
        """The report for programs."""
        if isinstance(self.summary, LoopSummary):
            return loop_report_json(self.summary, sealed=sealed)
        return bench_report_json(self.summary, sealed=sealed)

    def print_to(self, console: Console) -> None:
        """The report on a terminal."""
        if isinstance(self.summary, LoopSummary):
            render_loop_terminal(self.summary, console)
        else:
            render_bench_terminal(self.summary, console)


def summarize_results(results: Results) -> Report:
    """The report of a results directory, from its rows.

    Raises:
        IntegrityError: The rows cannot be read as rows of its sweep.
    """
    sweep = read_sweep(results)
    rows = read_rows(results.results_jsonl, sweep_id=sweep.sweep)
    if sweep.lane == "loop":
        return _fold(rows, sweep.lane, results.results_jsonl, _planned_runs(results, sweep.document))
    report = _fold(rows, sweep.lane, results.results_jsonl)
    if not isinstance(report.summary, BenchSummary):
        return report
    plan = cast("Sequence[Mapping[str, object]]", sweep.document["plan"])
    skipped = cast("Sequence[str]", sweep.document.get("skipped_tasks", ()))
    not_tried = cast("Sequence[str]", sweep.document.get("exit_not_tried", ()))
    trials = ((str(trial["task"]), str(trial["arm"])) for trial in plan)
    return Report(summary=with_plan(report.summary, trials, skipped, not_tried))


def summarize_file(path: Path) -> Report:
    """The report of a bare file of rows; its lane is told by its first row.

    Raises:
        UsageError: The file holds no row, or rows of neither lane.
    """
    rows = read_rows(path)
    first = next(rows, None)
    if first is None:
        raise UsageError(f"{path}: holds no row; name a results directory or a file of rows")
    lane = "loop" if "scenario" in first else "bench" if "arm" in first else None
    if lane is None:
        raise UsageError(f"{path}:1: neither a row of the tool lane (scenario) nor of the agent lane (arm)")
    return _fold(chain([first], rows), lane, path)


def write_reports(results: Results) -> None:
    """Write report.md, report.html and report.json of a directory that is about to be sealed."""
    report = summarize_results(results)
    markdown = report.as_markdown()
    write_durably(results.report_md, markdown.encode(), mode=0o644)
    write_durably(results.report_html, render_html(markdown, title="fairtrial report").encode(), mode=0o644)
    text = json.dumps(report.as_json(sealed=True), ensure_ascii=False, allow_nan=False, indent=1)
    write_durably(results.report_json, f"{text}\n".encode(), mode=0o644)


def _planned_runs(results: Results, document: JsonObject) -> list[PlannedRun]:
    """The trials of a tool sweep, each where the machine that planned it would have measured it.

    Raises:
        IntegrityError: The plan does not say of each trial what it is.
    """
    try:
        host = str(cast("JsonObject", document["machine"])["hostname"])
        entries = [
            (str(each["key"]), cast("JsonObject", each["loop"])) for each in cast("list[JsonObject]", document["plan"])
        ]
        return [
            PlannedRun(
                key=key,
                setting=Setting(scenario=str(task["scenario"]), remote_transport=_remote_of(task), host=host),
                subject=str(cast("JsonObject", task["variant"])["name"]),
                null_control=task["null_control"] is True,
            )
            for key, task in entries
        ]
    except (KeyError, TypeError, ValueError) as problem:
        raise IntegrityError(f"{results.sweep_json}: not a plan that this version understands: {problem}") from problem


def _remote_of(task: JsonObject) -> str:
    """The transport that the trial's rows would name."""
    scenario, transport = SCENARIOS[str(task["scenario"])], Transport(str(task["transport"]))
    return remote_of(scenario, transport, is_played=task["skip_reason"] is None).transport


def _fold(rows: Iterable[JsonObject], lane: str, path: Path, plan: Sequence[PlannedRun] | None = None) -> Report:
    fold = LoopFold() if lane == "loop" else BenchFold()
    for row in rows:
        try:
            fold.add(row)
        except (UsageError, IntegrityError) as problem:
            raise type(problem)(f"{path}: {problem}") from problem
    return Report(summary=summarize_loop(fold, plan) if isinstance(fold, LoopFold) else fold.summary())
