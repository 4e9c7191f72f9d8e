"""Proving that the rows are chained, planned, and those of the outcomes.

Nothing is explained here: at the first doubt it is over, and `audit` looks again.
"""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from fairtrial.errors import FairtrialError
from fairtrial.store.artifacts import NotRegularError, open_regular, read_small_file
from fairtrial.store.attempts import MAX_ATTEMPT
from fairtrial.store.chain import ChainedRow, ChainError, Identity, follow_chain, read_lines
from fairtrial.store.documents import read_bytes
from fairtrial.store.layout import OUTCOME, TRIALS, Results
from fairtrial.store.outcome_cursor import OutcomeCursor
from fairtrial.store.proving import DoubtError, Endings, demand
from fairtrial.store.rows import ROW_SCHEMAS
from fairtrial.store.strict_json import MemberReader
from fairtrial.store.sweep_file import SweepFile

__all__ = ["RowProof", "prove_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProof:
    """What the rows tell, which are proven.

    Attributes:
        chain_head: Digest of the last line, in hex.
        n_rows: Lines in the journal.
        n_attempts: Attempts with all their rows.
        n_directories: Those that have a directory.
        n_with_rows: Planned trials with an attempt.
        n_counting: Planned trials with a counting attempt.
        endings: Digest of what the outcomes record, that they were compared with.
    """

    chain_head: str
    n_rows: int
    n_attempts: int
    n_directories: int
    n_with_rows: int
    n_counting: int
    endings: str


def prove_rows(
    results: Results,
    sweep: SweepFile,
    *,
    is_void: Callable[[Mapping[str, object]], bool],
    final_members: Collection[str],
) -> RowProof | None:
    """Prove them; None when anything is not as it should be. Arguments as for `audit`."""
    rows = _Rows(results, sweep, is_void=is_void, final_members=final_members)
    try:
        fd, _ = open_regular(results.results_jsonl)
        with os.fdopen(fd, "rb", buffering=1 << 20) as file:
            for row in follow_chain(read_lines(file), sweep=sweep.sweep, genesis=sweep.digest):
                rows.take(row)
        return rows.finish()
    except (ChainError, DoubtError, FairtrialError, NotRegularError, OSError):
        return None


class _Rows:
    """The rows so far, one attempt at a time."""

    def __init__(
        self,
        results: Results,
        sweep: SweepFile,
        *,
        is_void: Callable[[Mapping[str, object]], bool],
        final_members: Collection[str],
    ) -> None:
        self._root = f"{results.root}/"
        self._sweep = sweep
        self._is_void = is_void
        self._final_members = MemberReader(final_members)
        self._head = sweep.digest
        self._n_rows = 0
        self._n_directories = 0
        self._seen: set[tuple[int, int]] = set()
        self._counting: set[int] = set()
        self._endings = Endings()
        # The attempt whose rows are passing.
        self._identity: Identity | None = None
        self._cursor: OutcomeCursor | None = None

    def take(self, row: ChainedRow) -> None:
        """Take the next row."""
        if self._identity is None:
            self._begin(row.identity)
        elif row.identity is not self._identity:
            demand(row.identity[1:] == self._identity[1:] and row.identity.schema in ROW_SCHEMAS)
            self._identity = row.identity
        if self._cursor is None:
            row.parse()
        elif not self._cursor.take(row):
            raise DoubtError
        self._head, self._n_rows = row.digest, row.line
        if row.final:
            self._end(row)

    def finish(self) -> RowProof:
        """Tell what the rows told."""
        demand(self._identity is None)
        return RowProof(
            chain_head=self._head,
            n_rows=self._n_rows,
            n_attempts=len(self._seen),
            n_directories=self._n_directories,
            n_with_rows=len({plan_index for plan_index, _ in self._seen}),
            n_counting=len(self._counting),
            endings=self._endings.digest(),
        )

    def _begin(self, identity: Identity) -> None:
        attempt = (identity.plan_index, identity.attempt)
        demand(
            identity.schema in ROW_SCHEMAS
            and self._sweep.plans(identity.key, at=identity.plan_index)
            and 0 <= identity.attempt <= MAX_ATTEMPT
            and attempt not in self._seen
        )
        self._seen.add(attempt)
        self._identity = identity
        directory = f"{TRIALS}/{self._sweep.trial_names[identity.plan_index]}/{identity.attempt}"
        path = f"{self._root}{directory}/{OUTCOME}"
        try:
            data = read_small_file(path) or read_bytes(path)
        except FileNotFoundError:
            self._cursor = None
            self._n_directories += os.path.lexists(self._root + directory)
        else:
            self._cursor = OutcomeCursor(path, data, identity)
            self._endings.add(directory, self._cursor.artifacts)
            self._n_directories += 1

    def _end(self, row: ChainedRow) -> None:
        if not self._is_void(row.read_members(self._final_members)):
            # What counts has an outcome, and no other attempt of its trial counts.
            demand(self._cursor is not None and row.identity.plan_index not in self._counting)
            self._counting.add(row.identity.plan_index)
        self._identity = None
