"""A code review as a file, and the hidden labels that it is measured by: strict JSON, read as data and never run.

What a review says is the model's; this module only decides whether it is a review at all. How good it is, is
`review_score`'s.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from fairtrial.store.strict_json import JsonObject, MalformedJsonError, parse_object, take, take_objects

__all__ = [
    "BLOCKERS",
    "MAX_FINDINGS",
    "MAX_LINE",
    "MAX_REVIEW_BYTES",
    "SCHEMA_VERSION",
    "Finding",
    "Label",
    "Review",
    "ReviewError",
    "ReviewProblem",
    "ReviewVerdict",
    "Severity",
    "parse_labels",
    "parse_review",
]

SCHEMA_VERSION: Final = 1
MAX_REVIEW_BYTES: Final = 256 << 10
MAX_FINDINGS: Final = 100
MAX_LINE: Final = 10_000_000
MAX_TEXT_BYTES: Final = 4096
MAX_NAME_BYTES: Final = 128
MAX_PATH_BYTES: Final = 512
_Kind = TypeVar("_Kind")
_Choice = TypeVar("_Choice", bound=StrEnum)


class Severity(StrEnum):
    """How bad a defect is, worst first."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


BLOCKERS: Final = frozenset({Severity.CRITICAL, Severity.HIGH})
"""Defects that a change must not be merged with."""


class ReviewVerdict(StrEnum):
    """What a review advises."""

    APPROVE = "approve"
    COMMENT = "comment"
    REQUEST_CHANGES = "request_changes"


class ReviewProblem(StrEnum):
    """Why there is no review to score."""

    NEVER_WRITTEN = "never-written"
    EMPTY = "empty"
    NOT_JSON = "not-json"
    INVALID = "invalid"
    """JSON, but not what a review must be."""


class ReviewError(ValueError):
    """A text is no review, or no set of labels.

    Attributes:
        problem: Which kind of wrong.
    """

    def __init__(self, problem: ReviewProblem, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One defect that a review names.

    Attributes:
        id: Its name within the review.
        severity: How bad it is.
        path: The file, relative to the repository's top.
        line: First line, 1-based.
        end_line: Last line, not before `line`.
        category: What kind of defect it is.
        scenario: How it shows.
        evidence: What shows it.
        recommendation: What is to be done.
        blocking: The change must not be merged with it.
    """

    id: str
    severity: Severity
    path: str
    line: int
    end_line: int
    category: str
    scenario: str
    evidence: str
    recommendation: str
    blocking: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A review.

    Attributes:
        verdict: What it advises.
        findings: The defects that it names.
    """

    verdict: ReviewVerdict
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One defect that is known to be there.

    Attributes:
        id: Its name among the labels.
        severity: How bad it is.
        path: The file, relative to the repository's top.
        line_start: First line, 1-based.
        line_end: Last line, not before `line_start`.
        category: What kind of defect it is.
    """

    id: str
    severity: Severity
    path: str
    line_start: int
    line_end: int
    category: str


def parse_review(content: bytes | None) -> Review:
    """Read a review; None stands for a file that was never written.

    Raises:
        ReviewError: It is none; `problem` says which kind of wrong.
    """
    if content is None:
        raise ReviewError(ReviewProblem.NEVER_WRITTEN, "the review was never written")
    value = _parse(content, "the review")
    try:
        _require_keys(value, ("schema_version", "verdict", "findings"), "the review")
        _require_version(value)
        verdict = _choice(value, "verdict", ReviewVerdict, "the review")
        entries = take_objects(value, "findings")
        _require_number(entries)
        findings = tuple(_finding(entry, f"findings[{index}]") for index, entry in enumerate(entries))
        _require_unique([finding.id for finding in findings])
        _require_consistent(verdict, findings)
    except MalformedJsonError as problem:
        raise ReviewError(ReviewProblem.INVALID, f"not a review: {problem}") from None
    return Review(verdict=verdict, findings=findings)


def parse_labels(content: bytes) -> tuple[Label, ...]:
    """Read a task's labels; none of them makes the task a clean control.

    Raises:
        ReviewError: They are none.
    """
    value = _parse(content, "the file of labels")
    try:
        _require_keys(value, ("schema_version", "findings"), "the file")
        _require_version(value)
        entries = take_objects(value, "findings")
        _require_number(entries)
        labels = tuple(_label(entry, f"findings[{index}]") for index, entry in enumerate(entries))
        _require_unique([label.id for label in labels])
    except MalformedJsonError as problem:
        raise ReviewError(ReviewProblem.INVALID, f"not labels: {problem}") from None
    return labels


def _parse(content: bytes, what: str) -> JsonObject:
    if len(content) > MAX_REVIEW_BYTES:
        raise ReviewError(ReviewProblem.INVALID, f"{what} is larger than {MAX_REVIEW_BYTES} bytes")
    if not content.strip():
        raise ReviewError(ReviewProblem.EMPTY, f"{what} is empty")
    try:
        return parse_object(content)
    except ValueError as problem:  # also a number with thousands of digits, which Python refuses to read
        raise ReviewError(ReviewProblem.NOT_JSON, f"{what} is not one strict JSON object: {problem}") from None


def _finding(entry: Mapping[str, object], where: str) -> Finding:
    _require_keys(entry, Finding.__slots__, where)
    first, last = _lines(entry, "line", "end_line", where)
    return Finding(
        id=_text(entry, "id", where, max_bytes=MAX_NAME_BYTES),
        severity=_choice(entry, "severity", Severity, where),
        path=_path(entry, where),
        line=first,
        end_line=last,
        category=_text(entry, "category", where, max_bytes=MAX_NAME_BYTES),
        scenario=_text(entry, "scenario", where),
        evidence=_text(entry, "evidence", where),
        recommendation=_text(entry, "recommendation", where),
        blocking=_take(entry, "blocking", bool, where),
    )


def _label(entry: Mapping[str, object], where: str) -> Label:
    _require_keys(entry, Label.__slots__, where)
    first, last = _lines(entry, "line_start", "line_end", where)
    return Label(
        id=_text(entry, "id", where, max_bytes=MAX_NAME_BYTES),
        severity=_choice(entry, "severity", Severity, where),
        path=_path(entry, where),
        line_start=first,
        line_end=last,
        category=_text(entry, "category", where, max_bytes=MAX_NAME_BYTES),
    )


def _require_keys(value: Mapping[str, object], names: Iterable[str], where: str) -> None:
    wanted = set(names)
    if lacking := sorted(wanted - value.keys()):
        raise MalformedJsonError(f"{where} lacks {', '.join(lacking)}")
    if unknown := sorted(value.keys() - wanted):
        raise MalformedJsonError(f"{where} has the unknown key {unknown[0]!r:.80}")


def _require_version(value: Mapping[str, object]) -> None:
    if take(value, "schema_version", int) != SCHEMA_VERSION:
        raise MalformedJsonError(f"schema_version is not {SCHEMA_VERSION}")


def _require_number(entries: Sequence[object]) -> None:
    if len(entries) > MAX_FINDINGS:
        raise MalformedJsonError(f"{len(entries)} findings are more than {MAX_FINDINGS}")


def _require_unique(names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise MalformedJsonError(f"the id {twice[0]!r:.80} stands twice")


def _require_consistent(verdict: ReviewVerdict, findings: Sequence[Finding]) -> None:
    if verdict is ReviewVerdict.APPROVE and findings:
        raise MalformedJsonError(f"it approves, yet has {len(findings)} findings")
    if verdict is ReviewVerdict.REQUEST_CHANGES and not any(finding.blocking for finding in findings):
        raise MalformedJsonError("it requests changes, yet no finding is blocking")


def _take(entry: Mapping[str, object], name: str, kind: type[_Kind], where: str) -> _Kind:
    try:
        return take(entry, name, kind)
    except MalformedJsonError as problem:
        raise MalformedJsonError(f"{where}: {problem}") from None


def _choice(entry: Mapping[str, object], name: str, kind: type[_Choice], where: str) -> _Choice:
    said = _take(entry, name, str, where)
    for each in kind:
        if each == said:
            return each
    raise MalformedJsonError(f"{where}: {name} is {said!r:.40}; valid: {', '.join(kind)}")


def _text(entry: Mapping[str, object], name: str, where: str, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    said = _take(entry, name, str, where)
    if not said.strip():
        raise MalformedJsonError(f"{where}: {name} is blank")
    if len(said.encode()) > max_bytes:
        raise MalformedJsonError(f"{where}: {name} is longer than {max_bytes} bytes")
    return said


def _path(entry: Mapping[str, object], where: str) -> str:
    path = _text(entry, "path", where, max_bytes=MAX_PATH_BYTES)
    parts = path.split("/")
    if {"", ".", ".."} & set(parts) or "\\" in path or "\0" in path:
        raise MalformedJsonError(f"{where}: path {path!r:.80} is no plain path below the repository's top")
    return path


def _lines(entry: Mapping[str, object], first: str, last: str, where: str) -> tuple[int, int]:
    start, end = _take(entry, first, int, where), _take(entry, last, int, where)
    if not 1 <= start <= end <= MAX_LINE:
        raise MalformedJsonError(f"{where}: not 1 <= {first} <= {last} <= {MAX_LINE}")
    return start, end
