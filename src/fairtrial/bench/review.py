"""Reviews: where a session leaves one, what a task's labels and known-good review are, and how a review is judged.

A review reads a tree that it cannot write. What it has to say it leaves in a directory of its own outside the tree,
where a writer that goes by way of a temporary file can work too. Nothing of a review is ever run: it is data.
"""

import json
import stat
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, islice, product
from typing import Final, TypeAlias, cast

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.node import Node
from fairtrial.errors import UsageError
from fairtrial.host.machine import describe_machine
from fairtrial.host.slot import Slot
from fairtrial.judging.review import (
    MAX_FINDINGS,
    MAX_LINE,
    MAX_REVIEW_BYTES,
    SCHEMA_VERSION,
    Label,
    Review,
    ReviewError,
    ReviewProblem,
    ReviewVerdict,
    Severity,
    parse_labels,
    parse_review,
)
from fairtrial.judging.review_score import ReviewScore, score_review
from fairtrial.model.bench import Arm, Blob, Cheat, Task
from fairtrial.model.sandbox import Access, Bind
from fairtrial.store.redact import Redactor
from fairtrial.workspace.change import open_up
from fairtrial.workspace.layers import Base, Layer, Room, choose_storage, open_layer
from fairtrial.workspace.tree import Tree, TreeLimitError

__all__ = [
    "EMPTY_REVIEW",
    "LISTS_EVERYTHING",
    "PROSE_FILE",
    "REVIEW_FILE",
    "REVIEW_ROOT",
    "JudgedReview",
    "Left",
    "collect_review",
    "desk_bind",
    "judge_review",
    "open_desk",
    "reference_script",
    "require_labels",
    "require_same_kind",
    "review_changes",
    "review_cheats",
    "review_fields",
]

REVIEW_ROOT: Final = "/review"
REVIEW_FILE: Final = "review-output.json"
"""The review as data: what is scored."""
PROSE_FILE: Final = "review-output.md"
"""The review for people: kept, never scored."""
EMPTY_REVIEW: Final = "empty-review"
LISTS_EVERYTHING: Final = "lists-everything"
DESK: Final = Room(disk_bytes=16 << 20, inodes=1024)
MOST_NAMED: Final = 8
Row: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a session left in its directory.

    Attributes:
        review: Bytes of the review, no more than one byte above what a review may have; None when it was not written.
        prose: The same of the review for people.
        problem: What else is there, or cannot be read; None when all is in order.
    """

    review: bytes | None
    prose: bytes | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedReview:
    """What became of a review.

    Attributes:
        problem: Why there is none to score, or None.
        detail: The same in words, else "".
        score: What it is worth; that of a review which found nothing where there is none.
    """

    problem: ReviewProblem | None
    detail: str
    score: ReviewScore


@contextmanager
def open_desk(node: Node) -> Generator[Layer]:
    """An empty directory that a session may write its review to; its size is limited.

    Raises:
        HostError: It cannot be made.
    """
    empty = node.slot.root / "d"
    empty.mkdir(mode=0o755, exist_ok=True)
    node.slot.give(empty)
    storage = choose_storage(DESK, n_layers=node.n_workers, available_bytes=describe_machine().memory_bytes)
    with open_layer(Base(trees=(empty,)), slot=node.slot, room=DESK, storage=storage) as layer:
        yield layer


def desk_bind(desk: Layer) -> Bind:
    """The directory as the session sees it."""
    return Bind(source=desk.merged, target=REVIEW_ROOT, access=Access.READ_WRITE)


def collect_review(desk: Layer, slot: Slot) -> Left:
    """Read what was left. Whatever is wrong with it is the session's doing: nobody else writes there.

    Raises:
        HostError: It is a copy that cannot be opened up.
    """
    if desk.upper is None:
        open_up(desk.merged, slot)
    tree = Tree(desk.merged)
    found: dict[str, bytes] = {}
    others: list[str] = []
    try:
        for item in tree.walk(most_entries=DESK.inodes):
            name = item.path.decode(errors="backslashreplace")
            if name in {REVIEW_FILE, PROSE_FILE} and stat.S_ISREG(item.mode):
                found[name] = tree.read_file(item.path, MAX_REVIEW_BYTES + 1)
            else:
                others.append(name)
    except (OSError, TreeLimitError) as problem:
        return Left(review=None, prose=None, problem=f"what it left cannot be read: {type(problem).__name__}")
    named = ", ".join(others[:MOST_NAMED])
    excess = f"the review left {len(others)} other paths, or no plain files: {named}" if others else None
    return Left(review=found.get(REVIEW_FILE), prose=found.get(PROSE_FILE), problem=excess)


def judge_review(review: bytes | None, labels: Sequence[Label]) -> JudgedReview:
    """Score what a session wrote; pure."""
    try:
        return JudgedReview(problem=None, detail="", score=score_review(parse_review(review), labels))
    except ReviewError as error:
        return JudgedReview(problem=error.problem, detail=str(error), score=score_review(None, labels))


def review_fields(judged: JudgedReview, left: Left) -> Row:
    """What a row says of a review, beside how the trial ended; pure."""
    score = asdict(judged.score)
    score["matched_findings"] = [finding for finding, _ in score.pop("matches")]  # labels stay hidden, ids and all
    score["problem"] = None if judged.problem is None else str(judged.problem)
    written = left.review or b""
    score["stored_whole"] = Redactor().redact(written) == written
    valid = judged.problem is None and left.problem is None
    passed = valid and judged.score.is_perfect
    return {
        "review": score,
        "review_evidence_valid": valid,
        "oracle_passed": passed,
        "oracle_output": "passed" if passed else "failed",
    }


def review_changes(recorded: Mapping[str, object], again: JudgedReview) -> tuple[str, ...]:
    """One sentence for each thing that is said differently of the same review now; pure."""
    now = review_fields(again, Left(review=None, prose=None, problem=None))["review"]
    scored = cast("Row", now)
    if recorded.get("stored_whole") is not True:
        return ("it cannot be scored again: what looked like secrets was taken out of it",)
    return tuple(
        f"{name} was {recorded.get(name)}, is {value}" for name, value in scored.items() if recorded.get(name) != value
    )


def require_labels(content: bytes) -> tuple[Label, ...]:
    """Read a task's labels.

    Raises:
        UsageError: They are none.
    """
    try:
        return parse_labels(content)
    except ReviewError as problem:
        raise UsageError(f"{problem}; see docs/reference/reviews.md") from None


def reference_script(content: bytes) -> bytes:
    """A script that writes the known-good review.

    Raises:
        UsageError: It is no review.
    """
    try:
        return _script(parse_review(content))
    except ReviewError as problem:
        raise UsageError(f"the reference: {problem}; see docs/reference/reviews.md") from None


def review_cheats(labels: Sequence[Label], blobs: BlobStore) -> tuple[Cheat, ...]:
    """What no task's labels may let pass: a review that names nothing where there is something, and one that names all.

    On a clean control the empty review is the right one, so it is tried only where there are labels.
    """
    places = sorted({label.path for label in labels}) or ["README.md"]
    everything: list[Row] = [
        {
            "id": f"f{number}",
            "severity": str(severity),
            "path": path,
            "line": 1,
            "end_line": MAX_LINE,
            "category": "everything",
            "scenario": "any",
            "evidence": "none",
            "recommendation": "look",
            "blocking": True,
        }
        for number, (path, severity) in enumerate(islice(cycle(product(places, Severity)), MAX_FINDINGS))
    ]
    listed = _document(ReviewVerdict.REQUEST_CHANGES, everything)
    cheats = [Cheat(name=LISTS_EVERYTHING, script=_put(LISTS_EVERYTHING, listed, blobs))]
    if labels:
        approved = _document(ReviewVerdict.APPROVE, [])
        cheats.insert(0, Cheat(name=EMPTY_REVIEW, script=_put(EMPTY_REVIEW, approved, blobs)))
    return tuple(cheats)


def require_same_kind(tasks: Sequence[Task], arms: Sequence[Arm]) -> None:
    """Refuse an arm that does not do what a task asks for.

    Raises:
        UsageError: A review would be asked of an arm that changes code, or the other way round.
    """
    for arm in arms:
        for task in tasks:
            if task.is_review and not arm.reviews:
                raise UsageError(
                    f"task {task.id!r} is a review, and arm {arm.name!r} has no phase of kind 'review';"
                    " name the tasks that are meant with --only, or another arm"
                )
            if arm.reviews and not task.is_review:
                raise UsageError(
                    f"arm {arm.name!r} reviews, and task {task.id!r} has no labels that a review could be scored by"
                    " (an oracle with the runner 'review'); name the tasks that are meant with --only"
                )


def _put(name: str, document: Row, blobs: BlobStore) -> Blob:
    return blobs.put(name, _writes(document))


def _script(review: Review) -> bytes:
    return _writes(_document(review.verdict, [asdict(finding) for finding in review.findings]))


def _document(verdict: ReviewVerdict, findings: Sequence[Row]) -> Row:
    return {"schema_version": SCHEMA_VERSION, "verdict": str(verdict), "findings": list(findings)}


def _writes(document: Row) -> bytes:
    """A shell script; one line of JSON can hold no end of a here document."""
    text = json.dumps(document)
    return f"cat > {REVIEW_ROOT}/{REVIEW_FILE} <<'END-OF-REVIEW'\n{text}\nEND-OF-REVIEW\n".encode()
