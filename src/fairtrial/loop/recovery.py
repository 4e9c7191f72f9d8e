"""What it costs an agent to find out what became of its publication and to bring it home, by really doing it."""

from dataclasses import dataclass
from typing import Final

from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.stage import Stage
from fairtrial.loop.work import step_kind, traffic
from fairtrial.model.loop import Manner, Motion, Step
from fairtrial.model.process import ProcessResult

__all__ = ["Recovery", "free_row", "recover"]

MOST_PUBLISHES: Final = 2
RIVAL: Final = "another writer's work is there: to join it is a task of its own, and was not tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What recovery took.

    Attributes:
        recovered: The agent's own question was answered with the head that it had published; None when there was
            nothing to recover from, or when it was not tried.
        reason: Why it was not, or why there was nothing; "" when it was.
        n_calls: Commands.
        n_publishes: Publications among them.
        n_bytes: Bytes on the wire, both directions; None where there is none.
        elapsed_ms: Time of the commands; None when one has no time.
        estimated_tokens: By the rule of step rows.
        tried: False where it would have been a task of its own: then nothing is known of what it takes.
    """

    recovered: bool | None
    reason: str
    n_calls: int = 0
    n_publishes: int = 0
    n_bytes: int | None = None
    elapsed_ms: float | None = 0.0
    estimated_tokens: int = 0
    tried: bool = True

    def as_fields(self, no_bytes_reason: str) -> Row:
        """The fields of a verdict row."""
        if not self.tried:
            unknown = ("recovered", "recovery_calls", "recovery_publishes", "recovery_tokens")
            return {
                **dict.fromkeys(unknown),
                "recovery_reason": self.reason,
                "recovery_bytes": None,
                "recovery_bytes_reason": self.reason,
                "recovery_ms": None,
                "recovery_ms_reason": self.reason,
            }
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


def recover(stage: Stage, builder: RowBuilder, rows: list[Row], case: str, head: str, *, rival: str | None) -> Recovery:
    """Ask the server as an agent would, publish again while the work is not there, and ask again.

    Args:
        stage: Where.
        builder: Makes the rows.
        rows: Takes a row for each command.
        case: The place, and the first part of the rows' names.
        head: What was published.
        rival: The head of another writer; once that is found there, publishing again would be no recovery.
    """
    before = traffic(stage)
    own: list[Row] = []
    n_publishes, reason, tried = 0, "", True
    recovered: bool | None = False
    while True:
        found = _ask(stage, builder, own, case)
        if found == head:
            recovered = True
            break
        if rival is not None and found == rival:
            reason, recovered, tried = RIVAL, None, False
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
        tried=tried,
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
