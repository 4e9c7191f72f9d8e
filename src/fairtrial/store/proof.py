"""Proving intact evidence quickly: two processes share the trials. Neither explains damage; `audit` does, alone."""

import json
from collections.abc import Callable
from dataclasses import astuple, dataclass

from fairtrial.host.beside import can_work_beside, working_beside
from fairtrial.store.journal_audit import JournalAudit
from fairtrial.store.part import Part

__all__ = ["Tally", "count", "prove_part", "prove_together"]

N_PARTS = 2  # each follows the whole chain: a third would gain little


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What an audit counts.

    Attributes:
        n_rows: Lines in the journal, whosever they are; None when it could not be read.
        n_attempts: Attempts with all their rows.
        n_with_rows: Planned trials with an attempt in the journal.
        n_counting: Planned trials with a counting attempt.
    """

    n_rows: int | None
    n_attempts: int
    n_with_rows: int
    n_counting: int


def prove_together(begin: Callable[[Part], JournalAudit]) -> Tally | None:
    """Prove all parts, half of them in a process beside this one; None when it cannot be done, or not so.

    Args:
        begin: Begins an audit of a part.

    Raises:
        OSError: A file cannot be read.
    """
    if not can_work_beside():
        return None
    first, second = (Part(number=number, n_parts=N_PARTS) for number in range(N_PARTS))
    with working_beside(lambda: _encode(prove_part(begin(second)))) as wait_result:
        ours = prove_part(begin(first))
        if ours is None:
            return None
        theirs = _decode(wait_result())
    if theirs is None or theirs.n_rows != ours.n_rows:
        return None
    return Tally(
        n_rows=ours.n_rows,
        n_attempts=ours.n_attempts + theirs.n_attempts,
        n_with_rows=ours.n_with_rows + theirs.n_with_rows,
        n_counting=ours.n_counting + theirs.n_counting,
    )


def prove_part(journal: JournalAudit) -> Tally | None:
    """Prove one part; None when anything at all is found.

    Raises:
        OSError: A file cannot be read.
    """
    return count(journal) if journal.prove() else None


def count(journal: JournalAudit) -> Tally:
    """Count what an audit that has run came by."""
    return Tally(
        n_rows=journal.n_rows,
        n_attempts=journal.rows.n_attempts,
        n_with_rows=len(journal.rows.with_rows),
        n_counting=len(journal.rows.counting),
    )


def _encode(tally: Tally | None) -> bytes:
    return b"" if tally is None else json.dumps(astuple(tally)).encode()


def _decode(data: bytes | None) -> Tally | None:
    if not data:
        return None
    n_rows, n_attempts, n_with_rows, n_counting = json.loads(data)
    return Tally(n_rows=n_rows, n_attempts=n_attempts, n_with_rows=n_with_rows, n_counting=n_counting)
