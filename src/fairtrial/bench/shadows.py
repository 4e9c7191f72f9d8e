"""Skills of a task's tree that stand in the way of those that an arm is given.

Where a skill of one name is in both places, which of them an agent loads is its own affair, and the wire shows the
name alone: the row would tell of a treatment that may never have been there.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from fairtrial.errors import UsageError
from fairtrial.host.git import git
from fairtrial.model.bench import Arm, Task

__all__ = ["refuse_shadowed_skills"]


def refuse_shadowed_skills(tasks: Sequence[Task], arms: Sequence[Arm], places: Mapping[str, Sequence[str]]) -> None:
    """Refuse a placed skill beside another of its name in the tree; the same bytes in both places do no harm.

    Args:
        tasks: The tasks.
        arms: The arms.
        places: Where in a tree each agent looks for skills, by the agent's name; empty for nowhere.

    Raises:
        UsageError: There is one.
        HostError: git cannot read a repository.
    """
    given = [(arm, skill) for arm in arms for skill in arm.skills]
    for task, (arm, skill) in product(tasks, given):
        for place in places[arm.agent]:
            found = _in_tree(task, f"{place}/{skill.name}")
            if "SKILL.md" in found and found != {blob.name: blob.sha256 for blob in skill.files}:
                raise UsageError(
                    f"task {task.id} has a skill {skill.name} of its own in its tree, {place}/{skill.name},"
                    f" which the agent of arm {arm.name} may load in place of the one that it is given: take it"
                    " out of the tree (the task's `hidden`), place the other under another name, or not at all"
                )


def _in_tree(task: Task, place: str) -> dict[str, str]:
    """SHA-256 of each file below a place of a task's tree, by its path there; without what agents never see."""
    repository = Path(task.repository)
    listed = git(["ls-tree", "-r", "-z", "--full-tree", task.commit, "--", place], cwd=repository)
    found: dict[str, str] = {}
    for entry in listed.split(b"\0")[:-1]:
        about, _, name = entry.partition(b"\t")
        _, kind, blob = about.decode().split(" ")
        path = name.decode(errors="surrogateescape")
        if kind == "blob" and not any(f"{path}/".startswith(f"{hidden}/") for hidden in task.hidden):
            content = git(["cat-file", "blob", blob], cwd=repository)
            found[path.removeprefix(f"{place}/")] = hashlib.sha256(content).hexdigest()
    return found
