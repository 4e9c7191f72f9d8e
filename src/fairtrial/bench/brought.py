"""What a task or its tree has of a context: an index made elsewhere, or a trace for arms that go without it."""

from collections.abc import Sequence
from pathlib import Path

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
        UsageError: One of the context's own names is in the tree of a task, and not hidden.
        HostError: git cannot read a repository.
    """
    without = next((arm.name for arm in arms if arm.context != name), None)
    if without is None or not settings:
        return
    for task in tasks:
        argv = ["ls-tree", "-r", "-z", "--name-only", "--full-tree", task.commit]
        for listed in git(argv, cwd=Path(task.repository)).split(b"\0"):
            path = listed.decode(errors="surrogateescape")
            parts = path.split("/")
            own = next((place for place, part in enumerate(parts, start=1) if part in settings), None)
            if own is not None and not any(f"{path}/".startswith(f"{hidden}/") for hidden in task.hidden):
                place = "/".join(parts[:own])
                raise UsageError(
                    f"task {task.id}: its tree has {place!a}, which belongs to the context {name}, and arm {without}"
                    f" goes without that: take it out of the tree (the task's `hidden`)"
                )
