from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.judging.review import BLOCKERS, Finding, Label, Review, ReviewVerdict, Severity
from fairtrial.judging.review_match import match_findings
from fairtrial.judging.review_score import WEIGHTS, expected_verdict, score_review


def finding(
    name: str,
    line: int,
    end_line: int | None = None,
    *,
    severity: Severity = Severity.HIGH,
    path: str = "a.py",
    category: str = "bug",
) -> Finding:
    return Finding(
        id=name,
        severity=severity,
        path=path,
        line=line,
        end_line=line if end_line is None else end_line,
        category=category,
        scenario="s",
        evidence="e",
        recommendation="r",
        blocking=severity in BLOCKERS,
    )


def label(
    name: str,
    start: int,
    end: int | None = None,
    *,
    severity: Severity = Severity.HIGH,
    path: str = "a.py",
    category: str = "bug",
) -> Label:
    return Label(
        id=name,
        severity=severity,
        path=path,
        line_start=start,
        line_end=start if end is None else end,
        category=category,
    )


def names(findings: Sequence[Finding], labels: Sequence[Label]) -> list[tuple[str, str]]:
    return [(pair.finding.id, pair.label.id) for pair in match_findings(findings, labels)]


def review(*findings: Finding, verdict: ReviewVerdict = ReviewVerdict.REQUEST_CHANGES) -> Review:
    return Review(verdict=verdict, findings=findings)


def test_a_finding_stands_for_a_label_of_its_file_whose_lines_it_overlaps() -> None:
    assert names([finding("f", 5, 9)], [label("l", 9, 12)]) == [("f", "l")]
    assert names([finding("f", 5, 8)], [label("l", 9, 12)]) == []
    assert names([finding("f", 13)], [label("l", 9, 12)]) == []
    assert names([finding("f", 10, path="b.py")], [label("l", 9, 12)]) == []


def test_as_many_as_can_be_are_matched_even_where_the_nearest_label_is_then_not_taken() -> None:
    wide, narrow = finding("wide", 1, 20), finding("narrow", 1, 2)

    assert names([wide, narrow], [label("first", 1, 2), label("second", 15, 16)]) == [
        ("narrow", "first"),
        ("wide", "second"),
    ]


def test_an_equal_category_goes_before_severity_and_severity_before_nearness() -> None:
    labels = [label("l", 10, 12, severity=Severity.LOW, category="race")]
    near = finding("near", 10, 12, severity=Severity.HIGH, category="bug")
    mild = finding("mild", 1, 12, severity=Severity.LOW, category="bug")
    kind = finding("kind", 1, 99, severity=Severity.CRITICAL, category="race")

    assert names([near, mild, kind], labels) == [("kind", "l")]
    assert names([near, mild], labels) == [("mild", "l")]
    assert names([near, replace(mild, severity=Severity.HIGH)], labels) == [("near", "l")]


def test_between_labels_that_lie_equally_near_the_narrower_is_taken() -> None:
    assert names([finding("f", 10, 12)], [label("wide", 9, 13), label("narrow", 11, 11)]) == [("f", "narrow")]


def test_what_is_equal_in_all_is_decided_by_content_and_not_by_order() -> None:
    findings = [finding("b", 1), finding("a", 1)]
    labels = [label("l", 1)]

    assert names(findings, labels) == names(findings[::-1], labels) == [("a", "l")]


def test_a_defect_review_worked_by_hand() -> None:
    """Labels 8 + 2; a critical one found as high (5), a medium one missed, a low false positive (1)."""
    labels = [label("l1", 3, severity=Severity.CRITICAL), label("l2", 30, severity=Severity.MEDIUM)]
    score = score_review(review(finding("f1", 3), finding("f2", 80, severity=Severity.LOW)), labels)

    assert (score.true_positives, score.false_positives, score.false_negatives) == (1, 1, 1)
    assert score.weighted_precision == pytest.approx(5 / 6, abs=5e-7)
    assert score.weighted_recall == pytest.approx(5 / 10)
    assert score.weighted_f1 == 0.625  # 2 x 5/6 x 1/2 / (5/6 + 1/2)
    assert score.blocker_recall == 1.0
    assert score.expected_verdict is ReviewVerdict.REQUEST_CHANGES
    assert score.verdict_correct
    assert not score.is_perfect
    assert score.matches == (("f1", "l1"),)


def test_a_severity_that_is_too_high_adds_nothing_and_one_that_is_too_low_loses_the_blocker() -> None:
    low = score_review(review(finding("f", 3, severity=Severity.CRITICAL)), [label("l", 3, severity=Severity.LOW)])
    assert (low.weighted_precision, low.weighted_recall, low.weighted_f1) == (1.0, 1.0, 1.0)
    assert low.blocker_recall is None
    assert low.expected_verdict is ReviewVerdict.COMMENT

    mild = score_review(review(finding("f", 3, severity=Severity.MEDIUM)), [label("l", 3, severity=Severity.CRITICAL)])
    assert mild.weighted_recall == 0.25
    assert mild.blocker_recall == 0.0


def test_the_right_review_is_perfect() -> None:
    labels = [label("l1", 3), label("l2", 9, severity=Severity.LOW)]
    score = score_review(review(finding("f1", 3), finding("f2", 9, severity=Severity.LOW)), labels)

    assert score.is_perfect
    assert (score.weighted_f1, score.blocker_recall, score.clean_pass) == (1.0, 1.0, None)


def test_an_approval_of_a_defect_scores_nothing() -> None:
    score = score_review(review(verdict=ReviewVerdict.APPROVE), [label("l", 3)])

    assert (score.weighted_precision, score.weighted_recall, score.weighted_f1) == (None, 0.0, 0.0)
    assert (score.blocker_recall, score.verdict_correct, score.is_perfect) == (0.0, False, False)


def test_a_clean_control_is_passed_by_an_approval_alone() -> None:
    approved = score_review(review(verdict=ReviewVerdict.APPROVE), [])
    assert (approved.clean_pass, approved.is_perfect, approved.weighted_f1) == (True, True, None)

    silent = score_review(review(verdict=ReviewVerdict.COMMENT), [])
    assert (silent.clean_pass, silent.verdict_correct) == (False, False)

    alarmed = score_review(review(finding("f", 1)), [])
    assert (alarmed.clean_pass, alarmed.false_positives, alarmed.weighted_precision) == (False, 1, 0.0)


def test_a_review_that_is_not_there_found_nothing_and_advised_nothing() -> None:
    score = score_review(None, [label("l", 3)])
    assert (score.weighted_f1, score.blocker_recall, score.verdict, score.verdict_correct) == (0.0, 0.0, None, False)
    assert score_review(None, []).clean_pass is False


def test_a_hundred_findings_for_a_hundred_labels_are_matched() -> None:
    findings = [finding(f"f{n}", 1, 1_000_000) for n in range(100)]
    labels = [label(f"l{n}", 1 + n, 500_000 + n) for n in range(100)]

    assert len(match_findings(findings, labels)) == 100


places = st.tuples(st.integers(1, 8), st.integers(0, 4))
kinds = st.tuples(st.sampled_from(Severity), st.sampled_from(["a.py", "b.py"]), st.sampled_from(["bug", "race"]))


@st.composite
def many_findings(draw: st.DrawFn, *, most: int = 5) -> list[Finding]:
    drawn = draw(st.lists(st.tuples(places, kinds), max_size=most))
    return [
        finding(f"f{n}", line, line + more, severity=severity, path=path, category=category)
        for n, ((line, more), (severity, path, category)) in enumerate(drawn)
    ]


@st.composite
def many_labels(draw: st.DrawFn, *, most: int = 5) -> list[Label]:
    return [
        label(f"l{n}", each.line, each.end_line, severity=each.severity, path=each.path, category=each.category)
        for n, each in enumerate(draw(many_findings(most=most)))
    ]


def overlap(said: Finding, known: Label) -> bool:
    return said.path == known.path and said.line <= known.line_end and known.line_start <= said.end_line


def rank(pairs: Sequence[tuple[Finding, Label]]) -> tuple[int, int, int, int, int]:
    order = list(Severity)
    return (
        -len(pairs),
        sum(f.category != known.category for f, known in pairs),
        sum(abs(order.index(f.severity) - order.index(known.severity)) for f, known in pairs),
        sum(abs(f.line - known.line_start) + abs(f.end_line - known.line_end) for f, known in pairs),
        sum(known.line_end - known.line_start for _, known in pairs),
    )


def best_by_trying_all(findings: Sequence[Finding], labels: Sequence[Label]) -> tuple[int, int, int, int, int]:
    places: list[Label | None] = [*labels, *([None] * len(findings))]
    return min(
        rank([(f, known) for f, known in zip(findings, chosen, strict=True) if known is not None])
        for chosen in permutations(places, len(findings))
        if all(known is None or overlap(f, known) for f, known in zip(findings, chosen, strict=True))
    )


@settings(max_examples=60, deadline=None)
@given(many_findings(most=4), many_labels(most=4))
def test_no_other_matching_is_larger_or_as_large_and_better(findings: list[Finding], labels: list[Label]) -> None:
    pairs = match_findings(findings, labels)

    assert all(overlap(*pair) for pair in pairs)
    assert len({pair.finding.id for pair in pairs}) == len({pair.label.id for pair in pairs}) == len(pairs)
    assert rank(pairs) == best_by_trying_all(findings, labels)


@settings(deadline=None)
@given(many_findings(), many_labels(), st.data())
def test_the_order_of_findings_and_labels_changes_nothing(
    findings: list[Finding], labels: list[Label], data: st.DataObject
) -> None:
    said, known = data.draw(st.permutations(findings)), data.draw(st.permutations(labels))

    assert score_review(review(*findings), labels) == score_review(review(*said), known)


@settings(deadline=None)
@given(
    st.none() | st.builds(Review, verdict=st.sampled_from(ReviewVerdict), findings=many_findings().map(tuple)),
    many_labels(),
)
def test_every_review_has_a_score_within_its_bounds(said: Review | None, labels: list[Label]) -> None:
    score = score_review(said, labels)
    n_findings = 0 if said is None else len(said.findings)

    assert score.true_positives + score.false_positives == n_findings
    assert score.true_positives + score.false_negatives == len(labels)
    assert (score.weighted_precision is None) == (n_findings == 0)
    assert (score.weighted_recall is None) == (score.weighted_f1 is None) == (not labels) == score.clean_control
    assert (score.clean_pass is None) == bool(labels)
    assert (score.blocker_recall is None) == (expected_verdict(labels) is not ReviewVerdict.REQUEST_CHANGES)
    for ratio in (score.weighted_precision, score.weighted_recall, score.weighted_f1, score.blocker_recall):
        assert ratio is None or 0.0 <= ratio <= 1.0
    if score.weighted_precision and score.weighted_recall:
        harmonic = 2 / (1 / score.weighted_precision + 1 / score.weighted_recall)
        assert score.weighted_f1 == pytest.approx(harmonic, abs=1e-4)


@settings(deadline=None)
@given(many_labels().filter(bool))
def test_a_review_that_says_what_the_labels_say_is_perfect_and_one_false_finding_costs(labels: list[Label]) -> None:
    told = [
        finding(each.id, each.line_start, each.line_end, severity=each.severity, path=each.path, category=each.category)
        for each in labels
    ]
    right = Review(verdict=expected_verdict(labels), findings=tuple(told))
    more = replace(right, findings=(*told, finding("false", 100, severity=Severity.LOW)))

    assert score_review(right, labels).is_perfect
    assert score_review(right, labels).weighted_f1 == 1.0
    worse = score_review(more, labels)
    expected = sum(WEIGHTS[each.severity] for each in labels)
    assert worse.weighted_f1 == pytest.approx(2 * expected / (2 * expected + 1), abs=1e-6)
    assert not worse.is_perfect
