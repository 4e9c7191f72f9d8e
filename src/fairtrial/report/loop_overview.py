"""What of a tool sweep fits a terminal: for each transport of each machine its own tables, so that no two are mixed."""

from collections.abc import Iterator, Sequence
from typing import Final

from fairtrial.evidence.loop_report import LoopSummary, Section, SubjectSummary
from fairtrial.report.document import Table
from fairtrial.report.loop_words import (
    MEASURES,
    NO_TIMING,
    OWN_CASES,
    WEIGHTED,
    first_acquire_ms,
    place,
    second_acquire_ms,
    spread_cell,
    warm_delta_ms,
    was_played,
    wires_of,
)
from fairtrial.report.publication import brief_matrix_tables
from fairtrial.report.text import figure, signed_figure

__all__ = ["overview_tables"]

OVERVIEW_FIELDS: Final = ("elapsed_ms", "tool_call_count", WEIGHTED)
MIB: Final = 1024 * 1024


def overview_tables(summary: LoopSummary) -> Iterator[Table]:
    """Give the tables of each transport: what was measured, what a task costs, the control, the differences."""
    played = [section for section in summary.sections if was_played(section)]
    for where, sections in wires_of(played, lambda section: section.setting):
        yield _subjects(where, sections)
        for section in sections:
            yield from _costs(section)
        yield from _control(where, sections)
        yield from _differences(where, sections)
        for section in sections:
            yield from brief_matrix_tables(section)


def _subjects(where: str, sections: Sequence[Section]) -> Table:
    return Table(
        title=f"Subjects {where}",
        headers=(
            "scenario", "subject", "passed / runs", "wall ms", "warm delta ms", "calls", "weighted tokens",
            "truth check",
        ),
        rows=[
            (
                section.setting.scenario,
                subject.subject,
                f"{subject.n_passed} / {subject.n_runs}",
                figure(subject.medians["elapsed_ms"], 1),
                signed_figure(warm_delta_ms(subject)),
                figure(subject.medians["tool_call_count"]),
                figure(subject.medians[WEIGHTED]),
                subject.truth,
            )
            for section in sections
            for subject in section.subjects
        ],
        note=OWN_CASES if any(section.publications for section in sections) else "",
    )  # fmt: skip


def _costs(section: Section) -> Iterator[Table]:
    """What a whole task of those subjects cost that got through one; under faults tools do not play the same cases."""
    passed = [] if section.publications else [subject for subject in section.subjects if subject.n_passed]
    if passed:
        yield Table(
            title=f"What {place(section.setting)} costs",
            headers=(
                "subject", "output bytes", "tokens", "network bytes", "first acquire ms", "second acquire ms", "CPU s",
                "peak MiB",
            ),
            rows=[_cost_cells(subject) for subject in passed],
        )  # fmt: skip


def _cost_cells(subject: SubjectSummary) -> Sequence[str]:
    return (
        subject.subject,
        figure(subject.medians["raw_output_bytes"]),
        figure(subject.medians["estimated_tokens"]),
        figure(subject.medians["network_bytes"]),
        figure(first_acquire_ms(subject), 1),
        figure(second_acquire_ms(subject), 1),
        figure(_sum(subject.medians["cpu_user_s"], subject.medians["cpu_system_s"]), 3),
        _peak(subject),
    )


def _peak(subject: SubjectSummary) -> str:
    if subject.peak_memory_bytes is None and subject.peak_memory_below_bytes is not None:
        return f"< {figure(subject.peak_memory_below_bytes / MIB, 1)}"
    return figure(None if subject.peak_memory_bytes is None else subject.peak_memory_bytes / MIB, 1)


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _control(where: str, sections: Sequence[Section]) -> Iterator[Table]:
    rows = [
        (
            section.setting.scenario,
            f"{spread.control}, {spread.null}",
            MEASURES[spread.field],
            str(spread.n_blocks),
            spread_cell(spread),
        )
        for section in sections
        for spread in section.control
        if spread.control and spread.field in OVERVIEW_FIELDS
    ]
    if rows:
        yield Table(
            title=f"Control {where}: how far one tool lies from itself",
            headers=("scenario", "control", "measure", "blocks", "spread (largest, median)"),
            rows=rows,
        )


def _differences(where: str, sections: Sequence[Section]) -> Iterator[Table]:
    rows = [
        (
            section.setting.scenario,
            difference.subject,
            MEASURES[difference.field],
            signed_figure(difference.median_difference),
            spread_cell(difference.control),
            difference.claim or NO_TIMING,
        )
        for section in sections
        for difference in section.differences
        if difference.field in OVERVIEW_FIELDS
    ]
    if rows:
        references = ", ".join(sorted({str(section.reference) for section in sections if section.differences}))
        yield Table(
            title=f"Differences from the reference ({references}) {where}",
            headers=(
                "scenario", "subject", "measure", "median difference", "control spread (largest, median)",
                "timing claim",
            ),
            rows=rows,
        )  # fmt: skip
