"""What an audit can find: one kind for each way in which evidence can be wrong or missing."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["MAX_PROBLEMS", "Problem", "ProblemKind", "Problems", "printable"]

MAX_PROBLEMS = 1000


class ProblemKind(StrEnum):
    """Kinds of problem, each its own."""

    SWEEP_UNREADABLE = "sweep-unreadable"
    SWEEP_CHANGED = "sweep-changed"
    SEAL_UNREADABLE = "seal-unreadable"
    SEAL_MISSING = "seal-missing"
    SEAL_CHANGED = "seal-changed"
    ROW_CHANGED = "row-changed"
    ROW_DROPPED = "row-dropped"
    ROW_ADDED = "row-added"
    ROW_DUPLICATED = "row-duplicated"
    ROW_REORDERED = "row-reordered"
    ROW_FOREIGN = "row-foreign"
    ROW_UNPLANNED = "row-unplanned"
    ROW_SCHEMA_UNKNOWN = "row-schema-unknown"
    ATTEMPT_REPEATED = "attempt-repeated"
    ATTEMPT_INCOMPLETE = "attempt-incomplete"
    SECOND_COUNTING_ATTEMPT = "second-counting-attempt"
    OUTCOME_MISSING = "outcome-missing"
    OUTCOME_UNREADABLE = "outcome-unreadable"
    OUTCOME_DIFFERS = "outcome-differs"
    ARTIFACT_CHANGED = "artifact-changed"
    ARTIFACT_REMOVED = "artifact-removed"
    ARTIFACT_ADDED = "artifact-added"
    FOREIGN_FILE = "foreign-file"
    NOT_A_FILE = "not-a-file"
    TORN_TAIL = "torn-tail"
    OUTCOME_WITHOUT_ROWS = "outcome-without-rows"
    ATTEMPT_INTERRUPTED = "attempt-interrupted"
    TRIAL_WITHOUT_ROWS = "trial-without-rows"

    @property
    def is_unfinished(self) -> bool:
        """A kill or an early stop leaves this, and `fairtrial resume` mends it; everything else means damage."""
        return self in _UNFINISHED


_UNFINISHED = frozenset(
    {
        ProblemKind.TORN_TAIL,
        ProblemKind.OUTCOME_WITHOUT_ROWS,
        ProblemKind.ATTEMPT_INTERRUPTED,
        ProblemKind.TRIAL_WITHOUT_ROWS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        kind: Its kind.
        where: A path relative to the results directory, with `:line` or `:first-last` in the journal.
        what: In words.
    """

    kind: ProblemKind
    where: str
    what: str

    def as_line(self) -> str:
        """Write it as one line for people."""
        return f"{self.where}: {self.kind}: {self.what}"


class Problems:
    """Problems as they are found: all are counted, the first thousand are kept.

    Attributes:
        kept: In the order of finding.
        counts: How many of each kind were found.
    """

    def __init__(self) -> None:
        self.kept: list[Problem] = []
        self.counts: Counter[ProblemKind] = Counter()

    def add(self, kind: ProblemKind, where: str, what: str) -> None:
        """Add one."""
        self.counts[kind] += 1
        if len(self.kept) < MAX_PROBLEMS:
            self.kept.append(Problem(kind=kind, where=printable(where), what=printable(what)))

    def extend(self, others: "Problems") -> None:
        """Add others' findings."""
        self.counts.update(others.counts)
        self.kept += others.kept[: MAX_PROBLEMS - len(self.kept)]


def printable(text: str) -> str:
    """Escape what a terminal would act upon: names and keys may be anybody's."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
