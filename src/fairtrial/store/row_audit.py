"""Rows in the order in which they were written, gathered into attempts and held against plan, outcomes and files."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from fairtrial.errors import IntegrityError
from fairtrial.store.artifacts import FileDigest, digest_bytes
from fairtrial.store.attempts import MAX_ATTEMPT
from fairtrial.store.chain import ChainedRow, Identity
from fairtrial.store.documents import BrokenDocumentError, read_bytes
from fairtrial.store.inventory import Inventory
from fairtrial.store.layout import INTENT, OUTCOME, TRIALS, Results
from fairtrial.store.outcome_cursor import OutcomeCursor
from fairtrial.store.problems import ProblemKind, Problems
from fairtrial.store.rows import ROW_SCHEMAS
from fairtrial.store.strict_json import MemberReader
from fairtrial.store.sweep_file import SweepFile

__all__ = ["RowAudit"]


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """The attempt whose rows are passing.

    Attributes:
        identity: Whose rows they are.
        is_planned: It belongs to a planned trial, and has no rows before.
        directory: Its directory, relative to the results directory; "" when it is not planned.
        is_there: The directory exists, and is no link.
        first_line: Its first line.
        last_line: Its last line so far.
        touched: A row of it is known to be changed or missing, so that comparing says nothing more.
        outcome: Digest of its `outcome.json`, or None when there is none.
        unreadable: Why its outcome cannot be compared with, or None.
        cursor: The place in its outcome's rows, or None when there is none to compare with.
        differs_at: The first line that is not in its outcome.
    """

    identity: Identity
    first_line: int
    last_line: int
    is_planned: bool = False
    directory: str = ""
    is_there: bool = False
    touched: bool = False
    outcome: FileDigest | None = None
    unreadable: str | None = None
    cursor: OutcomeCursor | None = None
    differs_at: int | None = None

    @property
    def key(self) -> str:
        """Key of the trial."""
        return self.identity.key

    @property
    def attempt(self) -> int:
        """Number of the attempt."""
        return self.identity.attempt

    @property
    def is_compared(self) -> bool:
        """Its rows and its outcome have agreed so far."""
        return not self.touched and self.differs_at is None


class RowAudit:
    """An audit of rows as they pass, one attempt at a time.

    Attributes:
        n_attempts: Attempts with all their rows.
        with_rows: Keys with an attempt.
        counting: Keys with a counting attempt, and its number.
    """

    def __init__(
        self,
        results: Results,
        sweep: SweepFile,
        *,
        inventory: Inventory,
        problems: Problems,
        is_void: Callable[[Mapping[str, object]], bool],
        final_members: Collection[str],
    ) -> None:
        self.n_attempts = 0
        self.with_rows: set[str] = set()
        self.counting: dict[str, int] = {}
        self._results = results
        self._root = str(results.root)
        self._sweep = sweep
        self._inventory = inventory
        self._problems = problems
        self._is_void = is_void
        self._final_members = MemberReader(final_members)
        self._seen: set[tuple[str, int]] = set()
        self._next_is_touched = False
        self._current: _Attempt | None = None

    def take(self, row: ChainedRow, *, touched: bool = False) -> None:
        """Take the next row.

        A row that its outcome holds too is not parsed once more.

        Args:
            row: A row of this sweep.
            touched: A row is missing beside it.

        Raises:
            ChainError: It was not parsed before, and cannot be.
        """
        current = self._current
        if current is None or current.identity is not row.identity:
            current = self._enter(row)
        current.last_line = row.line
        if touched:
            current.touched = True
        is_proven = False
        if current.cursor is not None and current.is_compared:
            is_proven = current.cursor.take(row)
            current.differs_at = None if is_proven else row.line
        if not is_proven:
            row.parse()
        if row.final:
            self._current = None
            self._end(current, row.read_members(self._final_members))

    def _enter(self, row: ChainedRow) -> _Attempt:
        """Come to a row of another attempt than the row before, or of another schema."""
        if row.identity.schema not in ROW_SCHEMAS:
            what = f"schema {row.identity.schema!r} is not known here"
            self._find(ProblemKind.ROW_SCHEMA_UNKNOWN, row.line, what)
        current = self._current
        if current is not None and current.identity[1:] == row.identity[1:]:
            current.identity = row.identity
            return current
        self.finish()
        self._current = self._begin(row)
        return self._current

    def pass_changed(self, row: ChainedRow) -> None:
        """Pass over a row that was changed: whose it is may have been changed too, so little of it is believed."""
        _, _, key, number, plan_index = row.identity
        if self._current is None and self._sweep.plans(key, at=plan_index) and (key, number) not in self._seen:
            self._current = self._begin(row)
        if self._current is None:
            self._next_is_touched = True
            return
        self._current.touched = True
        self._current.last_line = row.line
        if row.final and row.identity[1:] == self._current.identity[1:]:
            self.finish()

    def finish(self) -> None:
        """Close the attempt whose rows were passing, if its last row did not come."""
        current, self._current = self._current, None
        if current is None:
            return
        if current.touched:
            # It had its rows, and what comes next may be the rest of them.
            self._next_is_touched = True
            if current.is_planned:
                self.with_rows.add(current.key)
                self._check_files(current)
                self._judge_outcome(current, is_void=True)
        else:
            lines = f"{current.first_line}-{current.last_line}"
            what = f"attempt {current.attempt} of {current.key!r} has no last row"
            self._problems.add(ProblemKind.ATTEMPT_INCOMPLETE, f"{self._results.results_jsonl.name}:{lines}", what)
            self._check_files(current)

    def _find(self, kind: ProblemKind, line: int, what: str) -> None:
        self._problems.add(kind, f"{self._results.results_jsonl.name}:{line}", what)

    def _begin(self, row: ChainedRow) -> _Attempt:
        _, _, key, number, plan_index = row.identity
        current = _Attempt(
            identity=row.identity, first_line=row.line, last_line=row.line, touched=self._next_is_touched
        )
        self._next_is_touched = False
        if not self._sweep.plans(key, at=plan_index):
            self._find(ProblemKind.ROW_UNPLANNED, row.line, f"no trial {key!r} is planned at {plan_index}")
        elif (key, number) in self._seen:
            self._find(ProblemKind.ATTEMPT_REPEATED, row.line, f"attempt {number} of {key!r} has rows before")
        elif not 0 <= number <= MAX_ATTEMPT:
            self._find(ProblemKind.ROW_UNPLANNED, row.line, f"no attempt has the number {number}")
        else:
            current.is_planned = True
            self._enter_directory(current, f"{TRIALS}/{self._sweep.trial_names[plan_index]}/{number}")
        self._seen.add((key, number))
        return current

    def _enter_directory(self, current: _Attempt, directory: str) -> None:
        current.directory = directory
        current.is_there = self._inventory.visit(directory)
        if current.is_there:
            self._open_outcome(current, f"{self._root}/{directory}/{OUTCOME}")

    def _open_outcome(self, current: _Attempt, path: str) -> None:
        try:
            data = read_bytes(path)
        except FileNotFoundError:
            return
        except BrokenDocumentError as error:
            current.unreadable = str(error)
            return
        current.outcome = digest_bytes(data)
        try:
            current.cursor = OutcomeCursor(path, data, current.identity)
        except IntegrityError as error:
            current.unreadable = str(error)

    def _end(self, current: _Attempt, final: Mapping[str, object]) -> None:
        self.n_attempts += 1
        if not current.is_planned:
            return
        self.with_rows.add(current.key)
        is_void = self._is_void(final)
        if not is_void:
            first = self.counting.setdefault(current.key, current.attempt)
            if first != current.attempt:
                what = f"attempt {current.attempt} of {current.key!r} counts, and attempt {first} counted before"
                self._find(ProblemKind.SECOND_COUNTING_ATTEMPT, current.last_line, what)
        # Killed between its directory and its intent an attempt has spent nothing, and is void.
        self._check_files(current, required=() if is_void else (INTENT,))
        self._judge_outcome(current, is_void=is_void)

    def _judge_outcome(self, current: _Attempt, *, is_void: bool) -> None:
        """Compare what the outcome holds with the rows; one finding about its file is enough."""
        where = f"{current.directory}/{OUTCOME}"
        if self._inventory.is_accounted_for(current.directory, OUTCOME):
            return
        cursor = current.cursor
        if current.unreadable is not None:
            self._problems.add(ProblemKind.OUTCOME_UNREADABLE, where, current.unreadable)
        elif cursor is None:
            # An interrupted attempt has a void row and no outcome; what counts must have ended with one.
            if not is_void:
                what = f"the attempt counts (line {current.last_line}) and has no outcome"
                self._problems.add(ProblemKind.OUTCOME_MISSING, where, what)
        elif current.differs_at is not None and not current.touched:
            what = f"does not hold the rows to line {current.last_line}, from line {current.differs_at}"
            self._problems.add(ProblemKind.OUTCOME_DIFFERS, where, what)

    def _check_files(self, current: _Attempt, *, required: Collection[str] = ()) -> None:
        if current.is_there:
            artifacts = None if current.cursor is None else current.cursor.artifacts
            self._inventory.check_attempt(
                current.directory, outcome=current.outcome, artifacts=artifacts, required=required
            )
