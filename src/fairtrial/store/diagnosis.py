"""Which lines of a damaged journal were changed, dropped, added, copied or moved. Pure: claims in, findings out.

A line has two witnesses: the line after it, which claims its digest, and the line before it, whose digest it claims.
One changed line breaks at most two links, and its neighbours tell which end of a broken link is at fault.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fairtrial.store.problems import ProblemKind

__all__ = ["Diagnosis", "Finding", "LineIndex", "Sealed", "diagnose", "digest_bytes"]

_UNKNOWN = -1
_IGNORED = -2
_MAX_SEQ = 2**62


class LineIndex:
    """What each line claims, in 80 bytes a line, so that a million lines fit in small memory.

    Attributes:
        offsets: Where each line begins, and last where the file ends.
        seqs: The place that each line claims, or negative when it claims none.
    """

    def __init__(self) -> None:
        self.offsets = array("q", [0])
        self.seqs = array("q")
        self._prevs = bytearray()
        self._digests = bytearray()

    def __len__(self) -> int:
        return len(self.seqs)

    def add(self, *, n_bytes: int, digest: bytes, seq: int, prev: str) -> None:
        """Add the next line."""
        self._add(n_bytes, digest, seq if 0 <= seq < _MAX_SEQ else _UNKNOWN, digest_bytes(prev))

    def add_unreadable(self, *, n_bytes: int, digest: bytes) -> None:
        """Add a line that cannot be read."""
        self._add(n_bytes, digest, _UNKNOWN, bytes(32))

    def add_ignored(self, *, n_bytes: int, digest: bytes) -> None:
        """Add a line that is accounted for otherwise."""
        self._add(n_bytes, digest, _IGNORED, bytes(32))

    def _add(self, n_bytes: int, digest: bytes, seq: int, prev: bytes) -> None:
        self.offsets.append(self.offsets[-1] + n_bytes)
        self.seqs.append(seq)
        self._prevs += prev
        self._digests += digest

    def digest(self, line: int) -> bytes:
        """SHA-256 of a line's bytes."""
        return bytes(self._digests[32 * line : 32 * line + 32])

    def prev(self, line: int) -> bytes:
        """The digest that a line claims for the one before; zeros when it claims none."""
        return bytes(self._prevs[32 * line : 32 * line + 32])


def digest_bytes(text: str) -> bytes:
    """Read a SHA-256 in hex; zeros when it is none."""
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        return bytes(32)
    return digest if len(digest) == 32 else bytes(32)


class Sealed(NamedTuple):
    """What the seal says of the journal.

    Attributes:
        n_rows: Its rows.
        head: SHA-256 of its last line.
    """

    n_rows: int
    head: bytes


class Finding(NamedTuple):
    """What was found of a run of lines.

    Attributes:
        kind: Its kind; SWEEP_CHANGED and SEAL_CHANGED are about those files.
        first: First line, from 0; for dropped rows the line after the hole.
        last: Last line of the run.
        what: In words.
    """

    kind: ProblemKind
    first: int
    last: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A damaged journal, explained.

    Attributes:
        findings: What was found.
        order: The lines that can be used, in the order in which they were written.
        changed: Those among them that were changed.
        holed: Those among them beside which a line is missing.
    """

    findings: tuple[Finding, ...]
    order: tuple[int, ...]
    changed: frozenset[int]
    holed: frozenset[int]


def diagnose(
    index: LineIndex, *, genesis: bytes, seal: Sealed | None, vouched: Callable[[int], bool | None]
) -> Diagnosis:
    """Explain a chain that does not hold.

    Args:
        index: The journal's lines.
        genesis: SHA-256 of `sweep.json`.
        seal: What the seal says, when there is one.
        vouched: Whether something outside the journal (an outcome) holds what a line holds; None when nothing outside
            tells. Line -1 is `sweep.json`.
    """
    case = _Case(index, genesis=genesis, seal=seal, vouched=vouched)
    case.place_lines()
    case.find_holes()
    case.find_moved()
    case.blame_links()
    return Diagnosis(
        findings=tuple(_merge_runs(case.findings)),
        order=tuple(case.order),
        changed=frozenset(case.changed),
        holed=frozenset(case.holed),
    )


class _Case:
    """The steps of one diagnosis, in order."""

    def __init__(
        self, index: LineIndex, *, genesis: bytes, seal: Sealed | None, vouched: Callable[[int], bool | None]
    ) -> None:
        self.findings: list[Finding] = []
        self.order: list[int] = []
        self.changed: set[int] = set()
        self.holed: set[int] = set()
        self._index = index
        self._genesis = genesis
        self._seal = seal
        self._vouched = vouched
        self._rivals: dict[int, list[int]] = {}
        self._unplaced: list[int] = []

    def _find(self, kind: ProblemKind, line: int, what: str) -> None:
        self.findings.append(Finding(kind, line, line, what))

    def place_lines(self) -> None:
        """Give each place in the journal to the line that has the best claim to it."""
        index = self._index
        by_seq: dict[int, int] = {}
        for line, seq in enumerate(index.seqs):
            beyond = self._seal is not None and seq >= self._seal.n_rows
            if seq == _IGNORED:
                continue
            if seq == _UNKNOWN or beyond or self._is_misnumbered(line):
                self._unplaced.append(line)
            elif seq in by_seq:
                self._rivals.setdefault(seq, [by_seq[seq]]).append(line)
            else:
                by_seq[seq] = line
        for seq, lines in self._rivals.items():
            best = max(lines, key=lambda line: (self._is_claimed(line, by_seq), self._follows(line), -line))
            by_seq[seq] = best
            for line in lines:
                if line != best and index.digest(line) == index.digest(best):
                    self._find(ProblemKind.ROW_DUPLICATED, line, f"a copy of line {best + 1}")
                elif line != best:
                    self._unplaced.append(line)
        self.order = [by_seq[seq] for seq in sorted(by_seq)]
        self._unplaced.sort()

    def _follows(self, line: int) -> bool:
        """Tell whether the line before, as it stands in the file, is the one that this line claims."""
        before = self._index.digest(line - 1) if line else self._genesis
        return self._index.prev(line) == before

    def _is_misnumbered(self, line: int) -> bool:
        """Tell whether a line follows the one before by digest, but not by number: then its number was changed."""
        due = self._index.seqs[line - 1] + 1 if line else 0
        return self._follows(line) and self._index.seqs[line] != due

    def _is_claimed(self, line: int, by_seq: dict[int, int]) -> bool:
        """Tell whether a line at the next place, or the seal, claims this line."""
        seq, digest = self._index.seqs[line], self._index.digest(line)
        if self._seal is not None and seq == self._seal.n_rows - 1:
            return digest == self._seal.head
        after = self._rivals.get(seq + 1) or [by_seq[seq + 1]] if seq + 1 in by_seq else []
        return any(self._index.prev(line) == digest for line in after)

    def find_holes(self) -> None:
        """Find places without a line, and the unreadable lines that stand where they should be."""
        placed: list[int] = []
        by_seq = {self._index.seqs[line]: line for line in self.order}
        end = len(self._index)
        due = 0
        for line in self.order:
            seq = self._index.seqs[line]
            if seq > due and not self._is_claimed(line, by_seq) and self._vouched(line) is False:
                self._unplaced.append(line)
                continue
            self._fill_hole(placed[-1] if placed else -1, line, first=due, last=seq - 1)
            placed.append(line)
            due = seq + 1
        if self._seal is not None:
            self._fill_hole(placed[-1] if placed else -1, end, first=due, last=self._seal.n_rows - 1)
        self.order = placed
        for line in self._unplaced:
            self._find(ProblemKind.ROW_ADDED, line, "no row that the sweep wrote")

    def _fill_hole(self, before: int, after: int, *, first: int, last: int) -> None:
        n_missing = last - first + 1
        if n_missing <= 0:
            return
        self._unplaced.sort()
        begin = bisect_right(self._unplaced, before)
        here = self._unplaced[begin : max(begin, bisect_left(self._unplaced, after))][:n_missing]
        for line in here:
            self._find(ProblemKind.ROW_CHANGED, line, "not the row that was written here")
        del self._unplaced[begin : begin + len(here)]
        if n_missing > len(here):
            places = f"row {first}" if first == last else f"{n_missing - len(here)} of the rows {first} to {last}"
            self._find(ProblemKind.ROW_DROPPED, after, f"{places} (seq) missing before this line")
        self.holed.update({before, after})

    def find_moved(self) -> None:
        """Find the fewest lines whose moving would explain the order of the file."""
        stays = _longest_rising(self.order)
        for line in self.order:
            if line not in stays:
                seq = self._index.seqs[line]
                self._find(ProblemKind.ROW_REORDERED, line, f"row {seq} (seq) does not stand in its place")

    def blame_links(self) -> None:
        """Decide for each broken link which of its ends was changed, from the last link to the first."""
        lines = [-1, *self.order]
        claims = [self._claim(line, after) for line, after in zip(lines, [*self.order, None], strict=True)]
        changed: set[int] = set()
        for at in range(len(lines) - 1, -1, -1):
            if claims[at] is not False:
                continue
            line = lines[at]
            if at == len(lines) - 1:
                if self._vouched(line) and claims[at - 1] is not False:
                    self._find(ProblemKind.SEAL_CHANGED, line, "its chain head is not the digest of the last row")
                    continue
                changed.add(line)
            elif claims[at + 1]:
                changed.add(line)
            elif lines[at + 1] in changed:
                if self._vouched(line) is False:
                    changed.add(line)
            else:
                changed.add(lines[at + 1] if self._vouched(line) else line)
        for line in sorted(changed):
            if line < 0:
                self._find(ProblemKind.SWEEP_CHANGED, line, "not the file that the first row was chained to")
            else:
                self._find(ProblemKind.ROW_CHANGED, line, "not the row that was written here")
        self.changed = changed

    def _claim(self, line: int, after: int | None) -> bool | None:
        """Tell whether what comes after a line claims its digest; None when nothing that comes after is known."""
        index = self._index
        seq = index.seqs[line] if line >= 0 else -1
        digest = index.digest(line) if line >= 0 else self._genesis
        if after is not None:
            return index.prev(after) == digest if index.seqs[after] == seq + 1 else None
        if self._seal is not None and seq == self._seal.n_rows - 1:
            return digest == self._seal.head
        return None


def _longest_rising(lines: list[int]) -> set[int]:
    """Return the members of a longest rising subsequence (patience sorting: n log n)."""
    tails: list[int] = []
    before: dict[int, int] = {}
    for line in lines:
        at = bisect_left(tails, line)
        before[line] = tails[at - 1] if at else _UNKNOWN
        tails[at : at + 1] = [line]
    members: set[int] = set()
    line = tails[-1] if tails else _UNKNOWN
    while line != _UNKNOWN:
        members.add(line)
        line = before[line]
    return members


def _merge_runs(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Join findings of one kind and wording on neighbouring lines."""
    run: Finding | None = None
    for finding in sorted(findings, key=lambda finding: (finding.kind, finding.what, finding.first)):
        if run is not None and run[::3] == finding[::3] and finding.first == run.last + 1:
            run = run._replace(last=finding.last)
            continue
        if run is not None:
            yield run
        run = finding
    if run is not None:
        yield run
