"""`fairtrial check`: are the tasks worth spending on?"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

import click

from fairtrial.bench.controls import EXIT_AT_IMPORT, REFERENCE
from fairtrial.bench.controls_note import Checked, write_controls
from fairtrial.cli.finish import NOT_ENOUGH
from fairtrial.cli.options import Seconds, path_option, split_names
from fairtrial.cli.output import print_json, result_console
from fairtrial.cli.progress import Progress
from fairtrial.cli.reports import write_reports
from fairtrial.evidence.controls import ControlVerdict, Held, judge_controls
from fairtrial.evidence.rows import Row
from fairtrial.host.clock import rfc3339, utc_now
from fairtrial.host.unplaced import home_above
from fairtrial.report.document import Document, Table, print_document
from fairtrial.store.sweep_file import read_sweep
from fairtrial.sweep.bench_inputs import recorded_bindings
from fairtrial.sweep.bench_plan import BenchOptions
from fairtrial.sweep.bench_sweep import begin_bench
from fairtrial.sweep.loop_sweep import Begun, SweepOptions, final_rows

__all__ = ["command", "warnings_of"]


@click.command("check")
@click.argument("tasks", type=click.Path(path_type=Path))
@click.option("--only", help="Ids of the tasks to check, separated by commas [default: all].")
@click.option("--runs", type=click.IntRange(1, 1000), default=3, show_default=True, help="Runs of the reference.")
@click.option("--timeout", type=Seconds(1), default=600.0, show_default=True, help="Seconds of each step.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Controls at the same time.")
@path_option("--out", "The results directory to make [default: results/bench-<UTC>].")
@path_option("--scratch", "Where to work [default: $TMPDIR, else /var/tmp].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    *,
    tasks: Path,
    only: str | None,
    runs: int,
    timeout: float,
    workers: int,
    out: Path | None,
    scratch: Path | None,
    as_json: bool,
) -> int:
    """Try each task of TASKS with what must fail and what must pass.

    An agent that does nothing must fail, the reference must pass every time, every cheat must fail, and so must code
    that ends its process with status 0 when it is loaded. No model is spoken to. How it went is noted beside the task
    file, and every later report says which tasks have no fresh controls.

    Exit codes: 0 all controls held; 1 one did not; 5 one could not be tried, a run of one is void, or a task has no
    reference. Nothing is noted of a check that an outage stopped.
    """
    options = BenchOptions(
        tasks=str(tasks.absolute()),
        only=() if only is None else split_names(only, "--only"),
        include_expensive=True,
        arms=(),
        model="none",
        agent="nop",
        timeout_s=timeout,
        control_runs=runs,
    )
    with Progress() as progress:
        how = SweepOptions(
            out=out,
            scratch=scratch,
            keep_workspaces=False,
            lock_wait_s=0.0,
            report=write_reports,
            say=progress.say,
            watch=progress.watch,
        )
        begun = begin_bench(options, how, n_workers=workers)
    sweep = read_sweep(begun.results)
    rows = tuple(final_rows(begun.results, sweep))
    verdicts, warnings = judge_controls(rows), warnings_of(rows, Path(str(sweep.document["scratch"])))
    if begun.stopped_by is None and not begun.tripped:  # what never ran has no rows that could say so
        _note(options, verdicts, begun)
    code = _exit_code(verdicts, stopped_by=begun.stopped_by, tripped=begun.tripped)
    if as_json:
        controls = [asdict(verdict) for verdict in verdicts]
        results = {"results": str(begun.results.root), "exit_code": code}
        print_json({"schema": "check/1", **results, "controls": controls, "warnings": warnings})
        return code
    print_document(_document(verdicts, warnings), result_console())
    click.echo(f"results: {begun.results.root}")
    return code


def _note(options: BenchOptions, verdicts: tuple[ControlVerdict, ...], begun: Begun) -> None:
    """Note how it went, for the tasks as they were when they were checked."""
    bindings = recorded_bindings(read_sweep(begun.results))
    checked = Checked(when=rfc3339(utc_now()), results=str(begun.results.root.absolute()), seal=begun.seal or "")
    write_controls(Path(options.tasks), bindings, verdicts, checked)


def _exit_code(verdicts: tuple[ControlVerdict, ...], *, stopped_by: int | None, tripped: bool) -> int:
    if stopped_by is not None:
        return 128 + stopped_by
    if any(verdict.held is Held.FAILED for verdict in verdicts):
        return 1
    solvable = {verdict.task for verdict in verdicts if verdict.control == REFERENCE}
    lacking = any(verdict.held is Held.UNKNOWN or verdict.task not in solvable for verdict in verdicts)
    return NOT_ENOUGH if lacking or tripped else 0


def warnings_of(rows: Sequence[Row], scratch: Path) -> list[str]:
    """What the tasks' controls do not show, and whoever compares agents may want to mend first."""
    warnings: list[str] = []
    if shared := sorted({str(row["task"]) for row in rows if row.get("judge_uid") == "shared"}):
        warnings.append(
            f"ONE UID: oracle and candidate run under the same uid, in sandboxes of their own: {', '.join(shared)}."
            " Where the sweep is root's the oracle has a uid of its own."
        )
    toolchains = {Path(path) for row in rows for path in cast("Mapping[str, object]", row["toolchain_digests"])}
    if told := [str(path) for path in sorted({scratch, *toolchains}) if home_above(path) is not None]:
        warnings.append(
            f"BELOW A HOME: every session can read these paths, which may name a user: {', '.join(told)}."
            " Put toolchains elsewhere, and name another place with --scratch."
        )
    return warnings


def _document(verdicts: tuple[ControlVerdict, ...], warnings: Sequence[str]) -> Document:
    rows = [(v.task, v.control, v.held.value, f"{v.passed} / {v.runs}", v.reason) for v in verdicts]
    table = Table(title="Controls", headers=("task", "control", "verdict", "oracle passed / runs", "reason"), rows=rows)
    notes = ["The reference must pass every time; nothing else may pass at all."]
    notes += [
        f"FLAKY ORACLE: {v.task}: {v.reason}. An oracle that depends on time, order or chance compares nothing."
        for v in verdicts
        if v.flaky
    ]
    tasks = sorted({v.task for v in verdicts})
    for control, meaning in (
        (REFERENCE, "No reference, so it is not known whether they can be solved"),
        (
            EXIT_AT_IMPORT,
            "No reference in a language that can end its process when it is loaded, so that was not tried",
        ),
    ):
        if lacking := sorted(set(tasks) - {v.task for v in verdicts if v.control == control}):
            notes.append(f"{meaning}: {', '.join(lacking)}.")
    return Document(title="fairtrial check", notes=[*notes, *warnings], tables=[table])
