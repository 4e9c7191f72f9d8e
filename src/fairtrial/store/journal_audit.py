"""The journal's part of an audit: once through it when it is whole, and once more to explain it when it is not."""

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, Self

from fairtrial.errors import IntegrityError
from fairtrial.store.attempts import MAX_ATTEMPT, read_outcome
from fairtrial.store.chain import (
    ChainedRow,
    ChainError,
    LineError,
    LineFault,
    encode_row,
    follow_chain,
    read_lines,
    read_row,
    render_row,
)
from fairtrial.store.diagnosis import Finding, LineIndex, Sealed, diagnose, digest_bytes
from fairtrial.store.inventory import Inventory
from fairtrial.store.layout import OUTCOME, Results
from fairtrial.store.problems import ProblemKind, Problems
from fairtrial.store.row_audit import RowAudit
from fairtrial.store.seal import Seal, uncovered_names
from fairtrial.store.sweep_file import SweepFile

__all__ = ["JournalAudit"]


class JournalAudit:
    """An audit of the journal.

    Attributes:
        n_rows: Its lines; None when it cannot be read.
        problems: What was found.
        rows: What the rows told.
        inventory: The files, those of recorded attempts checked.
    """

    def __init__(
        self,
        results: Results,
        sweep: SweepFile,
        seal: Seal | None,
        *,
        is_void: Callable[[Mapping[str, object]], bool],
        final_members: Collection[str],
    ) -> None:
        self.n_rows: int | None = None
        self._results = results
        self._sweep = sweep
        self._seal = seal
        self._is_void = is_void
        self._final_members = final_members
        self._name = results.results_jsonl.name
        self._restart()

    def _restart(self) -> None:
        self.problems = Problems()
        self.inventory = Inventory(
            self._results.root,
            trials=frozenset(self._sweep.trial_names),
            sealed=None if self._seal is None else self._seal.artifacts,
            problems=self.problems,
        )
        self.rows = RowAudit(
            self._results,
            self._sweep,
            inventory=self.inventory,
            problems=self.problems,
            is_void=self._is_void,
            final_members=self._final_members,
        )

    def run(self) -> Self:
        """Audit it.

        Raises:
            OSError: It cannot be read.
        """
        with self._open() as file:
            if file is not None and not self._follow(file):
                file.seek(0)
                self._restart()
                self._explain(file)
        return self

    def check_unrecorded(self) -> None:
        """Check what no row leads to: attempts without rows, and everything outside `trials/`.

        Raises:
            OSError: A file cannot be read.
        """
        inventory = self.inventory
        for directory in inventory.unvisited:
            if (self._results.root / directory / OUTCOME).is_file():
                self.problems.add(ProblemKind.OUTCOME_WITHOUT_ROWS, directory, "the journal has no rows of it")
            else:
                self.problems.add(ProblemKind.ATTEMPT_INTERRUPTED, directory, "no outcome, and no row in the journal")
            inventory.check_attempt(directory, outcome=None, artifacts=None)
        inventory.check_rest(uncovered=uncovered_names(self._results))
        inventory.report_removed()

    @contextmanager
    def _open(self) -> Generator[BinaryIO | None]:
        """Open the journal; None when there is none that can be read, which is then reported."""
        path = self._results.results_jsonl
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            if self._seal is not None and self._seal.n_rows:
                what = f"all {self._seal.n_rows} rows: there is no journal"
                self.problems.add(ProblemKind.ROW_DROPPED, self._name, what)
            self.n_rows = 0
            yield None
            return
        except OSError:
            if not path.is_symlink():
                raise
            self.problems.add(ProblemKind.NOT_A_FILE, self._name, "a symbolic link, not followed")
            yield None
            return
        with os.fdopen(fd, "rb", buffering=1 << 20) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                self.problems.add(ProblemKind.NOT_A_FILE, self._name, "no regular file")
                yield None
            else:
                yield file

    def _follow(self, file: BinaryIO) -> bool:
        """Take the rows of a journal whose chain holds; False when it does not."""
        head = self._sweep.digest
        n_rows = 0
        try:
            for row in follow_chain(read_lines(file), sweep=self._sweep.sweep, genesis=self._sweep.digest):
                self.rows.take(row)
                head, n_rows = row.digest, row.line
        except ChainError as error:
            if not self._take_torn_tail(file, error.fault, line=error.line, end=error.offset + error.n_bytes):
                return False
        if self._seal is not None and (self._seal.n_rows, self._seal.chain_head) != (n_rows, head):
            return False
        self.rows.finish()
        self.n_rows = n_rows
        return True

    def _take_torn_tail(self, file: BinaryIO, fault: LineFault, *, line: int, end: int) -> bool:
        """Report bytes without newline at the end of a journal that is still being written; False for anything else."""
        if fault is not LineFault.TORN or self._seal is not None or end != os.fstat(file.fileno()).st_size:
            return False
        what = "the beginning of a row: the sweep was killed"
        self.problems.add(ProblemKind.TORN_TAIL, f"{self._name}:{line}", what)
        return True

    def _explain(self, file: BinaryIO) -> None:
        """Take the rows of a journal whose chain does not hold, as far as they can be told from the damage."""
        index = self._index_lines(file)
        diagnosis = diagnose(
            index,
            genesis=bytes.fromhex(self._sweep.digest),
            seal=None if self._seal is None else Sealed(self._seal.n_rows, digest_bytes(self._seal.chain_head)),
            vouched=lambda line: self._vouches(file, index, line),
        )
        for finding in diagnosis.findings:
            self.problems.add(finding.kind, self._where(finding), finding.what)
        for line in diagnosis.order:
            raw = _read_line(file, index, line)
            row, identity, link = read_row(raw, sweep=self._sweep.sweep)
            # Without `rest_at` the row is written anew to be compared: slower, and here nobody minds.
            passing = ChainedRow(
                line=line + 1,
                offset=index.offsets[line],
                raw=raw,
                digest=index.digest(line).hex(),
                identity=identity,
                final=link.final,
                rest_at=-1,
                row=row,
            )
            if line in diagnosis.changed:
                self.rows.pass_changed(passing)
            else:
                self.rows.take(passing, touched=line in diagnosis.holed)
        self.rows.finish()
        self.n_rows = len(index)

    def _index_lines(self, file: BinaryIO) -> LineIndex:
        index = LineIndex()
        for raw in read_lines(file):
            digest = hashlib.sha256(raw).digest()
            try:
                _, _, link = read_row(raw, sweep=self._sweep.sweep)
            except LineError as error:
                line = len(index) + 1
                if self._take_torn_tail(file, error.fault, line=line, end=index.offsets[-1] + len(raw)):
                    break
                if error.fault is LineFault.FOREIGN:
                    self.problems.add(ProblemKind.ROW_FOREIGN, f"{self._name}:{line}", str(error))
                    index.add_ignored(n_bytes=len(raw), digest=digest)
                else:
                    index.add_unreadable(n_bytes=len(raw), digest=digest)
            else:
                index.add(n_bytes=len(raw), digest=digest, seq=link.seq, prev=link.prev)
        return index

    def _where(self, finding: Finding) -> str:
        match finding.kind:
            case ProblemKind.SWEEP_CHANGED:
                return self._results.sweep_json.name
            case ProblemKind.SEAL_CHANGED:
                return self._results.seal_json.name
            case _:
                lines = f"{finding.first + 1}-{finding.last + 1}" if finding.last > finding.first else finding.first + 1
                return f"{self._name}:{lines}"

    def _vouches(self, file: BinaryIO, index: LineIndex, line: int) -> bool | None:
        """Ask the outcome of a line's attempt whether the line is what was written; None when there is none to ask."""
        if line < 0:
            return None if self._seal is None else self._seal.sweep_json == self._sweep.digest
        row, identity, link = read_row(_read_line(file, index, line), sweep=self._sweep.sweep)
        if not self._sweep.plans(identity.key, at=identity.plan_index) or not 0 <= identity.attempt <= MAX_ATTEMPT:
            return False
        try:
            outcome = read_outcome(self._results, identity.key, identity.attempt)
        except IntegrityError:
            return None
        if outcome is None:
            return None
        rows = [encode_row(own) for own in outcome.rows]
        own = render_row(row)
        return (own == rows[-1]) if link.final else (own in rows[:-1])


def _read_line(file: BinaryIO, index: LineIndex, line: int) -> bytes:
    begin, end = index.offsets[line : line + 2]
    return os.pread(file.fileno(), end - begin, begin)
