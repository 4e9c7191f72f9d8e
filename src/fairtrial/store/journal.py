"""`results.jsonl`: appended one attempt at a time, verified and repaired after a kill.

One process writes it, under the directory's lock. What a kill can leave is a torn tail: the beginning of one attempt's
only write. Anything else that is wrong with the file was not done by us, and is refused.
"""

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from fairtrial.errors import IntegrityError
from fairtrial.host.files import fsync_directory
from fairtrial.store.attempts import Outcome
from fairtrial.store.chain import (
    MAX_LINE_BYTES,
    ChainedRow,
    ChainError,
    EncodedRow,
    LineFault,
    encode_row,
    follow_chain,
    read_lines,
    render_lines,
)
from fairtrial.store.documents import FILE_MODE, set_aside
from fairtrial.store.layout import Results, explain_failure
from fairtrial.store.reserve import keeping_reserve
from fairtrial.store.sweep_file import SweepFile

__all__ = ["Journal", "Repair"]

_MAX_TAIL_BYTES = 1 << 30  # an attempt is one write, and a write ends at 2 GiB
# Lines that end this near to the journal's end are parsed too: the last whole one, however long the torn one after it.
_PARSED_BYTES = 2 * MAX_LINE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A torn tail that was taken off the journal.

    Attributes:
        kept: Where its bytes are now.
        offset: Where it began in the journal.
        n_bytes: Its length.
        what: Why it was no whole attempt.
    """

    kept: Path
    offset: int
    n_bytes: int
    what: str


@dataclass(slots=True, kw_only=True)
class _WholePart:
    """The part of a journal that holds whole attempts.

    Attributes:
        recorded: Their (key, attempt) pairs.
        end: Its length in bytes.
        n_rows: Its rows.
        head: Digest of its last line, or of `sweep.json`.
        tail: Why what follows it is no whole attempt.
    """

    recorded: set[tuple[str, int]]
    end: int
    n_rows: int
    head: str
    tail: str


class Journal:
    """The journal of one sweep, open for appending; a context manager.

    Attributes:
        repair: What was set aside on opening, or None.
    """

    def __init__(
        self, results: Results, sweep: SweepFile, *, fd: int, whole: _WholePart, repair: Repair | None
    ) -> None:
        self.repair = repair
        self._results = results
        self._sweep = sweep.sweep
        self._fd: int | None = fd
        self._whole = whole

    @classmethod
    def open(cls, results: Results, sweep: SweepFile) -> Self:
        """Open a journal, or begin one; verify its whole chain and the order of its rows, and take off a torn tail.

        Args:
            results: The directory, held by this process.
            sweep: What its `sweep.json` says.

        Raises:
            IntegrityError: It is damaged before the tail; nothing was changed.
            HostError: The file system refuses.
        """
        path = results.results_jsonl
        try:
            fd = _open_file(path)
            try:
                with os.fdopen(os.dup(fd), "rb", buffering=1 << 20) as file:
                    size = os.fstat(fd).st_size
                    whole = _find_whole_part(file, path, sweep, n_bytes=size)
                repair = _take_off_tail(results, fd, whole, n_bytes=size) if size > whole.end else None
            except BaseException:
                os.close(fd)
                raise
        except OSError as error:
            if path.is_symlink():
                raise IntegrityError(f"{path}: is a symbolic link; put the journal itself in its place") from None
            raise explain_failure(results.root, error) from error
        return cls(results, sweep, fd=fd, whole=whole, repair=repair)

    @property
    def sweep(self) -> str:
        """Id of the sweep."""
        return self._sweep

    @property
    def head(self) -> str:
        """SHA-256 of the last line, in hex; of `sweep.json` while there is none."""
        return self._whole.head

    @property
    def n_rows(self) -> int:
        """Rows in the file."""
        return self._whole.n_rows

    @property
    def recorded(self) -> AbstractSet[tuple[str, int]]:
        """The (key, attempt) pairs whose rows are in the file."""
        return self._whole.recorded

    def append(self, rows: Sequence[Mapping[str, object]], *, key: str, attempt: int, plan_index: int) -> None:
        """Append one attempt's rows, all of them or none; they are durable when this returns.

        On a full disk the reserve is given up for them.

        Args:
            rows: Without envelope, the total row last; not empty.
            key: Key of the trial.
            attempt: Number of the attempt, not recorded before.
            plan_index: The trial's place in the plan.

        Raises:
            HostError: The file system refuses; the file is as before, and `outcome.json` still holds the rows.
            IntegrityError: Somebody else wrote to the file.
            ValueError: The rows are none, or recorded before: a bug of the caller.
        """
        self._append([encode_row(row) for row in rows], key=key, attempt=attempt, plan_index=plan_index)

    def append_outcome(self, outcome: Outcome, *, plan_index: int) -> None:
        """Append the rows of an outcome; quicker than `append`, since the outcome holds them as they will stand here.

        Args:
            outcome: How the attempt ended.
            plan_index: The trial's place in the plan.

        Raises:
            HostError: As for `append`.
            IntegrityError: As for `append`.
            ValueError: As for `append`, or it belongs to another sweep.
        """
        if outcome.sweep != self._sweep:
            raise ValueError(f"an outcome of sweep {outcome.sweep!r}")
        self._append(outcome.encoded, key=outcome.key, attempt=outcome.attempt, plan_index=plan_index)

    def _append(self, rows: Sequence[EncodedRow], *, key: str, attempt: int, plan_index: int) -> None:
        whole = self._whole
        if not rows:
            raise ValueError("an attempt has at least one row")
        if (key, attempt) in whole.recorded:
            message = f"attempt {attempt} of {key!r} is in the journal"
            raise ValueError(message)
        data, head = render_lines(
            rows,
            sweep=self._sweep,
            key=key,
            attempt=attempt,
            plan_index=plan_index,
            seq=whole.n_rows,
            prev=whole.head,
        )
        keeping_reserve(self._results, lambda: self._write(data))
        whole.recorded.add((key, attempt))
        whole.end += len(data)
        whole.n_rows += len(rows)
        whole.head = head

    def _write(self, data: bytes) -> None:
        fd, end = self._fd, self._whole.end
        if fd is None:
            raise ValueError("the journal is closed")
        if os.fstat(fd).st_size != end:
            message = f"{self._results.results_jsonl}: is written by somebody else; stop them, then `fairtrial resume`"
            raise IntegrityError(message)
        try:
            _write_at_once(fd, data)
            os.fsync(fd)
        except BaseException:
            try:
                os.ftruncate(fd, end)
                os.fsync(fd)
            except OSError:
                # A part of the rows stays: one more append would bury it. Opening again sets it aside.
                self.close()
                raise
            raise

    def close(self) -> None:
        """Stop writing (again does nothing)."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_file(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, FILE_MODE)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise IntegrityError(f"{path}: is not a regular file; put the journal back in its place")
    fsync_directory(path.parent)
    return fd


def _write_at_once(fd: int, data: bytes) -> None:
    if os.write(fd, data) != len(data):
        # A short write to a file means that the disk or the quota ended within it.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _find_whole_part(file: BinaryIO, path: Path, sweep: SweepFile, *, n_bytes: int) -> _WholePart:
    whole = _WholePart(
        recorded=set(), end=0, n_rows=0, head=sweep.digest, tail="the last row of its attempt is missing"
    )
    unfinished: tuple[str, int] | None = None
    try:
        for row in follow_chain(read_lines(file), sweep=sweep.sweep, genesis=sweep.digest):
            # The line after it vouches for a line: only what nothing followed may have come to the disk in parts. Who
            # believes rows parses them all (`read_rows`).
            if row.offset + len(row.raw) >= n_bytes - _PARSED_BYTES:
                row.parse()
            identity = _check_place(row, path, sweep, whole=whole, unfinished=unfinished)
            unfinished = identity
            if row.final:
                unfinished = None
                whole.recorded.add(identity)
                whole.end = row.offset + len(row.raw)
                whole.n_rows = row.line
                whole.head = row.digest
    except ChainError as error:
        at_the_end = error.offset + error.n_bytes == n_bytes
        if not at_the_end or error.fault not in {LineFault.TORN, LineFault.UNPARSABLE}:
            raise _damaged(path, error.line, str(error)) from None
        whole.tail = str(error)
    return whole


def _check_place(
    row: ChainedRow, path: Path, sweep: SweepFile, *, whole: _WholePart, unfinished: tuple[str, int] | None
) -> tuple[str, int]:
    """Check that a row may stand where it stands: the chain alone would hold for rows in a meaningless order."""
    _, _, key, attempt, plan_index = row.identity
    identity = (key, attempt)
    if not sweep.plans(key, at=plan_index):
        raise _damaged(path, row.line, f"no trial {key!r} is planned at {plan_index}")
    if identity in whole.recorded:
        raise _damaged(path, row.line, f"attempt {attempt} of {key!r} was recorded before")
    if unfinished not in {None, identity}:
        raise _damaged(path, row.line, "the attempt before it has no last row")
    return identity


def _damaged(path: Path, line: int, what: str) -> IntegrityError:
    return IntegrityError(
        f"{path}:{line}: {what}; nothing was changed: see `fairtrial audit`, then restore the file from a copy, or move"
        " it away and `fairtrial resume` writes it again from the outcome files"
    )


def _take_off_tail(results: Results, fd: int, whole: _WholePart, *, n_bytes: int) -> Repair:
    if n_bytes - whole.end > _MAX_TAIL_BYTES:
        raise _damaged(results.results_jsonl, whole.n_rows + 1, f"more than one attempt's rows follow: {whole.tail}")
    tail = os.pread(fd, n_bytes - whole.end, whole.end)
    kept = keeping_reserve(results, lambda: set_aside(results, f"results-{whole.end}.tail", tail))
    os.ftruncate(fd, whole.end)
    os.fsync(fd)
    return Repair(kept=kept, offset=whole.end, n_bytes=len(tail), what=whole.tail)
