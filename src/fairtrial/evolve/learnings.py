"""The queue of learnings: what people and earlier generations found out about a skill. Pure, but for reading a file."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.bench.blobs import read_stable
from fairtrial.evidence.rows import text
from fairtrial.store.strict_json import MalformedJsonError, parse_object

__all__ = ["MAX_LEARNINGS", "Learning", "LearningQueue", "parse_learnings", "read_learnings"]

MAX_LEARNINGS: Final = 40
MAX_FILE_BYTES: Final = 4 << 20
MAX_TEXT_CHARACTERS: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """One thing that was learnt.

    Attributes:
        skill: The skill that it is about.
        text: What was learnt.
        task: The task that it was learnt on, or None.
    """

    skill: str
    text: str
    task: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningQueue:
    """The learnings that a proposer is given.

    Attributes:
        learnings: The most recent ones, oldest first.
        n_malformed: Lines that are no learning.
        n_left_out: Learnings about other skills, or of tasks that may not be learnt from.
    """

    learnings: tuple[Learning, ...]
    n_malformed: int
    n_left_out: int


def parse_learnings(lines: Iterable[bytes], *, skills: Collection[str], hidden_tasks: Collection[str]) -> LearningQueue:
    """Take the most recent learnings about some skills.

    Args:
        lines: One JSON object a line, oldest first: `skill` and `text`, optionally `task`.
        skills: Skills that a candidate may change.
        hidden_tasks: Tasks of which nothing may be learnt; a learning whose text names one is left out as well.
    """
    found: list[Learning] = []
    n_malformed = n_left_out = 0
    for line in lines:
        if not line.strip():
            continue
        learning = _parse(line)
        if learning is None:
            n_malformed += 1
        elif learning.skill not in skills or _tells_of(learning, hidden_tasks):
            n_left_out += 1
        else:
            found.append(learning)
    return LearningQueue(learnings=tuple(found[-MAX_LEARNINGS:]), n_malformed=n_malformed, n_left_out=n_left_out)


def read_learnings(path: Path | None, *, skills: Collection[str], hidden_tasks: Collection[str]) -> LearningQueue:
    """Read a file of learnings; none for None.

    Raises:
        UsageError: It is no plain file, or too large.
    """
    lines: Sequence[bytes] = ()
    if path is not None:
        lines = read_stable(path.parent, path.name, max_bytes=MAX_FILE_BYTES).splitlines()
    return parse_learnings(lines, skills=skills, hidden_tasks=hidden_tasks)


def _tells_of(learning: Learning, hidden_tasks: Collection[str]) -> bool:
    return any(task == learning.task or task in learning.text for task in hidden_tasks)


def _parse(line: bytes) -> Learning | None:
    try:
        value = parse_object(line)
    except MalformedJsonError:
        return None
    skill, said, task = text(value.get("skill")), text(value.get("text")), text(value.get("task"))
    if not skill or not said or (task is None and value.get("task") is not None):
        return None
    return Learning(skill=skill, text=said[:MAX_TEXT_CHARACTERS], task=task)
