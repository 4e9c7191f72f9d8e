"""How `loop`, `bench` and `resume` end: the report, where things lie, and the exit code."""

import logging
from typing import Final

import click

from fairtrial.cli.output import own_command, print_json, result_console
from fairtrial.cli.reports import Report, summarize_results
from fairtrial.evidence.bench import BenchSummary, broken_incumbents
from fairtrial.evidence.endings import EndingKind
from fairtrial.evidence.loop_report import LoopSummary
from fairtrial.evidence.loop_runs import RunEnding
from fairtrial.promote.promotion import read_promotion
from fairtrial.promote.summary import describe_promotion, print_promotion
from fairtrial.sweep.loop_sweep import Begun

__all__ = ["NOT_ENOUGH", "THE_ANSWER_IS_NO", "bench_exit_code", "exit_code", "finish", "finish_bench"]

LOG: Final = logging.getLogger("fairtrial")
OUR_BUG: Final = 70
THE_ANSWER_IS_NO: Final = 1
NOT_ENOUGH: Final = 5


def finish(begun: Begun, *, as_json: bool) -> int:
    """Print what a pass found and left; returns the exit code."""
    report = summarize_results(begun.results)
    if not isinstance(report.summary, LoopSummary):
        raise TypeError("a loop sweep has rows of another lane")
    code = exit_code(report.summary, n_planned=begun.n_planned, stopped_by=begun.stopped_by)
    return _tell(begun, report, code, as_json=as_json)


def finish_bench(begun: Begun, *, as_json: bool) -> int:
    """Print what a pass of the agent lane found and left; returns the exit code."""
    report = summarize_results(begun.results)
    if not isinstance(report.summary, BenchSummary):
        raise TypeError("an agent sweep has rows of another lane")
    code = bench_exit_code(
        report.summary, n_planned=begun.n_planned, stopped_by=begun.stopped_by, tripped=begun.tripped
    )
    return _tell(begun, report, code, as_json=as_json)


def _tell(begun: Begun, report: Report, code: int, *, as_json: bool) -> int:
    where = str(begun.results.root)
    promotion = read_promotion(begun.results) if begun.results.promotion_json.exists() else None
    if as_json:
        kept = None if begun.scratch is None else str(begun.scratch)
        ending: dict[str, object] = {"results": where, "workspaces": kept, "seal": begun.seal, "exit_code": code}
        if promotion is not None:
            ending["promotion"] = describe_promotion(promotion)
        print_json(report.as_json(sealed=begun.seal is not None) | ending)
        return code
    report.print_to(result_console())
    if promotion is not None:
        print_promotion(promotion, result_console())
    click.echo(f"results: {where}")
    if begun.scratch is not None:
        click.echo(f"workspaces: {begun.scratch}")
    if begun.seal is not None:
        click.echo(f"seal: {begun.seal}  (check: {own_command('audit', where, '--expect', begun.seal)})")
    else:
        LOG.warning("stopped; go on with: %s", own_command("resume", where))
    return code


def exit_code(summary: LoopSummary, *, n_planned: int, stopped_by: int | None) -> int:
    """The exit code of a loop sweep; pure.

    128 + signal after a clean stop; 70 when our own code raised in a trial; 1 when a truth check or a step failed; 5
    when a planned trial has no counting attempt; else 0.
    """
    if stopped_by is not None:
        return 128 + stopped_by
    if any(void.error_kind == EndingKind.UNKNOWN for void in summary.voids):
        return OUR_BUG
    if summary.failures:
        return THE_ANSWER_IS_NO
    n_skipped = sum(subject.n_skipped for section in summary.sections for subject in section.subjects)
    n_counting = sum(run.ending is RunEnding.MEASURED for run in summary.runs) + n_skipped
    return 0 if n_counting >= n_planned else NOT_ENOUGH


def bench_exit_code(summary: BenchSummary, *, n_planned: int, stopped_by: int | None, tripped: bool) -> int:
    """The exit code of an agent sweep; pure.

    128 + signal after a clean stop; 70 when our own code raised in a trial; 5 when an outage stopped it; 1 when an
    incumbent resolved nothing; 5 when a planned trial has no counting attempt; else 0.
    """
    if stopped_by is not None:
        return 128 + stopped_by
    cells = [aggregate for arms in summary.aggregates.values() for aggregate in arms.values()]
    if any(EndingKind.UNKNOWN in cell.error_kinds for cell in cells):
        return OUR_BUG
    if tripped:
        return NOT_ENOUGH
    if broken_incumbents(summary.aggregates):
        return THE_ANSWER_IS_NO
    return 0 if sum(cell.valid_runs for cell in cells) >= n_planned else NOT_ENOUGH
