"""Whether rows may be used for a promotion: not what they say, but whether they can be believed and compared. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from fairtrial.evidence.endings import is_void
from fairtrial.evidence.rows import Row, text

__all__ = ["MAX_AGE_DAYS", "Admission"]

MAX_AGE_DAYS: Final = 90
FUTURE_TOLERANCE: Final = timedelta(minutes=5)
MUST_AGREE: Final = {
    "model": "model",
    "agent": "agent",
    "agent_version": "version of the agent",
    "sandbox_backend": "sandbox backend",
    "fairtrial": "version of fairtrial",
}
MUST_AGREE_IN_TASK: Final = {
    "oracle_digest": "oracle",
    "task_prompt_digest": "prompt",
    "setup_digest": "set-up",
    "verify_digest": "authored check",
    "task_base_sha": "base commit",
}
LIMITS: Final = frozenset({"processes", "memory", "cpu", "disk", "inodes", "files", "output", "wall"})


@dataclass(slots=True, kw_only=True)
class Admission:
    """Takes the rows of two arms one by one and says in the end what speaks against using them.

    Attributes:
        arms: The arms that are compared.
        model: The model that the comparison is about; None when it was not named.
        now: The moment of the decision.
        sealed: The rows come from a directory whose audit found nothing.
    """

    arms: tuple[str, str]
    model: str | None
    now: datetime
    sealed: bool
    _seen: dict[str, set[object]] = field(default_factory=lambda: defaultdict(set))
    _in_task: dict[tuple[str, str], set[object]] = field(default_factory=lambda: defaultdict(set))
    _flaws: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _n_rows: int = 0

    def add(self, row: Row) -> None:
        """Take one row; rows of other arms do not count."""
        if row.get("arm") not in self.arms:
            return
        self._n_rows += 1
        if is_void(row):
            return  # it is no evidence; that it is there is the gate's affair
        for name in MUST_AGREE:
            self._seen[name].add(row.get(name))
        for name in MUST_AGREE_IN_TASK:
            self._in_task[str(row.get("task")), name].add(row.get(name))
        for flaw in self._flaws_of(row):
            self._flaws[flaw] += 1

    def _flaws_of(self, row: Row) -> Iterator[str]:
        if row.get("sandboxed") is not True:
            yield "ran without a sandbox"
        enforced = row.get("limits_enforced")
        if not isinstance(enforced, dict) or LIMITS - enforced.keys():
            yield "ran with limits that were not enforced"
        if row.get("scripted_model") is not False:
            yield "spoke to a scripted model, or do not say to which"
        if row.get("controls") != "held":
            yield "belong to a task without fresh controls"
        if row.get("usage_source") != "wire":
            yield "have usage that was not counted on the wire"
        moment = _moment(text(row.get("recorded_at")))
        if moment is None:
            yield "have no time"
        elif moment > self.now + FUTURE_TOLERANCE:
            yield "are from the future"
        elif moment < self.now - timedelta(days=MAX_AGE_DAYS):
            yield f"are older than {MAX_AGE_DAYS} days"

    def reasons(self) -> tuple[str, ...]:
        """Say what speaks against using the rows; nothing when they may be used."""
        return tuple(self._reasons())

    def _reasons(self) -> Iterator[str]:
        if not self.sealed:
            yield "the rows are not sealed, or the audit found damage."
        if not self._n_rows:
            yield "there is no row of these arms."
        if self.model is not None and self._seen.get("model", set()) - {self.model}:
            others = ", ".join(sorted(str(each) for each in self._seen["model"] - {self.model}))
            yield f"rows are of another model than {self.model}: {others}."
        for name, what in MUST_AGREE.items():
            if len(self._seen.get(name, set())) > 1:
                yield f"rows differ in {what}: {', '.join(sorted(map(str, self._seen[name])))}."
        for (task, name), values in sorted(self._in_task.items()):
            if len(values) > 1:
                yield f"task {task}: rows differ in {MUST_AGREE_IN_TASK[name]}."
        for flaw, n_rows in sorted(self._flaws.items()):
            yield f"{n_rows} rows {flaw}."


def _moment(value: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value or "")
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo is not None else None
