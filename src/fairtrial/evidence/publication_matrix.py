"""The publication-honesty matrix: for each tool, transport and fault what was claimed, seen, true, and what it cost.

Runs that agree make one line; where they do not, each word is shown with how often it was found. Nothing is averaged
over unlike facts: a cost is a median over the runs that had something to recover from, 0 where none had.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from fairtrial.evidence.rows import Row, flag, measured, text, whole
from fairtrial.stats.summary import median

__all__ = ["CaseFacts", "MatrixLine", "matrix_lines", "read_cases"]

NO_EVIDENCE: Final = "no evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFacts:
    """One publication under one fault case, as a total row holds it.

    Attributes:
        fault_case: The case.
        connection_reuse: Its factor; "" where the transport has none.
        valid: The fault happened exactly as planned.
        client_claim: What the client said; None when that is not known.
        delivery: What the wire saw; None without a wire.
        server_truth: What the server holds; None when that is not known.
        fork_heads: Open heads of others that the branch has beside what was published; None when that is not known.
        verdict: How they stand to each other; None when the row is not valid.
        retry_safe: A blind retry did no harm.
        local_work_preserved: The client still has its work.
        server_integrity: The store is sound.
        recovered: Recovery ended with the work on the server; None when there was nothing to recover from.
        server_repair: What was typed at the server because the client could not recover alone, or None.
        recovery_calls: Commands that recovery took.
        recovery_bytes: Bytes on the wire that it took, or None.
        recovery_ms: Its time, or None.
        recovery_tokens: Estimated tokens that it took.
    """

    fault_case: str
    connection_reuse: str
    valid: bool
    client_claim: str | None
    delivery: str | None
    server_truth: str | None
    fork_heads: int | None
    verdict: str | None
    retry_safe: bool | None
    local_work_preserved: bool | None
    server_integrity: bool | None
    recovered: bool | None
    server_repair: str | None
    recovery_calls: float | None
    recovery_bytes: float | None
    recovery_ms: float | None
    recovery_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixLine:
    """One case of one subject in one setting, over its runs.

    Attributes:
        fault_case: The case.
        connection_reuse: Its factor.
        n_runs: Runs that played it.
        n_invalid: Those that are no evidence; the rest of the line is about the others.
        client_claim: What was claimed, with counts where runs differ; None when nothing is known.
        delivery: Likewise what the wire saw.
        server_truth: Likewise what the server holds.
        fork_heads: The most open heads of others that a run left beside it; None when no run knows.
        verdict: Likewise the verdict.
        retry_safe: False when a single retry did harm; None when one is unknown.
        local_work_preserved: Likewise.
        server_integrity: Likewise.
        recovered: False when a single recovery failed; None when none was needed.
        server_repair: What was typed at the server, with counts where runs differ; None when nothing was.
        recovery_calls: Median over the runs that had something to recover from; 0 when none had.
        recovery_bytes: Likewise, or None.
        recovery_ms: Likewise, or None.
        recovery_tokens: Likewise.
    """

    fault_case: str
    connection_reuse: str
    n_runs: int
    n_invalid: int
    client_claim: str | None
    delivery: str | None
    server_truth: str | None
    fork_heads: int | None
    verdict: str | None
    retry_safe: bool | None
    local_work_preserved: bool | None
    server_integrity: bool | None
    recovered: bool | None
    server_repair: str | None
    recovery_calls: float | None
    recovery_bytes: float | None
    recovery_ms: float | None
    recovery_tokens: float | None


def read_cases(total: Row) -> tuple[CaseFacts, ...]:
    """Read the cases of a total row; none in rows of other scenarios."""
    found = total.get("publications")
    if not isinstance(found, list):
        return ()
    return tuple(_case(cast("Row", each)) for each in cast("list[object]", found) if isinstance(each, dict))


def _case(row: Row) -> CaseFacts:
    return CaseFacts(
        fault_case=text(row.get("fault_case")) or "",
        connection_reuse=text(row.get("connection_reuse")) or "",
        valid=row.get("valid") is True,
        client_claim=text(row.get("client_claim")),
        delivery=text(row.get("delivery")),
        server_truth=text(row.get("server_truth")),
        fork_heads=_count(row.get("fork_heads")),
        verdict=text(row.get("verdict")),
        retry_safe=flag(row.get("retry_safe")),
        local_work_preserved=flag(row.get("local_work_preserved")),
        server_integrity=flag(row.get("server_integrity")),
        recovered=flag(row.get("recovered")),
        server_repair=_repair(row.get("server_repair")),
        recovery_calls=whole(row.get("recovery_calls")),
        recovery_bytes=measured(row.get("recovery_bytes")),
        recovery_ms=measured(row.get("recovery_ms")),
        recovery_tokens=measured(row.get("recovery_tokens")),
    )


def _count(heads: object) -> int | None:
    """How many there are."""
    return len(cast("list[object]", heads)) if isinstance(heads, list) else None


def _repair(commands: object) -> str | None:
    """The commands as one line."""
    return "; ".join(str(each) for each in cast("list[object]", commands)) if isinstance(commands, list) else None


def matrix_lines(runs: Iterable[Sequence[CaseFacts]]) -> tuple[MatrixLine, ...]:
    """Put the runs of one subject in one setting together, a line a case, in the order in which cases were played."""
    by_case: dict[str, list[CaseFacts]] = {}
    for cases in runs:
        for case in cases:
            by_case.setdefault(case.fault_case, []).append(case)
    return tuple(_line(members) for members in by_case.values())


def _line(members: Sequence[CaseFacts]) -> MatrixLine:
    valid = [case for case in members if case.valid]
    recovering = [case for case in valid if case.recovered is not None]
    costing = recovering or valid  # where no run had anything to recover from, it cost each of them nothing
    return MatrixLine(
        fault_case=members[0].fault_case,
        connection_reuse=members[0].connection_reuse,
        n_runs=len(members),
        n_invalid=len(members) - len(valid),
        client_claim=_words(case.client_claim for case in valid),
        delivery=_words(case.delivery for case in valid),
        server_truth=_words(case.server_truth for case in valid),
        fork_heads=max((case.fork_heads for case in valid if case.fork_heads is not None), default=None),
        verdict=_words(case.verdict for case in valid) if valid else NO_EVIDENCE,
        retry_safe=_all(case.retry_safe for case in valid),
        local_work_preserved=_all(case.local_work_preserved for case in valid),
        server_integrity=_all(case.server_integrity for case in valid),
        recovered=all(case.recovered for case in recovering) if recovering else None,
        server_repair=_words(case.server_repair for case in valid),
        recovery_calls=median(case.recovery_calls for case in costing),
        recovery_bytes=median(case.recovery_bytes for case in costing),
        recovery_ms=median(case.recovery_ms for case in costing),
        recovery_tokens=median(case.recovery_tokens for case in costing),
    )


def _words(found: Iterable[str | None]) -> str | None:
    """The one word that all runs have, or each with its count."""
    counts = Counter(word for word in found if word is not None)
    if len(counts) <= 1:
        return next(iter(counts), None)
    return ", ".join(f"{word} {n}" for word, n in sorted(counts.items()))


def _all(answers: Iterable[bool | None]) -> bool | None:
    """One false answer decides; one missing answer leaves the rest unproven."""
    found = set(answers)
    if False in found:
        return False
    return True if found == {True} else None
