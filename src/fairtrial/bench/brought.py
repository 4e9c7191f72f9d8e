"""What a task or its tree has of a context: an index made elsewhere, or a trace for arms that go without it."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from fairtrial.bench.environment import is_read_unasked, tells_server
from fairtrial.errors import UsageError
from fairtrial.host.git import git
from fairtrial.model.bench import Arm, Task
from fairtrial.protocols import Context

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


def refuse_traces(name: str, context: Context, tasks: Sequence[Task], arms: Sequence[Arm]) -> None:
    """Refuse a tree that tells of a context where an arm of the sweep goes without it.

    Raises:
        UsageError: One of the context's own names is in the tree of a task, or what agents read there unasked tells of
            the context, and that is not hidden.
        HostError: git cannot read a repository.
    """
    without = next((arm.name for arm in arms if arm.context != name), None)
    if without is None:
        return
    for task in tasks:
        for path, what in (*_own_places(task, context.settings), *_guidance(task, name, context)):
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


def _guidance(task: Task, name: str, context: Context) -> Iterator[tuple[str, str]]:
    """What agents read unasked and that is of the context: its own names, its tools, its server, a skill called so.

    Its name alone tells of nothing: `ctags` is a word, and a program that a tree may well speak of.
    """
    for path in _paths(task, "ls-tree", "-r", "-z", "--name-only", "--full-tree", task.commit):
        if is_read_unasked(path) and _is_skill_of(name, path):
            yield path, "tells of"
    told = _called_as(name, (*context.tools, *context.mutating))
    words = [word for each in (name, *context.settings) for word in ("-e", each)]
    for found in _paths(task, "grep", "-z", "-l", "-F", "--full-name", *words, task.commit):
        path = found.partition(":")[2]
        if not is_read_unasked(path):
            continue
        content = git(("cat-file", "blob", f"{task.commit}:{path}"), cwd=Path(task.repository))
        has_own = any(each.encode() in content for each in context.settings)
        if has_own or told.search(content) is not None or tells_server(path, content, name):
            yield path, "tells of"


def _is_skill_of(name: str, path: str) -> bool:
    """Whether it lies in a skill's directory that is called as the context is, or begins so: `gitnexus-guide`."""
    parts = path.split("/")
    return any(
        above in {"skill", "skills"} and (part == name or part.startswith(f"{name}-"))
        for above, part in pairwise(parts[:-1])
    )


def _called_as(name: str, tools: Sequence[str]) -> re.Pattern[bytes]:
    """What agents write for a tool of the context: `mcp__ctags__find_symbol`, `mcp__ctags`, `ctags_find_symbol`."""
    server, each = re.escape(name), "|".join(map(re.escape, tools))
    pattern = rf"mcp__{server}(?:__|(?![\w-]))|(?<![A-Za-z0-9]){server}__?(?:{each})(?!\w)"
    return re.compile(pattern.encode())


def _paths(task: Task, *arguments: str) -> Iterator[str]:
    """What git lists, by names; `grep` ends with 1 where it finds nothing."""
    for listed in git(arguments, cwd=Path(task.repository), accept=frozenset({0, 1})).split(b"\0"):
        yield listed.decode(errors="surrogateescape")
