"""Scores of reviews: read from rows, and put together for an arm on a task.

Medians, but the lowest blocker recall of all runs, and a verdict or a clean pass only where every run has it: what a
reviewer misses once in three times is missed. A run that did not end well, or left no review that can be believed, has
no right verdict whatever it wrote.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from fairtrial.evidence.rows import Row, flag, measured
from fairtrial.stats.summary import median

__all__ = ["CountedReview", "ReviewAggregate", "aggregate_reviews", "counted_review"]


@dataclass(frozen=True, slots=True)
class CountedReview:
    """The figures kept of one review.

    Attributes:
        clean_control: There was nothing to find.
        weighted_f1: None on a clean control.
        weighted_precision: None without findings.
        weighted_recall: None on a clean control.
        blocker_recall: None where nothing blocking was to be found.
        false_positives: Findings that are none.
        false_negatives: Defects that were not found.
        right_verdict: The run ended well and advised what follows from the labels.
        clean_pass: Likewise, it approved a clean control; None elsewhere.
    """

    clean_control: bool
    weighted_f1: float | None
    weighted_precision: float | None
    weighted_recall: float | None
    blocker_recall: float | None
    false_positives: float | None
    false_negatives: float | None
    right_verdict: bool
    clean_pass: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewAggregate:
    """What is known of an arm's reviews on one task, over its valid runs.

    Attributes:
        clean_control: There was nothing to find.
        scored_runs: Runs that have a score.
        weighted_f1: Median; None on a clean control.
        weighted_precision: Median; None where a run has no finding.
        weighted_recall: Median; None on a clean control.
        blocker_recall: The lowest; None where nothing blocking was to be found.
        false_positives: Median.
        false_negatives: Median.
        right_verdicts: Runs that ended well and advised what follows from the labels.
        clean_passes: Runs of a clean control that passed it; None elsewhere.
    """

    clean_control: bool
    scored_runs: int
    weighted_f1: float | None
    weighted_precision: float | None
    weighted_recall: float | None
    blocker_recall: float | None
    false_positives: float | None
    false_negatives: float | None
    right_verdicts: int
    clean_passes: int | None


def counted_review(row: Row) -> CountedReview | None:
    """Take the score of a row's review; None where it has none."""
    found = row.get("review")
    if not isinstance(found, dict):
        return None
    score = cast("Mapping[str, object]", found)
    clean = flag(score.get("clean_control"))
    if clean is None:
        return None
    ended_well = flag(row.get("ok")) is True and flag(row.get("review_evidence_valid")) is True
    return CountedReview(
        clean_control=clean,
        weighted_f1=measured(score.get("weighted_f1")),
        weighted_precision=measured(score.get("weighted_precision")),
        weighted_recall=measured(score.get("weighted_recall")),
        blocker_recall=measured(score.get("blocker_recall")),
        false_positives=measured(score.get("false_positives")),
        false_negatives=measured(score.get("false_negatives")),
        right_verdict=ended_well and flag(score.get("verdict_correct")) is True,
        clean_pass=ended_well and flag(score.get("clean_pass")) is True if clean else None,
    )


def aggregate_reviews(runs: Iterable[CountedReview | None]) -> ReviewAggregate | None:
    """Put the reviews of valid runs together; None stands for a run without a score, and for no review at all."""
    scored = [run for run in runs if run is not None]
    if not scored:
        return None
    clean = all(run.clean_control for run in scored)
    recalls = [run.blocker_recall for run in scored]
    known = [recall for recall in recalls if recall is not None]
    return ReviewAggregate(
        clean_control=clean,
        scored_runs=len(scored),
        weighted_f1=median(run.weighted_f1 for run in scored),
        weighted_precision=median(run.weighted_precision for run in scored),
        weighted_recall=median(run.weighted_recall for run in scored),
        blocker_recall=min(known) if len(known) == len(recalls) else None,
        false_positives=median(run.false_positives for run in scored),
        false_negatives=median(run.false_negatives for run in scored),
        right_verdicts=sum(run.right_verdict for run in scored),
        clean_passes=sum(run.clean_pass is True for run in scored) if clean else None,
    )
