"""Is the evidence in a results directory what was written? Reads everything once, changes nothing, believes no link.

Against someone who rewrites the whole chain, its outcomes and its seal, only the seal's digest kept elsewhere helps.
"""

import gc
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from fairtrial.errors import HostError, IntegrityError
from fairtrial.store.journal_audit import JournalAudit
from fairtrial.store.layout import Results
from fairtrial.store.problems import Problem, ProblemKind, Problems
from fairtrial.store.proof import Proof, prove
from fairtrial.store.seal import Seal, read_seal
from fairtrial.store.sweep_file import SweepFile, read_sweep

__all__ = ["AuditReport", "audit"]

_MIN_PROVEN_TRIALS = 2000  # a small directory is audited before a fork is done


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit found.

    Attributes:
        sweep: Id of the sweep; None when `sweep.json` cannot be read, and then nothing else could be audited.
        sealed: There is a readable seal.
        seal_digest: SHA-256 of `seal.json` in hex, or None.
        n_rows: Lines in the journal; None when it could not be read.
        n_attempts: Attempts with all their rows; None likewise.
        n_planned: Planned trials; None likewise.
        n_with_rows: Planned trials with an attempt in the journal; None likewise.
        n_counting: Planned trials with a counting attempt; None likewise.
        missing: Keys of planned trials without rows, in the plan's order.
        problems: What was found, at most a thousand.
        counts: How many problems of each kind there are.
    """

    sweep: str | None
    sealed: bool
    seal_digest: str | None
    n_rows: int | None
    n_attempts: int | None
    n_planned: int | None
    n_with_rows: int | None
    n_counting: int | None
    missing: tuple[str, ...]
    problems: tuple[Problem, ...]
    counts: Mapping[ProblemKind, int]

    @property
    def is_intact(self) -> bool:
        """Nothing that was written is changed, dropped, added, copied or moved."""
        return all(kind.is_unfinished for kind in self.counts)

    @property
    def is_complete(self) -> bool:
        """Every planned trial has a counting attempt."""
        return self.n_planned is not None and self.n_counting == self.n_planned


def audit(
    results: Results,
    *,
    is_void: Callable[[Mapping[str, object]], bool],
    final_members: Collection[str],
    expect: str | None = None,
) -> AuditReport:
    """Audit a results directory.

    Args:
        results: The directory; nothing in it is changed.
        is_void: Whether an attempt with this final row is void, so that it does not count.
        final_members: The members of a final row that `is_void` looks at; it may be given no others.
        expect: The digest of `seal.json` that was kept elsewhere, in hex.

    Raises:
        HostError: A file cannot be read.
    """
    try:
        with _collecting_no_garbage():
            return _audit(results, is_void=is_void, final_members=final_members, expect=expect)
    except OSError as error:
        message = f"{error.filename or results.root}: cannot be read ({error.strerror}); check its permissions"
        raise HostError(message) from error


@contextmanager
def _collecting_no_garbage() -> Generator[None]:
    """Look for no cycles meanwhile: there are none, and each search goes through all that the seal lists."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _audit(
    results: Results,
    *,
    is_void: Callable[[Mapping[str, object]], bool],
    final_members: Collection[str],
    expect: str | None,
) -> AuditReport:
    problems = Problems()
    try:
        sweep = read_sweep(results)
    except (FileNotFoundError, IntegrityError) as error:
        seal = _read_seal(results, problems, expect=expect)
        problems.add(ProblemKind.SWEEP_UNREADABLE, results.sweep_json.name, str(error))
        return AuditReport(
            sweep=None,
            sealed=seal is not None,
            seal_digest=None if seal is None else seal.digest,
            n_rows=None,
            n_attempts=None,
            n_planned=None,
            n_with_rows=None,
            n_counting=None,
            missing=(),
            problems=tuple(problems.kept),
            counts=dict(problems.counts),
        )
    proof = None
    if len(sweep.plan_keys) >= _MIN_PROVEN_TRIALS:
        proof = prove(results, sweep, is_void=is_void, final_members=final_members, expect=expect)
    if proof is not None:
        return _report_whole(sweep, proof)
    seal = _read_seal(results, problems, expect=expect)
    if seal is not None and seal.sweep != sweep.sweep:
        problems.add(ProblemKind.SEAL_CHANGED, results.seal_json.name, f"seals sweep {seal.sweep!r}")
    journal = JournalAudit(results, sweep, seal, is_void=is_void, final_members=final_members).run()
    missing = _finish(results, journal, sweep, seal)
    problems.extend(journal.problems)
    return AuditReport(
        sweep=sweep.sweep,
        sealed=seal is not None,
        seal_digest=None if seal is None else seal.digest,
        n_rows=journal.n_rows,
        n_attempts=journal.rows.n_attempts,
        n_planned=len(sweep.plan_keys),
        n_with_rows=len(journal.rows.with_rows),
        n_counting=len(journal.rows.counting),
        missing=missing,
        problems=tuple(problems.kept),
        counts=dict(problems.counts),
    )


def _report_whole(sweep: SweepFile, proof: Proof) -> AuditReport:
    n_planned = len(sweep.plan_keys)
    return AuditReport(
        sweep=sweep.sweep,
        sealed=True,
        seal_digest=proof.seal_digest,
        n_rows=proof.n_rows,
        n_attempts=proof.n_attempts,
        n_planned=n_planned,
        n_with_rows=n_planned,
        n_counting=proof.n_counting,
        missing=(),
        problems=(),
        counts={},
    )


def _finish(results: Results, journal: JournalAudit, sweep: SweepFile, seal: Seal | None) -> tuple[str, ...]:
    """Check what the rows do not tell; return the keys of planned trials without rows."""
    if (
        seal is not None
        and seal.sweep_json != sweep.digest
        and ProblemKind.SWEEP_CHANGED not in journal.problems.counts
    ):
        # The chain is a second witness for the file: where it agrees, the seal is at fault.
        what = "its digest of sweep.json is not the chain's"
        journal.problems.add(ProblemKind.SEAL_CHANGED, results.seal_json.name, what)
    journal.check_unrecorded()
    missing = tuple(key for key in sweep.plan_keys if key not in journal.rows.with_rows)
    for key in missing:
        what = f"{key!r} is planned and has no rows"
        journal.problems.add(ProblemKind.TRIAL_WITHOUT_ROWS, results.results_jsonl.name, what)
    return missing


def _read_seal(results: Results, problems: Problems, *, expect: str | None) -> Seal | None:
    name = results.seal_json.name
    try:
        seal = read_seal(results)
    except IntegrityError as error:
        problems.add(ProblemKind.SEAL_UNREADABLE, name, str(error))
        return None
    if expect is not None and seal is None:
        problems.add(ProblemKind.SEAL_MISSING, name, f"there is none, and {expect} is expected")
    elif expect is not None and seal is not None and seal.digest != expect.lower():
        problems.add(ProblemKind.SEAL_CHANGED, name, f"its digest is {seal.digest}, and {expect} is expected")
    return seal
