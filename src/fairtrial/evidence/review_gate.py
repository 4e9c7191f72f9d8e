"""The gate's own rules for arms that review: a candidate is judged by what it finds, and not by what it costs.

It must be right in every run, and lose nothing anywhere; then it is promoted if it finds more in at least one task with
defects. Whether there is enough evidence is asked in `gate` as for every arm.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.evidence.reviews import ReviewAggregate

__all__ = [
    "MIN_F1_GAIN",
    "TOLERANCE",
    "ReviewGateTask",
    "best_gain",
    "compare_reviews",
    "missing_in_reviews",
    "objections_to_review",
]

MIN_F1_GAIN: Final = 0.01
"""Gain in weighted F1 of a task with defects from which a candidate is promoted."""
TOLERANCE: Final = 1e-9
"""Figures are rounded to six decimals: what differs by less is equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewGateTask:
    """The reviews of both arms on one task; a side that was not scored is None.

    Attributes:
        incumbent: The incumbent's.
        candidate: The candidate's.
    """

    incumbent: ReviewAggregate | None
    candidate: ReviewAggregate | None

    @property
    def f1_gain(self) -> float | None:
        """By how much the candidate's weighted F1 lies above the incumbent's; None on a clean control."""
        if self.incumbent is None or self.candidate is None:
            return None
        before, after = self.incumbent.weighted_f1, self.candidate.weighted_f1
        return None if before is None or after is None else after - before


def compare_reviews(incumbent: ReviewAggregate | None, candidate: ReviewAggregate | None) -> ReviewGateTask | None:
    """Lay both side by side; None where neither arm reviewed."""
    if incumbent is None and candidate is None:
        return None
    return ReviewGateTask(incumbent=incumbent, candidate=candidate)


def missing_in_reviews(task: ReviewGateTask, *, incumbent_runs: int, candidate_runs: int) -> Iterator[str]:
    """Name what was not measured in one task.

    Args:
        task: The task.
        incumbent_runs: Valid runs of the incumbent.
        candidate_runs: Valid runs of the candidate.
    """
    before, after = task.incumbent, task.candidate
    if before is None or after is None or (before.scored_runs, after.scored_runs) != (incumbent_runs, candidate_runs):
        yield "not every valid run of both arms has a review that was scored."
        return
    if before.clean_control != after.clean_control:
        yield "it is a clean control for one arm only."
        return
    if (before.blocker_recall is None) != (after.blocker_recall is None):
        yield "blocker recall was measured for one arm only."
    if before.clean_control and (before.false_positives is None or after.false_positives is None):
        yield "false positives were not counted in every run."
    if not before.clean_control and task.f1_gain is None:
        yield "weighted F1 was not measured in every run."


def objections_to_review(task: ReviewGateTask, *, candidate_runs: int) -> Iterator[str]:
    """Name what forbids the change in one task.

    Args:
        task: The task.
        candidate_runs: Runs in which the candidate must be right.
    """
    before, after = task.incumbent, task.candidate
    if before is None or after is None:
        return
    if after.right_verdicts < candidate_runs:
        yield f"the candidate's verdict was right in {after.right_verdicts} of {candidate_runs} runs, not in every one."
    if _dropped(before.blocker_recall, after.blocker_recall):
        yield f"blocker recall dropped from {before.blocker_recall} to {after.blocker_recall}."
    if before.clean_control:
        if _dropped(after.false_positives, before.false_positives):
            yield f"false positives on a clean control rose from {before.false_positives} to {after.false_positives}."
        if _passes_all(before) and not _passes_all(after):
            yield "the incumbent passes this clean control in every run, the candidate does not."
    elif _dropped(before.weighted_f1, after.weighted_f1):
        yield f"weighted F1 dropped from {before.weighted_f1} to {after.weighted_f1}."


def best_gain(tasks: Sequence[ReviewGateTask]) -> float | None:
    """The largest gain in weighted F1 over tasks with defects; None without such a task."""
    return max((gain for task in tasks if (gain := task.f1_gain) is not None), default=None)


def _dropped(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before - TOLERANCE


def _passes_all(side: ReviewAggregate) -> bool:
    return side.clean_passes == side.scored_runs
