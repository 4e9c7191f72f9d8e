"""After a kill: bring the rows of finished attempts into the journal, and name the attempts that were interrupted."""

from collections.abc import Iterable
from dataclasses import dataclass

from fairtrial.store.attempts import AttemptRecord
from fairtrial.store.journal import Journal

__all__ = ["Adoption", "adopt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What a kill had left beside the journal, in the plan's order.

    Attributes:
        adopted: The (key, attempt) pairs whose rows were appended from their outcomes.
        interrupted: Attempts that were begun and have no outcome: the sweep writes a row for each.
        problems: What was found damaged, in words.
    """

    adopted: tuple[tuple[str, int], ...]
    interrupted: tuple[AttemptRecord, ...]
    problems: tuple[str, ...]


def adopt(journal: Journal, records: Iterable[AttemptRecord]) -> Adoption:
    """Append the rows of every record that has an outcome; one outcome is in memory at a time.

    Args:
        journal: The journal.
        records: Attempts whose rows are not in it, from `scan_attempts(…, recorded=journal.recorded)`.

    Raises:
        HostError: The file system refuses.
    """
    adopted: list[tuple[str, int]] = []
    interrupted: list[AttemptRecord] = []
    problems: list[str] = []
    for record in records:
        if record.problem is not None:
            problems.append(record.problem)
        if record.outcome is None:
            interrupted.append(record)
        else:
            journal.append_outcome(record.outcome, plan_index=record.plan_index)
            adopted.append((record.key, record.attempt))
    return Adoption(adopted=tuple(adopted), interrupted=tuple(interrupted), problems=tuple(problems))
