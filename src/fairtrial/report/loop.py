"""The report of a tool sweep. Nothing is computed here: the summary holds every figure."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console

from fairtrial.evidence.loop_compare import BLOCKS_FOR_A_SPREAD, RUNS_FOR_A_TIMING_CLAIM, ControlSpread, Difference
from fairtrial.evidence.loop_report import Coverage, LoopSummary, Section, SubjectSummary, Truth
from fairtrial.evidence.loop_runs import LoopRun, Setting
from fairtrial.report.document import Document, Table, print_document, render_markdown
from fairtrial.report.publication import brief_matrix_tables, matrix_json, matrix_tables
from fairtrial.report.text import UNMEASURED, figure, shorten, signed_figure, yes_no

__all__ = ["loop_report_json", "render_loop_markdown", "render_loop_terminal"]

SCHEMA: Final = "loop-report/1"
REASON_CHARACTERS: Final = 70
NO_TIMING: Final = "no timing"
COLD_WARM_SCENARIO: Final = "agent_task_baseline_v1"
WEIGHTED: Final = "estimated_cost_weighted_tokens_with_envelope"
OVERVIEW_FIELDS: Final = ("elapsed_ms", "tool_call_count", WEIGHTED)
MEASURES: Final = {
    "elapsed_ms": "wall ms",
    "acquire_ms_task": "acquire ms, task",
    "acquire_ms_followup": "acquire ms, followup",
    "followup_warm_delta_ms": "warm delta ms",
    "acquire_ms_cold": "acquire ms, cold",
    "acquire_ms_warm": "acquire ms, warm",
    "warm_acquire_delta_ms": "warm delta ms",
    "tool_call_count": "calls",
    "estimated_tokens": "tokens",
    WEIGHTED: "weighted tokens",
}
NOT_EQUIVALENT: Final = (
    "This is whole-task evidence. Steps are not equal between subjects: one tool's snapshot is two calls where"
    " another's is none, and one describes in a call of its own what another says in its commit. Only whole tasks are"
    " compared."
)
LIKE_WITH_LIKE: Final = (
    "Times are compared only within one scenario, one transport and one machine, and only over runs that passed."
    " Beside each difference stands how far the control, one tool measured as two subjects, lies from itself"
    f" (from {BLOCKS_FOR_A_SPREAD} blocks on); a timing claim needs {RUNS_FOR_A_TIMING_CLAIM} runs."
    f" What was not measured is {UNMEASURED}, never zero."
)
ESTIMATES: Final = (
    "Tokens are estimates from characters, not counts by a tokenizer:"
    " they serve to compare tools, not to predict a bill."
)

COLUMNS: Final = (
    "Calls: call equivalents of the script. Tokens: estimated. Weighted tokens: estimated, by cost weight, with the"
    " envelope of each call. Warm delta: the second acquire less the first."
)


def render_loop_markdown(summary: LoopSummary) -> str:
    """Give the report as Markdown, with every run."""
    tables = [table for section in summary.sections for table in _section_tables(section)]
    return render_markdown(_document(summary, tables))


def render_loop_terminal(summary: LoopSummary, console: Console) -> None:
    """Print what fits a terminal: all settings in one table, the main differences, the first runs."""
    matrices = [table for section in summary.sections for table in brief_matrix_tables(section)]
    tables = [_overview_table(summary), *_overview_control(summary), *_overview_differences(summary), *matrices]
    print_document(_document(summary, tables), console)


def loop_report_json(summary: LoopSummary, *, sealed: bool) -> dict[str, object]:
    """Give the report as one JSON object of schema `loop-report/1`.

    Args:
        summary: What the rows show.
        sealed: The rows come from a directory whose seal holds.
    """
    return {
        "schema": SCHEMA,
        "sealed": sealed,
        "rows": summary.n_rows,
        "token_rules": list(summary.token_rules),
        "sections": [_section_json(section) for section in summary.sections],
        "runs": [_run_json(run) for run in summary.runs],
        "skipped": [
            _place_json(note.setting, note.subject)
            | {"operation": note.operation, "reason": note.reason, "runs": note.n_runs}
            for note in summary.skips
        ],
        "void": [
            _place_json(note.setting, note.subject)
            | {"run": note.run, "error_kind": note.error_kind, "detail": note.detail}
            for note in summary.voids
        ],
        "failed": [
            _place_json(note.setting, note.subject) | {"run": note.run, "detail": note.detail}
            for note in summary.failures
        ],
    }


def _document(summary: LoopSummary, tables: Sequence[Table]) -> Document:
    """Put the tables that compare subjects before those that list runs."""
    rules = f" Rules: {', '.join(summary.token_rules)}." if summary.token_rules else ""
    return Document(
        title="fairtrial loop report",
        notes=(NOT_EQUIVALENT, LIKE_WITH_LIKE, ESTIMATES + rules),
        tables=[*tables, *_run_tables(summary.runs), *_note_tables(summary)],
    )


def _overview_table(summary: LoopSummary) -> Table:
    return Table(
        title="Subjects",
        headers=(
            "scenario", "transport", "subject", "passed / runs", "wall ms", "warm delta ms", "calls",
            "weighted tokens", "truth check",
        ),
        rows=[
            (
                section.setting.scenario,
                section.setting.remote_transport or UNMEASURED,
                subject.subject,
                f"{subject.n_passed} / {subject.n_runs}",
                figure(subject.medians["elapsed_ms"], 1),
                signed_figure(_warm_delta_ms(subject)),
                figure(subject.medians["tool_call_count"]),
                figure(subject.medians[WEIGHTED]),
                subject.truth,
            )
            for section in summary.sections
            for subject in section.subjects
        ],
    )  # fmt: skip


def _overview_control(summary: LoopSummary) -> Iterator[Table]:
    rows = [
        (
            section.setting.scenario,
            section.setting.remote_transport or UNMEASURED,
            f"{spread.control}, {spread.null}",
            MEASURES[spread.field],
            str(spread.n_blocks),
            _spread(spread),
        )
        for section in summary.sections
        for spread in section.control
        if spread.control and spread.field in OVERVIEW_FIELDS
    ]
    if rows:
        yield Table(
            title="Control: how far one tool lies from itself",
            headers=("scenario", "transport", "control", "measure", "blocks", "spread (largest, median)"),
            rows=rows,
        )


def _overview_differences(summary: LoopSummary) -> Iterator[Table]:
    rows = [
        (
            section.setting.scenario,
            section.setting.remote_transport or UNMEASURED,
            difference.subject,
            MEASURES[difference.field],
            signed_figure(difference.median_difference),
            _spread(difference.control),
            difference.claim or NO_TIMING,
        )
        for section in summary.sections
        for difference in section.differences
        if difference.field in OVERVIEW_FIELDS
    ]
    if rows:
        yield Table(
            title=f"Differences from the reference ({', '.join(sorted({str(s.reference) for s in summary.sections}))})",
            headers=(
                "scenario", "transport", "subject", "measure", "median difference",
                "control spread (largest, median)", "timing claim",
            ),
            rows=rows,
        )  # fmt: skip


def _section_tables(section: Section) -> Iterator[Table]:
    where = _place(section.setting)
    yield Table(
        title=f"Subjects: {where}",
        headers=(
            "subject", "passed / runs", "voids as failures", "wall ms", "first acquire ms", "second acquire ms",
            "warm delta ms", "calls", "tokens", "weighted tokens", "truth check", "coverage",
            "CPU s (user + system)", "peak memory bytes", "network bytes",
        ),
        rows=[_subject_cells(subject) for subject in section.subjects],
        note="; ".join(
            f"network bytes of {subject.subject}: {shorten(subject.network_bytes_reason, REASON_CHARACTERS)}"
            for subject in section.subjects
            if subject.network_bytes_reason
        ),
    )  # fmt: skip
    yield from matrix_tables(section)
    control = [spread for spread in section.control if spread.control]
    if control:
        yield Table(
            title=f"Control, {control[0].control} against {control[0].null}: {where}",
            headers=("measure", "blocks", "largest difference", "median difference"),
            rows=[
                (MEASURES[c.field], str(c.n_blocks), c.reason or figure(c.largest, 1), c.reason or figure(c.median, 1))
                for c in control
            ],
        )
    if section.differences:
        yield Table(
            title=f"Differences from {section.reference}: {where}",
            headers=(
                "subject", "measure", "blocks", "median difference", "control spread (largest, median)", "timing claim",
            ),
            rows=[_difference_cells(difference) for difference in section.differences],
        )  # fmt: skip


def _subject_cells(subject: SubjectSummary) -> Sequence[str]:
    medians = subject.medians
    return (
        f"{subject.subject} [control]" if subject.null_control else subject.subject,
        f"{subject.n_passed} / {subject.n_runs}",
        f"{subject.n_passed} / {subject.runs_as_failures}",
        figure(medians["elapsed_ms"], 1),
        figure(_either(medians["acquire_ms_task"], medians["acquire_ms_cold"]), 1),
        figure(_either(medians["acquire_ms_followup"], medians["acquire_ms_warm"]), 1),
        signed_figure(_warm_delta_ms(subject)),
        figure(medians["tool_call_count"]),
        figure(medians["estimated_tokens"]),
        figure(medians[WEIGHTED]),
        subject.truth,
        subject.coverage,
        f"{figure(medians['cpu_user_s'], 3)} + {figure(medians['cpu_system_s'], 3)}",
        figure(subject.peak_memory_bytes),
        figure(medians["network_bytes"]),
    )


def _warm_delta_ms(subject: SubjectSummary) -> float | None:
    return _either(subject.medians["followup_warm_delta_ms"], subject.medians["warm_acquire_delta_ms"])


def _difference_cells(difference: Difference) -> Sequence[str]:
    return (
        difference.subject,
        MEASURES[difference.field],
        str(difference.n_blocks),
        signed_figure(difference.median_difference),
        _spread(difference.control),
        difference.claim or NO_TIMING,
    )


def _spread(control: ControlSpread) -> str:
    return control.reason or f"{figure(control.largest, 1)}, {figure(control.median, 1)}"


def _run_tables(runs: Sequence[LoopRun]) -> Iterator[Table]:
    """Give the tables with a line a run."""
    if runs:
        yield Table(
            title="Runs",
            headers=(
                "scenario", "transport", "subject", "run", "wall ms", "calls", "weighted tokens",
                "warm delta ms", "truth check",
            ),
            rows=(_run_cells(run) for run in runs),
            note=COLUMNS,
        )  # fmt: skip
    cold_warm = [run for run in runs if run.setting.scenario == COLD_WARM_SCENARIO]
    if cold_warm:
        yield Table(
            title="Cold clone and warm isolated task",
            headers=(
                "transport", "subject", "run", "cold ms", "warm ms", "cold acquire ms", "warm acquire ms",
                "truth check", "coverage",
            ),
            rows=(_cold_warm_cells(run) for run in cold_warm),
        )  # fmt: skip
    yield from _parallel_table(runs)
    if any(run.publication for run in runs):
        yield Table(
            title="Interrupted publication",
            headers=(
                "transport", "subject", "run", "outcome claim", "fixture delivery", "POSTs", "request bytes",
                "head preserved", "work preserved",
            ),
            rows=(cells for run in runs for cells in _publication_cells(run)),
        )  # fmt: skip


def _parallel_table(runs: Sequence[LoopRun]) -> Iterator[Table]:
    rows = [
        (
            run.setting.remote_transport or UNMEASURED,
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
            title="Tasks at once on one repository",
            headers=(
                "transport", "subject", "run", "tasks", "claimed published", "turned away", "lost updates",
                "work wall ms", "publish wall ms",
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
        signed_figure(_either(run.number("followup_warm_delta_ms"), run.number("warm_acquire_delta_ms"))),
        _truth(run),
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
        _truth(run),
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


def _note_tables(summary: LoopSummary) -> Iterator[Table]:
    """Give what failed, is void or was left out."""
    if summary.failures:
        yield Table(
            title="Failed runs",
            headers=("where", "subject", "run", "detail"),
            rows=(
                (_place(n.setting), n.subject, figure(n.run), shorten(n.detail, REASON_CHARACTERS))
                for n in summary.failures
            ),
        )
    if summary.voids:
        yield Table(
            title="Void runs",
            headers=("where", "subject", "run", "kind", "detail"),
            rows=(
                (_place(n.setting), n.subject, figure(n.run), n.error_kind, shorten(n.detail, REASON_CHARACTERS))
                for n in summary.voids
            ),
        )
    if summary.skips:
        yield Table(
            title="Skipped",
            headers=("where", "subject", "operation", "runs", "reason"),
            rows=(
                (_place(n.setting), n.subject, n.operation, str(n.n_runs), shorten(n.reason, REASON_CHARACTERS))
                for n in summary.skips
            ),
        )


def _place(setting: Setting) -> str:
    host = f" on {setting.host}" if setting.host else ""
    return f"{setting.scenario} over {setting.remote_transport or 'an unnamed transport'}{host}"


def _truth(run: LoopRun) -> str:
    return Truth.UNMEASURED if run.truth is None else Truth.PASS if run.truth else Truth.FAIL


def _either(first: float | None, second: float | None) -> float | None:
    """Give the figure under whichever name the scenario's phases have."""
    return second if first is None else first


def _place_json(setting: Setting, subject: str) -> dict[str, object]:
    return {
        "scenario": setting.scenario,
        "remote_transport": setting.remote_transport or None,
        "host": setting.host or None,
        "subject": subject,
    }


def _section_json(section: Section) -> dict[str, object]:
    place = _place_json(section.setting, "")
    del place["subject"]
    return {
        **place,
        "reference": section.reference,
        "subjects": [_subject_json(subject) for subject in section.subjects],
        "control": [
            {"field": spread.field, "subject": spread.control or None, "null_subject": spread.null or None}
            | _spread_json(spread)
            for spread in section.control
        ],
        "differences": [_difference_json(difference) for difference in section.differences],
        "publications": matrix_json(section),
    }


def _subject_json(subject: SubjectSummary) -> dict[str, object]:
    return {
        "subject": subject.subject,
        "null_control": subject.null_control,
        "runs": subject.n_runs,
        "passed": subject.n_passed,
        "as_failures": {"passed": subject.n_passed, "runs": subject.runs_as_failures},
        "skipped": subject.n_skipped,
        "void": subject.n_void,
        "voided_attempts": subject.voided_attempts,
        "medians": dict(subject.medians),
        "peak_memory_bytes": subject.peak_memory_bytes,
        "network_bytes_reason": subject.network_bytes_reason or None,
        "truth_check": subject.truth,
        "coverage": subject.coverage,
    }


def _difference_json(difference: Difference) -> dict[str, object]:
    return {
        "subject": difference.subject,
        "reference": difference.reference,
        "field": difference.field,
        "blocks": difference.n_blocks,
        "median_difference": difference.median_difference,
        "control": _spread_json(difference.control),
        "timing_claim": difference.claim or None,
    }


def _spread_json(control: ControlSpread) -> dict[str, object]:
    return {
        "blocks": control.n_blocks,
        "largest": control.largest,
        "median": control.median,
        "reason": control.reason or None,
    }


def _run_json(run: LoopRun) -> dict[str, object]:
    return _place_json(run.setting, run.subject) | {
        "run": run.run,
        "block": run.block,
        "attempt": run.attempt,
        "passed": run.passed,
        "elapsed_ms": run.number("elapsed_ms"),
        "tool_call_count": run.number("tool_call_count"),
        WEIGHTED: run.number(WEIGHTED),
        "warm_acquire_delta_ms": _either(run.number("followup_warm_delta_ms"), run.number("warm_acquire_delta_ms")),
        "truth_check": _truth(run),
        "coverage_complete": run.coverage_complete,
    }
