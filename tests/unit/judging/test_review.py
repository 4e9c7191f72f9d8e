import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.judging.review import (
    MAX_FINDINGS,
    MAX_REVIEW_BYTES,
    Label,
    ReviewError,
    ReviewProblem,
    ReviewVerdict,
    Severity,
    parse_labels,
    parse_review,
)

FINDING: dict[str, Any] = {
    "id": "f1",
    "severity": "high",
    "path": "tally/report.py",
    "line": 3,
    "end_line": 5,
    "category": "correctness",
    "scenario": "an empty file",
    "evidence": "the loop never ends",
    "recommendation": "stop it",
    "blocking": True,
}
REVIEW: dict[str, Any] = {"schema_version": 1, "verdict": "request_changes", "findings": [FINDING]}
LABEL: dict[str, Any] = {
    "id": "l1",
    "severity": "low",
    "path": "a.py",
    "line_start": 1,
    "line_end": 1,
    "category": "style",
}


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def with_finding(**changed: object) -> bytes:
    return encoded(REVIEW | {"findings": [FINDING | changed]})


def problem_of(content: bytes | None, parse: Callable[..., object] = parse_review) -> tuple[ReviewProblem, str]:
    with pytest.raises(ReviewError) as raised:
        parse(content)
    return raised.value.problem, str(raised.value)


def test_a_review_is_read_as_it_was_written() -> None:
    review = parse_review(encoded(REVIEW))

    assert review.verdict is ReviewVerdict.REQUEST_CHANGES
    (finding,) = review.findings
    assert (finding.severity, finding.line, finding.end_line, finding.blocking) == (Severity.HIGH, 3, 5, True)


def test_an_approval_has_no_findings_and_a_comment_may_have_any() -> None:
    assert parse_review(encoded({"schema_version": 1, "verdict": "approve", "findings": []})).findings == ()
    assert parse_review(encoded(REVIEW | {"verdict": "comment"})).findings
    assert parse_review(encoded(REVIEW | {"verdict": "comment", "findings": []})).findings == ()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, ReviewProblem.NEVER_WRITTEN),
        (b"", ReviewProblem.EMPTY),
        (b" \n", ReviewProblem.EMPTY),
        (b"{", ReviewProblem.NOT_JSON),
        (b"[]", ReviewProblem.NOT_JSON),
        (b"```json\n{}\n```", ReviewProblem.NOT_JSON),
        (b"\xff\xfe", ReviewProblem.NOT_JSON),
        (b'{"schema_version": 1, "schema_version": 1, "verdict": "approve", "findings": []}', ReviewProblem.NOT_JSON),
        (b'{"schema_version": NaN}', ReviewProblem.NOT_JSON),
        (b'{ "schema_version": ' + b"1" * 5000 + b"}", ReviewProblem.NOT_JSON),
        (b"[" * 100_000, ReviewProblem.NOT_JSON),
        (b"{}", ReviewProblem.INVALID),
        (b" " * (MAX_REVIEW_BYTES + 1), ReviewProblem.INVALID),
    ],
)
def test_what_was_never_written_is_told_from_what_is_empty_and_from_what_is_no_review(
    content: bytes | None, problem: ReviewProblem
) -> None:
    assert problem_of(content)[0] is problem


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (encoded(REVIEW | {"schema_version": 2}), "schema_version is not 1"),
        (encoded(REVIEW | {"schema_version": True}), "schema_version is of another type"),
        (encoded(REVIEW | {"verdict": "reject"}), "valid: approve, comment, request_changes"),
        (encoded(REVIEW | {"verdict": "approve"}), "it approves, yet has 1 findings"),
        (encoded(REVIEW | {"findings": []}), "no finding is blocking"),
        (encoded(REVIEW | {"findings": {}}), "findings is of another type"),
        (encoded(REVIEW | {"findings": [1]}), "findings[0] is no object"),
        (encoded(REVIEW | {"summary": "x"}), "unknown key 'summary'"),
        (encoded({"schema_version": 1, "verdict": "comment"}), "lacks findings"),
        (encoded(REVIEW | {"findings": [FINDING, FINDING]}), "the id 'f1' stands twice"),
        (
            encoded(REVIEW | {"findings": [FINDING | {"id": str(n)} for n in range(MAX_FINDINGS + 1)]}),
            "101 findings are more than 100",
        ),
        (with_finding(note="x"), "findings[0] has the unknown key 'note'"),
        (with_finding(severity="blocker"), "findings[0]: severity"),
        (with_finding(severity=None), "findings[0]: no severity"),
        (with_finding(blocking=1), "findings[0]: blocking is of another type"),
        (with_finding(blocking=False), "no finding is blocking"),
        (with_finding(line=0), "not 1 <= line <= end_line"),
        (with_finding(line=True), "line is of another type"),
        (with_finding(line=1.0), "line is of another type"),
        (with_finding(line=6), "not 1 <= line <= end_line"),
        (with_finding(end_line=10**4000), "not 1 <= line <= end_line"),
        (with_finding(id="x" * 129), "id is longer than 128 bytes"),
        (with_finding(id="é" * 65), "id is longer than 128 bytes"),
        (with_finding(category=" "), "category is blank"),
        (with_finding(evidence="x" * 4097), "evidence is longer than 4096 bytes"),
        (with_finding(path="x" * 513), "path is longer than 512 bytes"),
        (with_finding(path="/etc/passwd"), "no plain path"),
        (with_finding(path="a/../b"), "no plain path"),
        (with_finding(path="./a"), "no plain path"),
        (with_finding(path="a\\b"), "no plain path"),
    ],
)
def test_a_review_that_breaks_a_rule_is_none(content: bytes, said: str) -> None:
    problem, message = problem_of(content)

    assert problem is ReviewProblem.INVALID
    assert said in message
    assert len(message) < 300


def test_the_largest_review_is_one() -> None:
    texts = {"id": "i" * 128, "category": "c" * 128, "path": "p" * 512, "evidence": "e" * 4096, "scenario": "s" * 4096}

    assert parse_review(with_finding(**texts)).findings[0].evidence == "e" * 4096
    many = [FINDING | {"id": str(n)} for n in range(MAX_FINDINGS)]
    assert len(parse_review(encoded(REVIEW | {"findings": many})).findings) == MAX_FINDINGS
    whole = encoded(REVIEW)
    assert parse_review(whole + b" " * (MAX_REVIEW_BYTES - len(whole))).findings


@given(
    st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5).map(encoded)
)
def test_any_bytes_are_a_review_or_have_a_problem(content: bytes) -> None:
    try:
        parse_review(content)
    except ReviewError as error:
        assert error.problem in ReviewProblem  # noqa: PT017 - both ways out are right


def test_labels_are_read_and_none_of_them_is_a_clean_control() -> None:
    assert parse_labels(encoded({"schema_version": 1, "findings": []})) == ()
    assert parse_labels(encoded({"schema_version": 1, "findings": [LABEL]})) == (
        Label(id="l1", severity=Severity.LOW, path="a.py", line_start=1, line_end=1, category="style"),
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"schema_version": 1, "findings": [LABEL], "verdict": "comment"}, "unknown key 'verdict'"),
        ({"schema_version": 1, "findings": [LABEL | {"blocking": True}]}, "unknown key 'blocking'"),
        ({"schema_version": 1, "findings": [LABEL, LABEL]}, "the id 'l1' stands twice"),
        ({"schema_version": 1, "findings": [LABEL | {"line_end": 0}]}, "not 1 <= line_start <= line_end"),
        ({"schema_version": 0, "findings": []}, "schema_version is not 1"),
    ],
)
def test_labels_that_break_a_rule_are_none(value: object, said: str) -> None:
    problem, message = problem_of(encoded(value), parse_labels)

    assert problem is ReviewProblem.INVALID
    assert said in message
