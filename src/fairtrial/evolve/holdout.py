"""Uses of holdout tasks, noted beside the task file: a test that is asked twice is worth less the second time.

A use is noted before the final gate spends anything, so that none can be forgotten; the same gate taken up again after
a kill is no new use, unless it has to measure everything once more.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fairtrial.errors import HostError, IntegrityError
from fairtrial.host.files import write_durably
from fairtrial.host.lock import acquire_lock

__all__ = ["USE_SCHEMA", "HoldoutUse", "count_uses", "note_use", "read_uses", "uses_path"]

USE_SCHEMA: Final = "holdout-use/1"
LOCK_WAIT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldoutUse:
    """One final gate.

    Attributes:
        schema: `holdout-use/1`.
        used_utc: When it began.
        evolution: The evolution, and
        generation: the generation whose candidate it judged.
        candidate_overlay_digest: That candidate.
        repeat: How often it asked them before, in vain: see decision 0015.
        tasks: Digest of the oracle of each holdout task that it used, by the task's id.
    """

    schema: str
    used_utc: str
    evolution: str
    generation: int
    candidate_overlay_digest: str
    tasks: dict[str, str]
    repeat: int = 0

    @property
    def gate(self) -> tuple[str, int, int]:
        """What makes it a use of its own."""
        return self.evolution, self.generation, self.repeat


_USE: Final = TypeAdapter(HoldoutUse)


def uses_path(tasks: Path) -> Path:
    """Where the uses of a task file's holdout tasks are noted: beside it."""
    return tasks.with_name(f"{tasks.stem}.holdout.jsonl")


def read_uses(tasks: Path) -> tuple[HoldoutUse, ...]:
    """Read the uses so far, in order.

    Raises:
        IntegrityError: A line is not what was written.
        HostError: The file cannot be read.
    """
    path = uses_path(tasks)
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    except OSError as problem:
        raise HostError(f"{path}: cannot be read ({problem.strerror}); make it readable") from problem
    uses: list[HoldoutUse] = []
    for number, line in enumerate(lines, start=1):
        try:
            use = _USE.validate_json(line, strict=True, extra="forbid")
        except ValidationError as problem:
            detail = problem.errors(include_url=False)[0]["msg"]
            raise IntegrityError(f"{path}:{number}: is not what was written ({detail}); restore it") from problem
        if use.schema != USE_SCHEMA:
            raise IntegrityError(
                f"{path}:{number}: schema {use.schema!r:.80} is not known here (expected {USE_SCHEMA})"
            )
        uses.append(use)
    return tuple(uses)


def count_uses(uses: Collection[HoldoutUse], tasks: Collection[str]) -> dict[str, int]:
    """How often each task has been used; pure."""
    counts = Counter(task for use in uses for task in use.tasks)
    return {task: counts[task] for task in sorted(tasks)}


def note_use(tasks: Path, use: HoldoutUse) -> dict[str, int]:
    """Note a use durably, once for each repeat of a gate; return how often each of its tasks is used by now.

    Raises:
        IntegrityError: What is noted so far is damaged.
        HostError: It cannot be written: nothing may be spent then.
    """
    path = uses_path(tasks)
    with acquire_lock(tasks, wait_s=LOCK_WAIT_S):
        uses = read_uses(tasks)
        if not any(each.gate == use.gate for each in uses):
            uses = (*uses, use)
            data = b"".join(_line(asdict(each)) for each in uses)
            try:
                write_durably(path, data, mode=0o644)
            except OSError as problem:
                message = f"{path}: a use of the holdout tasks cannot be noted ({problem.strerror}); make it writable"
                raise HostError(message) from problem
        return count_uses(uses, use.tasks)


def _line(use: Mapping[str, object]) -> bytes:
    return json.dumps(use, sort_keys=True, separators=(",", ":")).encode() + b"\n"
