"""How good a review is, measured by the labels that it never saw. Pure, and total: every review has a score.

A review that is not there, or is none, found nothing and advised nothing; that is what it is scored as.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.judging.review import BLOCKERS, Label, Review, ReviewVerdict, Severity
from fairtrial.judging.review_match import match_findings

__all__ = ["WEIGHTS", "ReviewScore", "expected_verdict", "score_review"]

WEIGHTS: Final[Mapping[Severity, int]] = {
    Severity.CRITICAL: 8,
    Severity.HIGH: 5,
    Severity.MEDIUM: 2,
    Severity.LOW: 1,
}
DECIMALS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewScore:
    """What one review is worth; ratios are rounded to six decimals.

    Attributes:
        true_positives: Findings that stand for a label.
        false_positives: Findings that stand for none.
        false_negatives: Labels that no finding stands for.
        weighted_precision: Matched weight over matched and false weight; None without findings.
        weighted_recall: Matched weight over the weight of all labels; None without labels.
        weighted_f1: The harmonic mean of both; 0.0 where nothing matched; None without labels.
        blocker_recall: Share of critical and high labels whose finding is critical or high too; None without any.
        verdict: What the review advised; None when there is none.
        expected_verdict: What the labels ask for.
        verdict_correct: Both are the same.
        clean_control: There is no label: nothing is wrong with the change.
        clean_pass: On a clean control: it approves, with no finding. None elsewhere.
        matches: Ids of finding and label of each pair.
    """

    true_positives: int
    false_positives: int
    false_negatives: int
    weighted_precision: float | None
    weighted_recall: float | None
    weighted_f1: float | None
    blocker_recall: float | None
    verdict: ReviewVerdict | None
    expected_verdict: ReviewVerdict
    verdict_correct: bool
    clean_control: bool
    clean_pass: bool | None
    matches: tuple[tuple[str, str], ...]

    @property
    def is_perfect(self) -> bool:
        """It names every defect and no other, and advises what follows from them."""
        return not self.false_positives and not self.false_negatives and self.verdict_correct


def expected_verdict(labels: Sequence[Label]) -> ReviewVerdict:
    """What follows from the labels."""
    if not labels:
        return ReviewVerdict.APPROVE
    blocked = any(label.severity in BLOCKERS for label in labels)
    return ReviewVerdict.REQUEST_CHANGES if blocked else ReviewVerdict.COMMENT


def score_review(review: Review | None, labels: Sequence[Label]) -> ReviewScore:
    """Score a review; None stands for one that is not there.

    A matched pair weighs what the milder of its two severities weighs: who calls a critical defect low has found little
    of it, and who calls a low one critical has found no more than there is.
    """
    findings = () if review is None else review.findings
    pairs = match_findings(findings, labels)
    matched = sum(min(WEIGHTS[pair.finding.severity], WEIGHTS[pair.label.severity]) for pair in pairs)
    stands = {pair.finding.id for pair in pairs}
    false = sum(WEIGHTS[each.severity] for each in findings if each.id not in stands)
    expected = sum(WEIGHTS[label.severity] for label in labels)
    precision, recall = _ratio(matched, matched + false), _ratio(matched, expected)
    blockers = sum(label.severity in BLOCKERS for label in labels)
    told = sum(pair.label.severity in BLOCKERS and pair.finding.severity in BLOCKERS for pair in pairs)
    verdict, wanted = None if review is None else review.verdict, expected_verdict(labels)
    return ReviewScore(
        true_positives=len(pairs),
        false_positives=len(findings) - len(pairs),
        false_negatives=len(labels) - len(pairs),
        weighted_precision=_rounded(precision),
        weighted_recall=_rounded(recall),
        # 2pr / (p + r) with p = m / (m + f) and r = m / e is 2m / (m + f + e): one division, and 0 where m is 0.
        weighted_f1=_rounded(_ratio(2 * matched, matched + false + expected)) if labels else None,
        blocker_recall=_rounded(_ratio(told, blockers)),
        verdict=verdict,
        expected_verdict=wanted,
        verdict_correct=verdict is wanted,
        clean_control=not labels,
        clean_pass=None if labels else verdict is wanted and not findings,
        matches=tuple((pair.finding.id, pair.label.id) for pair in pairs),
    )


def _ratio(part: int, whole: int) -> float | None:
    return None if whole == 0 else part / whole


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DECIMALS)
