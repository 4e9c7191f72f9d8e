"""The credited change: what an agent is judged by.

It is every path that differs from the base and that the base's own ignore rules do not ignore, whole: content,
executable bit, link target. It is read from an overlay's upper directory alone, or by comparing a copy, never through
the agent's `.git`, and never through a link.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.git import git
from fairtrial.host.process import run
from fairtrial.host.slot import Slot, find_system_program
from fairtrial.model.sandbox import Limit
from fairtrial.workspace.layers import Layer, Room
from fairtrial.workspace.template import Template
from fairtrial.workspace.tree import Item, Tree, TreeLimitError

__all__ = [
    "MOST_BYTES",
    "MOST_CREDITED",
    "MOST_ENTRIES",
    "Change",
    "Entry",
    "Kind",
    "Refusal",
    "apply_change",
    "open_up",
    "read_change",
    "room_for",
]

MOST_ENTRIES: Final = 1_000_000
MOST_CREDITED: Final = 100_000
"""Each path that is credited is written again for every judge: a million of them would hold a worker for hours."""
MOST_LEVELS: Final = 256
"""Each path is opened level by level, several times: a thousand files two thousand levels down hold a worker longer."""
MOST_PATH_BYTES: Final = 256 << 20
"""Of all paths together: git is told each and says which it ignores, and no more than it may say."""
MOST_BYTES: Final = 64 << 20
_BLOCK_BYTES: Final = 4096
_HERE: Final = b"./"
"""Before a name that begins with a colon: git would take that for a pattern, and die of most."""


class Kind(StrEnum):
    """What a path became."""

    FILE = "file"
    EXECUTABLE = "executable"
    LINK = "link"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One path that changed.

    Attributes:
        path: Relative to the root, as bytes: names need not be text.
        kind: What it is now.
        existed: The base has something at this path.
        content: A file's bytes, a link's target, b"" for what is gone.
    """

    path: bytes
    kind: Kind
    existed: bool
    content: bytes

    @property
    def sha256(self) -> str:
        """Digest of the content."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A path that is not credited although nothing ignores it.

    Attributes:
        path: Relative to the root.
        reason: Why.
    """

    path: bytes
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """All of it.

    Attributes:
        entries: In the order of their paths.
        refused: Special files, likewise.
        excess: The change is larger than can be kept: nothing is credited; None otherwise.
    """

    entries: tuple[Entry, ...]
    refused: tuple[Refusal, ...] = ()
    excess: Limit | None = None

    @property
    def links_out(self) -> tuple[bytes, ...]:
        """Links whose target is absolute or climbs out of the tree."""
        links = (entry for entry in self.entries if entry.kind is Kind.LINK)
        return tuple(entry.path for entry in links if _leads_out(entry))


def _leads_out(entry: Entry) -> bool:
    joined = os.path.normpath(os.path.join(os.path.dirname(b"./" + entry.path), entry.content))  # noqa: PTH118, PTH120 - bytes
    return joined == b".." or joined.startswith((b"/", b"../"))


def read_change(layer: Layer, template: Template, *, slot: Slot) -> Change:
    """Read what a layer changed. Nothing may be writing it.

    Raises:
        HostError: git failed, or the layer cannot be read.
    """
    if layer.is_untouched():
        return Change(entries=())
    if layer.upper is None:
        open_up(layer.merged, slot)
    before, now = Tree(layer.before), Tree(layer.merged)
    try:
        paths = set(_touched(layer.upper, before) if layer.upper is not None else _all(before, now))
        ignored = _ignored([path for path in paths if path not in template.tracked], template, slot)
        found = list(_bounded(_compare(sorted(paths - ignored), before, now)))
    except TreeLimitError as problem:
        return Change(entries=(), excess=problem.limit)
    except OSError as problem:
        raise HostError(f"layer {layer.merged}: cannot be read: {problem}") from problem
    return Change(
        entries=tuple(item for item in found if isinstance(item, Entry)),
        refused=tuple(item for item in found if isinstance(item, Refusal)),
    )


def _touched(upper: Path, before: Tree) -> Iterator[bytes]:
    """Paths that an overlay's upper directory may have changed: what is written there, and what that hides below."""
    for item in _walk(Tree(upper)):
        if not stat.S_ISDIR(item.mode):
            yield item.path
        if not stat.S_ISDIR(item.mode) or item.is_opaque or not before.is_directory(item.path):
            yield from (below.path for below in before.walk(item.path) if not stat.S_ISDIR(below.mode))


def _all(before: Tree, now: Tree) -> Iterator[bytes]:
    """Every path of a copy and of its original."""
    for tree in (before, now):
        yield from (item.path for item in _walk(tree) if not stat.S_ISDIR(item.mode))


def _walk(tree: Tree) -> Iterator[Item]:
    n_bytes = 0
    for item in tree.walk(most_entries=MOST_ENTRIES):
        n_bytes += len(item.path)
        if n_bytes > MOST_PATH_BYTES or item.path.count(b"/") >= MOST_LEVELS:
            raise TreeLimitError(Limit.INODES)
        yield item


def _ignored(paths: Sequence[bytes], template: Template, slot: Slot) -> frozenset[bytes]:
    """Which of some untracked paths the base ignores, by its own rule files in a tree without anything else."""
    if not paths:
        return frozenset()
    said = git(
        ["check-ignore", "--no-index", "-z", "--stdin"],
        cwd=template.rules,
        slot=slot,
        git_dir=template.tree / ".git",
        work_tree=template.rules,
        stdin=b"".join(_HERE + path + b"\0" for path in paths),
        accept=frozenset({0, 1}),
    )
    return frozenset(path.removeprefix(_HERE) for path in said.split(b"\0")[:-1])


def _bounded(found: Iterator[Entry | Refusal]) -> Iterator[Entry | Refusal]:
    for number, item in enumerate(found):
        if number == MOST_CREDITED:
            raise TreeLimitError(Limit.INODES)
        yield item


def _compare(paths: Sequence[bytes], before: Tree, now: Tree) -> Iterator[Entry | Refusal]:
    left_bytes = MOST_BYTES
    for path in paths:
        mode = now.mode(path)
        was = _read(before, path, MOST_BYTES)
        if mode is not None and not stat.S_ISDIR(mode) and _kind(mode) is None:
            yield Refusal(path=path, reason=_name_type(mode))
            continue
        if mode is not None and stat.S_ISLNK(mode) and path.rpartition(b"/")[2].lower() == b".gitmodules":
            yield Refusal(path=path, reason="a link that git refuses to track")
            continue
        content = _read(now, path, left_bytes)
        if content == was:
            continue
        if content is None:
            yield Entry(path=path, kind=Kind.GONE, existed=True, content=b"")
            continue
        left_bytes -= len(content[1])
        yield Entry(path=path, kind=content[0], existed=before.mode(path) is not None, content=content[1])


def _read(tree: Tree, path: bytes, most_bytes: int) -> tuple[Kind, bytes] | None:
    """Read a file or a link; None when the path is a directory, something special, or nothing."""
    mode = tree.mode(path)
    kind = None if mode is None else _kind(mode)
    if kind is None:
        return None
    content = tree.read_link(path) if kind is Kind.LINK else tree.read_file(path, most_bytes + 1)
    if len(content) > most_bytes:
        raise TreeLimitError(Limit.DISK)
    return kind, content


def _kind(mode: int) -> Kind | None:
    if stat.S_ISLNK(mode):
        return Kind.LINK
    if not stat.S_ISREG(mode):
        return None
    return Kind.EXECUTABLE if mode & stat.S_IXUSR else Kind.FILE


def _name_type(mode: int) -> str:
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"


def open_up(tree: Path, slot: Slot) -> None:
    """Give a copy's owner the right to read all of it; with a namespace of our own we may anyway."""
    command = (find_system_program("chmod", "coreutils"), "-R", "u+rwX", "--", str(tree))
    result = run(slot.argv(command), env={"LC_ALL": "C"}, timeout_s=600)
    if not result.ok:
        raise HostError(f"{tree}: cannot be made readable: {result.stderr.tail.decode(errors='replace').strip()}")


def room_for(change: Change, room: Room) -> Room:
    """What a layer must have room for when a change is made in it, beside what `room` allows others to write there."""
    n_bytes = sum(len(entry.content) for entry in change.entries)
    n_directories = _count_directories(change.entries)
    return Room(
        disk_bytes=room.disk_bytes + n_bytes + _BLOCK_BYTES * (len(change.entries) + n_directories),
        inodes=room.inodes + len(change.entries) + n_directories,
    )


def _count_directories(entries: Sequence[Entry]) -> int:
    """Directories that entries lie in, each once: in the order of the paths all that lies in one stands together."""
    count, last = 0, b""
    for entry in entries:
        parent = entry.path.rpartition(b"/")[0]
        while parent and not last.startswith(parent + b"/"):
            count += 1
            parent = parent.rpartition(b"/")[0]
        last = entry.path
    return count


def apply_change(change: Change, layer: Layer, *, slot: Slot) -> None:
    """Make a change in a layer over the same base, so that the tree is what the agent left, less what is not credited.

    Raises:
        HostError: The layer cannot be written.
    """
    tree = Tree(layer.merged)
    try:
        for entry in change.entries:
            if entry.kind is Kind.GONE:
                tree.remove(entry.path)
        for entry in change.entries:
            if entry.kind is Kind.LINK:
                tree.put_link(entry.path, entry.content, slot)
            elif entry.kind is not Kind.GONE:
                mode = 0o755 if entry.kind is Kind.EXECUTABLE else 0o644
                tree.put_file(entry.path, entry.content, mode, slot)
    except OSError as problem:
        raise HostError(f"layer {layer.merged}: the change cannot be made: {problem}") from problem
