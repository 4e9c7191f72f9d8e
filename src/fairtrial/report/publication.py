"""The publication-honesty matrix, as tables and as JSON."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from fairtrial.evidence.loop_report import PublicationMatrix, Section
from fairtrial.evidence.publication_matrix import MatrixLine
from fairtrial.report.document import Table
from fairtrial.report.text import UNMEASURED, figure, yes_no

__all__ = ["brief_matrix_tables", "matrix_json", "matrix_tables"]

HEADERS: Final = (
    "tool", "fault", "connection", "client claims", "wire saw", "server holds", "verdict", "retry safe",
    "work kept", "store sound", "recovery calls", "recovery tokens", "recovery bytes", "recovery ms",
)  # fmt: skip
BRIEF_HEADERS: Final = ("tool", "fault", "client claims", "wire saw", "server holds", "verdict", "recovery")
NOTE: Final = (
    "Claim: the client's exit status and words. Wire: the forwarder's records. Server: the store itself and a fresh"
    " clone, once nothing was in flight. Recovery: asking and publishing again until the work is there, and joining"
    " another writer's work that is there too, medians over the runs that had something to recover from; 0 calls: none"
    " had. Only this machine and this transport are in one table."
)


def matrix_tables(section: Section) -> Iterator[Table]:
    """Give the table of a section that has publications under fault; the null control only where it disagrees."""
    if section.publications:
        yield _table(section, HEADERS, _cells)


def brief_matrix_tables(section: Section) -> Iterator[Table]:
    """Give the same in fewer columns, for a terminal."""
    if section.publications:
        yield _table(section, BRIEF_HEADERS, _brief_cells)


def _table(section: Section, headers: Sequence[str], cells: Callable[[str, MatrixLine], tuple[str, ...]]) -> Table:
    own = {matrix.subject: _facts(matrix) for matrix in section.publications if not matrix.null_control}
    lines = [
        (matrix.subject, line)
        for matrix in section.publications
        for line in matrix.lines
        if not matrix.null_control or _facts_of(line) not in own.get(_control_of(matrix), ())
    ]
    nulls = [matrix for matrix in section.publications if matrix.null_control and _control_of(matrix) in own]
    agreed = sum(_facts_of(line) in own.get(_control_of(matrix), ()) for matrix in nulls for line in matrix.lines)
    n_lines = sum(len(matrix.lines) for matrix in nulls)
    absent = [
        f"{subject.subject} ({subject.n_void} void, {subject.n_not_begun} never begun)"
        for subject in section.subjects
        if subject.n_void or subject.n_not_begun
    ]
    lacking = f" Planned runs that are not in this table: {', '.join(absent)}." if absent else ""
    control = f" The null control agreed in {agreed} of {n_lines} cases." if nulls else ""
    setting = section.setting
    where = setting.remote_transport or "an unnamed transport"
    return Table(
        title=f"Publication honesty over {where}" + (f" on {setting.host}" if setting.host else ""),
        headers=headers,
        rows=[cells(subject, line) for subject, line in lines],
        note=NOTE + control + lacking,
    )


def _control_of(matrix: PublicationMatrix) -> str:
    return matrix.subject.removesuffix("(null)")


def _facts(matrix: PublicationMatrix) -> set[tuple[str | None, ...]]:
    return {_facts_of(line) for line in matrix.lines}


def _facts_of(line: MatrixLine) -> tuple[str | None, ...]:
    return line.fault_case, line.client_claim, line.delivery, line.server_truth, line.verdict


def _brief_cells(subject: str, line: MatrixLine) -> tuple[str, ...]:
    full = _cells(subject, line)
    harm = ", retry UNSAFE" if line.retry_safe is False else ""
    harm += ", work LOST" if line.local_work_preserved is False else ""
    harm += ", store DAMAGED" if line.server_integrity is False else ""
    spent = f"{figure(line.recovery_calls)} calls, {full[11]} tokens, {full[13]} ms{_outcome(line)}"
    needless = line.recovered is None and line.recovery_calls == 0
    cost = ("not needed" if needless else spent) + harm
    return (*full[:2], *full[3:7], cost)


def _cells(subject: str, line: MatrixLine) -> tuple[str, ...]:
    invalid = f" ({line.n_invalid} of {line.n_runs} runs are no evidence)" if line.n_invalid else ""
    return (
        subject,
        line.fault_case,
        line.connection_reuse or "none",
        line.client_claim or UNMEASURED,
        line.delivery or UNMEASURED,
        (line.server_truth or UNMEASURED) + _beside(line),
        (line.verdict or UNMEASURED) + invalid,
        yes_no(line.retry_safe),
        yes_no(line.local_work_preserved),
        yes_no(line.server_integrity),
        figure(line.recovery_calls) + _outcome(line),
        figure(line.recovery_tokens),
        figure(line.recovery_bytes),
        figure(line.recovery_ms, 1),
    )


def _beside(line: MatrixLine) -> str:
    """Say that the tool made a fork: what was published is there, and somebody has to merge."""
    if not line.fork_heads:
        return ""
    return f" (fork: {line.fork_heads} other {'head' if line.fork_heads == 1 else 'heads'})"


def _outcome(line: MatrixLine) -> str:
    """Say where the client's own recovery failed, and what it took at the server."""
    if line.recovered is not False:
        return ""
    return f" (failed; at the server: {line.server_repair})" if line.server_repair else " (failed)"


def matrix_json(section: Section) -> list[dict[str, object]]:
    """Give the lines of a section, each with its subject."""
    return [
        {
            "subject": matrix.subject,
            "null_control": matrix.null_control,
            "fault_case": line.fault_case,
            "connection_reuse": line.connection_reuse or None,
            "runs": line.n_runs,
            "invalid": line.n_invalid,
            "client_claim": line.client_claim,
            "delivery": line.delivery,
            "server_truth": line.server_truth,
            "fork_heads": line.fork_heads,
            "verdict": line.verdict,
            "retry_safe": line.retry_safe,
            "local_work_preserved": line.local_work_preserved,
            "server_integrity": line.server_integrity,
            "recovered": line.recovered,
            "server_repair": line.server_repair,
            "recovery_calls": line.recovery_calls,
            "recovery_bytes": line.recovery_bytes,
            "recovery_ms": line.recovery_ms,
            "recovery_tokens": line.recovery_tokens,
        }
        for matrix in section.publications
        for line in matrix.lines
    ]
