"""Whether this host can run tasks: their set-up and authored check on the untouched base, in the sandbox."""

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.judge import check_base
from fairtrial.bench.node import BLOBS, Node
from fairtrial.bench.secrecy import require_secrecy
from fairtrial.bench.tasks import bind_task, read_task_file
from fairtrial.errors import HostError, UsageError
from fairtrial.host.limits import probe_limits
from fairtrial.host.preflight import require_sandboxes
from fairtrial.host.slot import open_slot
from fairtrial.judging.values import CheckVerdict
from fairtrial.model.bench import Task
from fairtrial.model.sandbox import Limit
from fairtrial.sweep.bench_inputs import private_blobs
from fairtrial.sweep.scratch import SCRATCH_MODE

__all__ = ["SandboxLook", "TaskLook", "look_at_sandboxes", "look_at_tasks", "missing_program"]

NOT_FOUND: Final = 127
CHECK_S: Final = 600.0
_MISSING: Final = (
    re.compile(r"(?:^|: )([^\s:]+): (?:command )?not found", re.MULTILINE),
    re.compile(r"No module named '?([\w.]+)'?"),
    re.compile(r"([^\s:]+): No such file or directory"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLook:
    """What was seen of one task.

    Attributes:
        task: Its id.
        commit: The base.
        problem: Why it cannot run here; None when it can.
        passes: Its authored check passes on the base; None when it could not be tried.
        missing: The program that is missing, as far as that can be told.
        detail: The end of what the check printed.
    """

    task: str
    commit: str
    problem: str | None
    passes: bool | None
    missing: str | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLook:
    """What sandboxes are here.

    Attributes:
        mechanisms: What enforces each limit.
        has_judge_uid: An oracle with `isolation: process` has another uid than what it judges.
    """

    mechanisms: Mapping[Limit, str]
    has_judge_uid: bool


def look_at_sandboxes(base: Path) -> SandboxLook:
    """Run a sandbox, and tell what it is like.

    Raises:
        HostError: A sandbox cannot be run, or a limit not be enforced.
    """
    with _node(base) as node:
        require_sandboxes(node.slot, node.enforcement)
        return SandboxLook(mechanisms=node.enforcement.mechanisms, has_judge_uid=node.slot.judge is not None)


def look_at_tasks(path: Path, base: Path) -> Iterator[TaskLook]:
    """Look at each task of a file.

    Raises:
        ConfigError: The file is wrong.
        HostError: Sandboxes cannot be run at all.
    """
    document, parsed = read_task_file(path)
    with _node(base) as node:
        for index, entry in enumerate(parsed.tasks):
            task = bind_task(document, index, entry, node.blobs)
            try:
                require_secrecy(path, (task,), node.blobs)
                verdict = check_base(node, task, node.prepare(task), timeout_s=CHECK_S)
            except (HostError, UsageError) as problem:
                yield TaskLook(
                    task=task.id, commit=task.commit, problem=str(problem), passes=None, missing=None, detail=""
                )
                continue
            yield _look(task, verdict)


def _look(task: Task, verdict: CheckVerdict) -> TaskLook:
    missing = None if verdict.passed else missing_program(verdict.output)
    stopped = verdict.returncode == NOT_FOUND
    return TaskLook(
        task=task.id,
        commit=task.commit,
        problem=f"{missing or 'a program'} is missing in the sandbox" if stopped else None,
        passes=verdict.passed,
        missing=missing,
        detail=verdict.output.strip()[-500:],
    )


def missing_program(output: str) -> str | None:
    """The first program or module that some output says is missing; pure."""
    for pattern in _MISSING:
        if match := pattern.search(output):
            return match[1]
    return None


@contextmanager
def _node(base: Path) -> Generator[Node]:
    with private_blobs(base) as blobs:
        root = blobs.root.parent
        root.chmod(SCRATCH_MODE)
        slot = open_slot(root)
        node = Node(slot=slot, enforcement=probe_limits(slot), blobs=BlobStore(root / BLOBS), n_workers=1)
        try:
            yield node
        finally:
            node.close()
