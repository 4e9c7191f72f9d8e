"""The tables of a tool sweep with a line a run, and those of what failed, is void, never began or was left out."""

from collections.abc import Iterator, Sequence
from typing import Final

from fairtrial.evidence.loop_report import Coverage, LoopSummary
from fairtrial.evidence.loop_runs import LoopRun
from fairtrial.report.document import Table
from fairtrial.report.loop_words import REASON_CHARACTERS, WEIGHTED, place, truth_word, warm_delta_of, wires_of
from fairtrial.report.text import UNMEASURED, figure, shorten, signed_figure, yes_no

__all__ = ["note_tables", "run_tables"]

COLD_WARM_SCENARIO: Final = "agent_task_baseline_v1"
COLUMNS: Final = (
    "Calls: call equivalents of the script. Tokens: estimated. Weighted tokens: estimated, by cost weight, with the"
    " envelope of each call. Warm delta: the second acquire less the first."
)


def run_tables(runs: Sequence[LoopRun]) -> Iterator[Table]:
    """Give the tables with a line a run; those with times once for each transport of each machine."""
    wires = list(wires_of(runs, lambda run: run.setting))
    for where, members in wires:
        yield Table(
            title=f"Runs {where}",
            headers=(
                "scenario", "transport", "subject", "run", "wall ms", "calls", "weighted tokens",
                "warm delta ms", "truth check",
            ),
            rows=(_run_cells(run) for run in members),
            note=COLUMNS,
        )  # fmt: skip
    for where, members in wires:
        cold_warm = [run for run in members if run.setting.scenario == COLD_WARM_SCENARIO]
        if cold_warm:
            yield Table(
                title=f"Cold clone and warm isolated task {where}",
                headers=(
                    "transport", "subject", "run", "cold ms", "warm ms", "cold acquire ms", "warm acquire ms",
                    "truth check", "coverage",
                ),
                rows=(_cold_warm_cells(run) for run in cold_warm),
            )  # fmt: skip
    for where, members in wires:
        yield from _parallel_table(where, members)
    if any(run.publication for run in runs):
        yield Table(
            title="Interrupted publication",
            headers=(
                "transport", "subject", "run", "outcome claim", "fixture delivery", "POSTs", "request bytes",
                "head preserved", "work preserved",
            ),
            rows=(cells for run in runs for cells in _publication_cells(run)),
        )  # fmt: skip


def _parallel_table(where: str, runs: Sequence[LoopRun]) -> Iterator[Table]:
    rows = [
        (
            run.subject,
            figure(run.run),
            figure(run.parallel.n_tasks),
            figure(run.parallel.n_published),
            figure(run.parallel.n_refused),
            figure(run.parallel.lost_updates),
            figure(run.parallel.work_wall_ms, 1),
            figure(run.parallel.publish_wall_ms, 1),
        )
        for run in runs
        if run.parallel is not None
    ]
    if rows:
        yield Table(
            title=f"Tasks at once on one repository {where}",
            headers=(
                "subject", "run", "tasks", "claimed published", "turned away", "lost updates", "work wall ms",
                "publish wall ms",
            ),
            rows=rows,
        )  # fmt: skip


def _run_cells(run: LoopRun) -> Sequence[str]:
    return (
        run.setting.scenario,
        run.setting.remote_transport or UNMEASURED,
        run.subject,
        f"{figure(run.run)} failed" if run.failed else figure(run.run),
        figure(run.number("elapsed_ms"), 1),
        figure(run.number("tool_call_count")),
        figure(run.number(WEIGHTED)),
        signed_figure(warm_delta_of(run)),
        truth_word(run),
    )


def _cold_warm_cells(run: LoopRun) -> Sequence[str]:
    coverage = {True: Coverage.COMPLETE, False: Coverage.PARTIAL, None: Coverage.UNMEASURED}
    return (
        run.setting.remote_transport or UNMEASURED,
        run.subject,
        figure(run.run),
        figure(run.number("cold_phase_ms"), 1),
        figure(run.number("warm_phase_ms"), 1),
        figure(run.number("acquire_ms_cold"), 1),
        figure(run.number("acquire_ms_warm"), 1),
        truth_word(run),
        coverage[run.coverage_complete],
    )


def _publication_cells(run: LoopRun) -> Iterator[Sequence[str]]:
    facts = run.publication
    if facts is not None:
        yield (
            run.setting.remote_transport or UNMEASURED,
            run.subject,
            figure(run.run),
            facts.publication_outcome or UNMEASURED,
            facts.fixture_delivery_state or UNMEASURED,
            figure(facts.mutation_requests_observed),
            figure(facts.network_request_bytes_observed),
            yes_no(facts.local_head_preserved),
            yes_no(facts.local_work_preserved),
        )


def note_tables(summary: LoopSummary) -> Iterator[Table]:
    """Give what failed, is void, never began or was left out."""
    if summary.failures:
        yield Table(
            title="Failed runs",
            headers=("where", "subject", "run", "detail"),
            rows=(
                (place(n.setting), n.subject, figure(n.run), shorten(n.detail, REASON_CHARACTERS))
                for n in summary.failures
            ),
        )
    if summary.voids:
        yield Table(
            title="Void runs",
            headers=("where", "subject", "run", "kind", "detail"),
            rows=(
                (place(n.setting), n.subject, figure(n.run), n.error_kind, shorten(n.detail, REASON_CHARACTERS))
                for n in summary.voids
            ),
        )
    not_begun = [
        (place(section.setting), subject.subject, str(subject.n_planned), str(subject.n_not_begun))
        for section in summary.sections
        for subject in section.subjects
        if subject.n_not_begun
    ]
    if not_begun:
        yield Table(title="Never begun", headers=("where", "subject", "planned", "never begun"), rows=not_begun)
    if summary.skips:
        yield Table(
            title="Skipped",
            headers=("where", "subject", "operation", "runs", "reason"),
            rows=(
                (place(n.setting), n.subject, n.operation, str(n.n_runs), shorten(n.reason, REASON_CHARACTERS))
                for n in summary.skips
            ),
        )
