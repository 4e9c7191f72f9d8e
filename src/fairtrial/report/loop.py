"""The report of a tool sweep. Nothing is computed here: the summary holds every figure."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console

from fairtrial.evidence.loop_compare import BLOCKS_FOR_A_SPREAD, RUNS_FOR_A_TIMING_CLAIM, Difference
from fairtrial.evidence.loop_report import LoopSummary, Section, SubjectSummary
from fairtrial.report.document import NOT_AUDITED, Document, Table, print_document, render_markdown
from fairtrial.report.loop_json import loop_report_json
from fairtrial.report.loop_overview import overview_tables
from fairtrial.report.loop_run_tables import note_tables, run_tables
from fairtrial.report.loop_words import (
    MEASURES,
    NO_TIMING,
    OWN_CASES,
    REASON_CHARACTERS,
    WEIGHTED,
    first_acquire_ms,
    peak_bytes,
    place,
    second_acquire_ms,
    spread_cell,
    warm_delta_ms,
    was_played,
)
from fairtrial.report.publication import matrix_tables
from fairtrial.report.text import UNMEASURED, figure, shorten, signed_figure

__all__ = ["loop_report_json", "render_loop_markdown", "render_loop_terminal"]

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


def render_loop_markdown(summary: LoopSummary) -> str:
    """Give the report as Markdown, with every run."""
    tables = [table for section in summary.sections if was_played(section) for table in _section_tables(section)]
    return render_markdown(_document(summary, tables))


def render_loop_terminal(summary: LoopSummary, console: Console) -> None:
    """Print what fits a terminal: each transport's tables, then the first runs."""
    print_document(_document(summary, list(overview_tables(summary))), console)


def _document(summary: LoopSummary, tables: Sequence[Table]) -> Document:
    """Put the tables that compare subjects before those that list runs."""
    rules = f" Rules: {', '.join(summary.token_rules)}." if summary.token_rules else ""
    notes = [NOT_EQUIVALENT, NOT_AUDITED, LIKE_WITH_LIKE, ESTIMATES + rules]
    if summary.n_uncounted:
        notes.append(
            f"INCOMPLETE: {summary.n_uncounted} of {summary.n_planned} planned trials have no counting attempt:"
            f" {len(summary.voids)} void, {summary.n_not_begun} never begun."
        )
    return Document(
        title="fairtrial loop report",
        notes=notes,
        tables=[*tables, *run_tables(summary.runs), *note_tables(summary)],
    )


def _section_tables(section: Section) -> Iterator[Table]:
    where = place(section.setting)
    yield Table(
        title=f"Subjects: {where}",
        headers=(
            "subject", "planned", "passed / runs", "voids as failures", "wall ms", "first acquire ms",
            "second acquire ms", "warm delta ms", "calls", "output bytes", "tokens", "weighted tokens", "truth check",
            "coverage", "CPU s (user + system)", "peak memory bytes", "network bytes",
        ),
        rows=[_subject_cells(subject) for subject in section.subjects],
        note=" ".join([*([OWN_CASES] if section.publications else []), _unmeasured_networks(section)]).strip(),
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


def _unmeasured_networks(section: Section) -> str:
    return "; ".join(
        f"network bytes of {subject.subject}: {shorten(subject.network_bytes_reason, REASON_CHARACTERS)}"
        for subject in section.subjects
        if subject.network_bytes_reason
    )


def _subject_cells(subject: SubjectSummary) -> Sequence[str]:
    medians = subject.medians
    return (
        f"{subject.subject} [control]" if subject.null_control else subject.subject,
        "" if subject.n_planned is None else str(subject.n_planned),
        f"{subject.n_passed} / {subject.n_runs}",
        f"{subject.n_passed} / {subject.runs_as_failures}",
        figure(medians["elapsed_ms"], 1),
        figure(first_acquire_ms(subject), 1),
        figure(second_acquire_ms(subject), 1),
        signed_figure(warm_delta_ms(subject)),
        figure(medians["tool_call_count"]),
        figure(medians["raw_output_bytes"]),
        figure(medians["estimated_tokens"]),
        figure(medians[WEIGHTED]),
        subject.truth,
        subject.coverage,
        f"{figure(medians['cpu_user_s'], 3)} + {figure(medians['cpu_system_s'], 3)}",
        peak_bytes(subject),
        figure(medians["network_bytes"]),
    )


def _difference_cells(difference: Difference) -> Sequence[str]:
    return (
        difference.subject,
        MEASURES[difference.field],
        str(difference.n_blocks),
        signed_figure(difference.median_difference),
        spread_cell(difference.control),
        difference.claim or NO_TIMING,
    )
