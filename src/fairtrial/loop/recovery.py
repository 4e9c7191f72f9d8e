"""What it costs an agent to find out what became of its publication and to bring it home, by really doing it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.stage import Stage
from fairtrial.loop.work import Traffic, step_kind, traffic
from fairtrial.model.loop import Manner, Motion, Step
from fairtrial.model.process import ProcessResult

__all__ = ["Recovery", "free_row", "recover", "spent"]

MOST_PUBLISHES: Final = 2
RIVAL: Final = "another writer's work is there"

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What recovery took.

    Attributes:
        recovered: The agent's own question was answered with the head that it had published, or where another
            writer's work was joined, the server was seen to hold both; None when there was nothing to recover from.
        reason: Why it was not, or why there was nothing; "" when it was.
        n_calls: Commands.
        n_publishes: Publications among them.
        n_bytes: Bytes on the wire, both directions; None where there is none.
        elapsed_ms: Time of the commands; None when one has no time.
        estimated_tokens: By the rule of step rows.
    """

    recovered: bool | None
    reason: str
    n_calls: int = 0
    n_publishes: int = 0
    n_bytes: int | None = None
    elapsed_ms: float | None = 0.0
    estimated_tokens: int = 0

    def as_fields(self, no_bytes_reason: str) -> Row:
        """The fields of a verdict row."""
        return {
            "recovered": self.recovered,
            "recovery_reason": self.reason or None,
            "recovery_calls": self.n_calls,
            "recovery_publishes": self.n_publishes,
            "recovery_bytes": self.n_bytes,
            "recovery_bytes_reason": no_bytes_reason if self.n_bytes is None else None,
            "recovery_ms": None if self.elapsed_ms is None else round(self.elapsed_ms, 3),
            "recovery_ms_reason": "a command of it has no time" if self.elapsed_ms is None else None,
            "recovery_tokens": self.estimated_tokens,
        }

    def then(self, later: "Recovery") -> "Recovery":
        """Both, one after the other: the later one says how it ended."""
        return replace(
            later,
            n_calls=self.n_calls + later.n_calls,
            n_publishes=self.n_publishes + later.n_publishes,
            n_bytes=_sum(self.n_bytes, later.n_bytes),
            elapsed_ms=_sum(self.elapsed_ms, later.elapsed_ms),
            estimated_tokens=self.estimated_tokens + later.estimated_tokens,
        )


def _sum(first: _Number | None, second: _Number | None) -> _Number | None:
    """One that is unknown leaves the sum unknown."""
    return None if first is None or second is None else first + second


def recover(stage: Stage, builder: RowBuilder, rows: list[Row], case: str, head: str, *, rival: str | None) -> Recovery:
    """Ask the server as an agent would, publish again while the work is not there, and ask again.

    Args:
        stage: Where.
        builder: Makes the rows.
        rows: Takes a row for each command.
        case: The place, and the first part of the rows' names.
        head: What was published.
        rival: The head of another writer; once that is found there, publishing again is of no use: it must be joined.
    """
    before = traffic(stage)
    own: list[Row] = []
    n_publishes, reason = 0, ""
    while True:
        found = _ask(stage, builder, own, case)
        if found == head:
            break
        if rival is not None and found == rival:
            reason = RIVAL
            break
        if n_publishes == MOST_PUBLISHES:
            reason = f"published {n_publishes} times more, and the server still holds {found or 'nothing'}"
            break
        n_publishes += 1
        own.extend(
            free_row(stage, builder, f"{case}.recover.publish", step, stage.run_step(step))
            for step in stage.subject.steps(Motion.PUBLISH, Manner.PLAIN, stage.places[case])
        )
    rows.extend(own)
    return spent(stage, own, before, recovered=not reason, reason=reason, n_publishes=n_publishes)


def spent(
    stage: Stage, own: Sequence[Row], before: Traffic | None, *, recovered: bool, reason: str, n_publishes: int
) -> Recovery:
    """What these commands took.

    Args:
        stage: Where.
        own: Their rows.
        before: What the wire had seen when the first began; None where none stands.
        recovered: How they ended.
        reason: Why not.
        n_publishes: Publications among them.
    """
    after = traffic(stage)
    n_bytes = None
    if before is not None and after is not None:
        n_bytes = after.up_bytes - before.up_bytes + after.down_bytes - before.down_bytes
    times = [row["elapsed_ms"] for row in own]
    return Recovery(
        recovered=recovered,
        reason=reason,
        n_calls=len(own),
        n_publishes=n_publishes,
        n_bytes=n_bytes,
        elapsed_ms=None if None in times else sum(each for each in times if isinstance(each, float)),
        estimated_tokens=sum(each for row in own if isinstance(each := row["estimated_tokens"], int)),
    )


def _ask(stage: Stage, builder: RowBuilder, rows: list[Row], case: str) -> str | None:
    """Ask as an agent would where the branch is; the head that the server told of."""
    place = stage.places[case]
    result: ProcessResult | None = None
    for step in stage.subject.reconcile(place):
        result = stage.run_step(step)
        rows.append(free_row(stage, builder, f"{case}.recover.ask", step, result))
    return None if result is None else stage.subject.reconciled_head(place, result)


def free_row(stage: Stage, builder: RowBuilder, operation: str, step: Step, result: ProcessResult) -> Row:
    """The row of a command that may end as it likes: its ending is a result. Only one that never ran has failed."""
    row = builder.step(step.row_name(operation), step_kind(stage, step), stage.shown(step.argv), (), result)
    ran = result.returncode is not None
    return row | {"returncode": 0 if ran else 1, "transcript_line": len(stage.transcript) - 1}
