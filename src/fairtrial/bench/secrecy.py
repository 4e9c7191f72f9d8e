"""What a task means to keep from its agents: a path that is hidden must have been there.

Only the tree at the commit where work begins is looked at; what is brought into it besides is `task_file`'s.
"""

from collections.abc import Sequence
from pathlib import Path

from fairtrial.errors import UsageError
from fairtrial.host.git import git
from fairtrial.model.bench import Task

__all__ = ["require_secrecy"]


def require_secrecy(tasks: Sequence[Task]) -> None:
    """Refuse a task that does not keep from its agents what it means to.

    Raises:
        UsageError: It hides a path that its tree does not have.
        HostError: git cannot read a repository.
    """
    for task in tasks:
        listed = _list_tree(task)
        for hidden in task.hidden:
            if not any(_lies_in(path, hidden) for path in listed):
                raise UsageError(
                    f"task {task.id}: it hides {hidden!r}, which the tree of {task.ref} does not have, so that nothing"
                    " is hidden: give the path as it is there (`hidden`), or leave it out"
                )


def _list_tree(task: Task) -> list[str]:
    """The paths of a task's tree."""
    listed = git(["ls-tree", "-r", "-z", "--name-only", "--full-tree", task.commit], cwd=Path(task.repository))
    return listed.decode(errors="surrogateescape").split("\0")[:-1]


def _lies_in(path: str, place: str) -> bool:
    return f"{path}/".startswith(f"{place}/")
