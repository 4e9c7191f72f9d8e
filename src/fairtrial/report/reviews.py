"""What reviews are worth, as tables."""

from collections.abc import Iterator, Sequence
from typing import Final

from fairtrial.evidence.bench import Aggregates
from fairtrial.evidence.reviews import ReviewAggregate
from fairtrial.report.document import Table
from fairtrial.report.text import figure, yes_no

__all__ = ["REVIEW_HEADERS", "review_cells", "review_tables"]

REVIEW_HEADERS: Final = (
    "clean control",
    "weighted F1",
    "precision",
    "recall",
    "blocker recall",
    "false positives",
    "false negatives",
    "right verdicts / scored",
    "clean passes",
)
NOTE: Final = (
    "Medians over valid runs, but the lowest blocker recall of all. F1 and recall are of tasks with defects, clean"
    " passes of tasks without; precision is of reviews with findings."
)


def review_tables(aggregates: Aggregates) -> Iterator[Table]:
    """A table of all arms that reviewed; nothing where none did."""
    rows = [
        (task, arm, *review_cells(aggregate.review))
        for task, arms in aggregates.items()
        for arm, aggregate in arms.items()
        if aggregate.review is not None
    ]
    if rows:
        yield Table(title="Reviews", headers=("task", "arm", *REVIEW_HEADERS), rows=rows, note=NOTE)


def review_cells(side: ReviewAggregate | None) -> Sequence[str]:
    """One arm's cells; empty where it was not scored, or where a figure has no meaning."""
    if side is None:
        return ("",) * len(REVIEW_HEADERS)
    return (
        yes_no(side.clean_control),
        _ratio(side.weighted_f1),
        _ratio(side.weighted_precision),
        _ratio(side.weighted_recall),
        _ratio(side.blocker_recall),
        figure(side.false_positives, 1),
        figure(side.false_negatives, 1),
        f"{side.right_verdicts} / {side.scored_runs}",
        "" if side.clean_passes is None else str(side.clean_passes),
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
