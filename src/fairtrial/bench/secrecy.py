"""What a task means to keep from its agents, and what its tree would show them all the same.

Of what a task brings into the tree besides, only the place is looked at. In the tree itself bytes are compared, not
names: a copy of an oracle gives it away wherever it lies.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fairtrial.bench.blobs import BlobStore, read_stable
from fairtrial.bench.tasks import MAX_PATCH_BYTES
from fairtrial.errors import UsageError
from fairtrial.host.git import git
from fairtrial.model.bench import Into, Task
from fairtrial.workspace.template import BINDING_S

__all__ = ["require_secrecy"]

MOST_NAMED: Final = 5
SHA1_DIGITS: Final = 40


class _Secret(NamedTuple):
    """Bytes that agents must not find in the tree.

    Attributes:
        what: What they are, in words.
        content: The bytes.
        own: Where they may be found all the same: the place in the tree that they are to be put at; "" for nowhere.
    """

    what: str
    content: bytes
    own: str = ""


def require_secrecy(path: Path, tasks: Sequence[Task], blobs: BlobStore) -> None:
    """Refuse a task that does not keep from its agents what it means to.

    A file of an oracle that goes into the workspace may be there already, with the same bytes and at the same place:
    then it is a test of the tree's own, and no secret.

    Args:
        path: The task file.
        tasks: Tasks of it.
        blobs: Holds their captured bytes.

    Raises:
        UsageError: It hides a path that its tree does not have, or its tree has the task file, the reference or a file
            of the oracle, not hidden.
        HostError: git cannot read a repository.
    """
    trees: dict[tuple[str, str], dict[str, str]] = {}
    for task in tasks:
        key = task.repository, task.commit
        tree = trees[key] = trees.get(key) or _list_tree(task)
        for hidden in task.hidden:
            if not any(_lies_in(each, hidden) for each in tree):
                raise UsageError(
                    f"task {task.id}: it hides {hidden!r}, which the tree of {task.ref} does not have, so that nothing"
                    " is hidden: give the path as it is there (`hidden`), or leave it out"
                )
        shown = {each: blob for each, blob in tree.items() if not any(_lies_in(each, hid) for hid in task.hidden)}
        seen = dict.fromkeys(
            (*_task_file_in(shown, path, task), *_secrets_in(shown, _secrets(path, task, blobs), task))
        )
        if seen:
            named = ", ".join([*seen][:MOST_NAMED]) + (", …" if len(seen) > MOST_NAMED else "")
            raise UsageError(
                f"task {task.id}: the tree of {task.ref} would show its agents what they must not see: {named}. Name"
                " these paths, or directories that hold them, in the task's `hidden`; a file of the oracle that is no"
                " secret, since the tree has it, goes `into: workspace` at its own path"
            )


def _list_tree(task: Task) -> dict[str, str]:
    """The object of each path of a task's tree."""
    listed = git(["ls-tree", "-r", "-z", "--full-tree", task.commit], cwd=Path(task.repository), timeout_s=BINDING_S)
    entries = (each.partition("\t") for each in listed.decode(errors="surrogateescape").split("\0")[:-1])
    return {path: about.rpartition(" ")[2] for about, _, path in entries}


def _lies_in(path: str, place: str) -> bool:
    return f"{path}/".startswith(f"{place}/")


def _task_file_in(shown: Mapping[str, str], path: Path, task: Task) -> Iterator[str]:
    """The task file where it stands, whatever it said at that commit: it was edited since, if only to hide things."""
    real, repository = path.resolve(), Path(task.repository)
    if not real.is_relative_to(repository):
        return
    place = str(real.relative_to(repository))
    brought = any(_lies_in(place, asset.source) for asset in (*task.copies, *task.dependencies))
    if place in shown or brought:
        yield f"{place!a} is the task file" + (", and is copied or mounted" if brought else "")


def _secrets(path: Path, task: Task, blobs: BlobStore) -> Iterator[_Secret]:
    real = path.resolve()
    yield _Secret("the task file", read_stable(real.parent, real.name, max_bytes=MAX_PATCH_BYTES))
    for file in task.oracle.files:
        own = file.blob.name if file.into is Into.WORKSPACE else ""
        yield _Secret(f"the oracle's {file.blob.name}", blobs.read(file.blob), own)
    if task.reference is not None:
        name = task.reference.name
        yield _Secret("the reference", read_stable(path.parent, name, max_bytes=MAX_PATCH_BYTES))


def _secrets_in(shown: Mapping[str, str], secrets: Iterator[_Secret], task: Task) -> Iterator[str]:
    places: dict[str, list[str]] = defaultdict(list)
    for path, blob in shown.items():
        places[blob].append(path)
    for secret in secrets:
        found = places.get(_blob_id(secret.content, task.commit), [])
        if secret.content.strip() and secret.own not in found:
            yield from (f"{path!a} is {secret.what}" for path in found)


def _blob_id(content: bytes, like: str) -> str:
    """What git calls a file with this content, in the object format of another id."""
    kind = "sha1" if len(like) == SHA1_DIGITS else "sha256"
    return hashlib.new(kind, b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
