"""What a task or its tree has of a context: an index made elsewhere, or a trace for arms that go without it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fairtrial.bench.environment import is_read_unasked
from fairtrial.errors import UsageError
from fairtrial.host.git import git
from fairtrial.model.bench import Arm, Task

__all__ = ["refuse_brought", "refuse_traces"]


def refuse_brought(name: str, settings: Sequence[str], tasks: Sequence[Task]) -> None:
    """Refuse what a task would put into every arm's tree of a context: its own settings, or an index made elsewhere.

    Raises:
        UsageError: A copy or a dependency comes from or goes to one of the context's own names.
    """
    for task in tasks:
        for asset in (*task.copies, *task.dependencies):
            for path in (asset.source, asset.target):
                if own := sorted({*settings} & {*path.split("/")}):
                    raise UsageError(
                        f"task {task.id}: {path} is put into the tree, and {own[0]!r} belongs to the context {name},"
                        " which every trial gets from the sweep; leave it out of the task"
                    )


def refuse_traces(name: str, settings: Sequence[str], tasks: Sequence[Task], arms: Sequence[Arm]) -> None:
    """Refuse a tree that tells of a context where an arm of the sweep goes without it.

    Raises:
        UsageError: One of the context's own names is in the tree of a task, or in what agents read there unasked, and
            not hidden.
        HostError: git cannot read a repository.
    """
    without = next((arm.name for arm in arms if arm.context != name), None)
    if without is None or not settings:
        return
    for task in tasks:
        for path, what in (*_own_places(task, settings), *_guidance(task, settings)):
            if not any(f"{path}/".startswith(f"{hidden}/") for hidden in task.hidden):
                raise UsageError(
                    f"task {task.id}: its tree has {path!a}, which {what} the context {name}, and arm {without}"
                    f" goes without that: take it out of the tree (the task's `hidden`)"
                )


def _own_places(task: Task, settings: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Files and directories of the context's own."""
    for path in _paths(task, "ls-tree", "-r", "-z", "--name-only", "--full-tree", task.commit):
        parts = path.split("/")
        for place, part in enumerate(parts, start=1):
            if part in settings:
                yield "/".join(parts[:place]), "belongs to"


def _guidance(task: Task, settings: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Files that agents read unasked and that name something of the context's own."""
    words = [word for each in settings for word in ("-e", each)]
    for found in _paths(task, "grep", "-z", "-l", "-F", "--full-name", *words, task.commit):
        path = found.partition(":")[2]
        if is_read_unasked(path):
            yield path, "tells of"


def _paths(task: Task, *arguments: str) -> Iterator[str]:
    """What git lists, by names; `grep` ends with 1 where it finds nothing."""
    for listed in git(arguments, cwd=Path(task.repository), accept=frozenset({0, 1})).split(b"\0"):
        yield listed.decode(errors="surrogateescape")
