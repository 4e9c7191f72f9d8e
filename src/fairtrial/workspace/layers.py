"""Layers: what one trial, phase or judge writes, over trees that nobody writes.

Where the worker owns its mount namespace, a layer is an overlay mount whose upper directory is all that changed;
elsewhere it is a copy. Either way the trees below are never touched and a layer is gone when its block ends.
"""

import os
import secrets
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.clock import monotonic_s
from fairtrial.host.files import remove_tree
from fairtrial.host.kernel import detach_mount, mount
from fairtrial.host.limits import Space
from fairtrial.host.process import run
from fairtrial.host.slot import Slot, find_system_program
from fairtrial.model.sandbox import Limit

__all__ = ["Base", "Layer", "Room", "Storage", "choose_storage", "open_layer"]

_LEAST_INODES: Final = 64
_COPY_TIMEOUT_S: Final = 600.0
_WALK_SHARE: Final = 20
"""A walk that took t seconds is not repeated for this many times t."""


class Storage(StrEnum):
    """Where what is written lies."""

    MEMORY = "memory"
    """On a file system of its own in memory: size and inodes end where they should."""
    DISK = "disk"
    """In the scratch directory: watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much one layer can take.

    Attributes:
        disk_bytes: Bytes.
        inodes: Files, directories and links.
    """

    disk_bytes: int = 2 << 30
    inodes: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Trees on top of each other, uppermost first, none of which may change.

    Attributes:
        trees: Their directories; a single one where layers are copies.
    """

    trees: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A tree that can be written.

    Attributes:
        base: What lies below.
        before: The whole tree as it was.
        merged: The whole tree as it is now.
        upper: Only what was written (an overlay's upper directory); None where the layer is a copy.
        space: Tells when it is full.
        storage: Where it lies.
    """

    base: Base
    before: Path
    merged: Path
    upper: Path | None
    space: Space
    storage: Storage

    def frozen(self) -> Base:
        """What was written as the uppermost tree of a base, valid while the layer is open; nothing may write it now."""
        return Base(trees=(self.merged,) if self.upper is None else (self.upper, *self.base.trees))

    def is_untouched(self) -> bool:
        """Tell whether nothing was written at all; never true of a copy, where only a comparison could tell."""
        return self.upper is not None and not any(self.upper.iterdir())


def choose_storage(room: Room, *, n_layers: int, available_bytes: int) -> Storage:
    """Choose memory where all layers together, full, would take less than half of what is free."""
    return Storage.MEMORY if room.disk_bytes * n_layers <= available_bytes // 2 else Storage.DISK


@contextmanager
def open_layer(base: Base, *, slot: Slot, room: Room, storage: Storage) -> Generator[Layer]:
    """Make a layer over a base; everything of it is removed at the end of the block.

    Raises:
        HostError: The kernel or the disk refused; or what was written cannot be removed.
    """
    directory = slot.root / f"l{secrets.token_hex(6)}"
    with ExitStack() as stack:
        try:
            directory.mkdir(mode=0o755)
            stack.callback(_remove, directory)
            slot.give(directory)
            if slot.mounts:
                layer = _mounted(base, directory, slot, room, storage, stack)
            else:
                layer = _copied(base, directory, slot, room)
        except OSError as problem:
            raise HostError(f"layer in {slot.root}: {problem}; see the scratch directory's file system") from problem
        yield layer


def _mounted(base: Base, directory: Path, slot: Slot, room: Room, storage: Storage, stack: ExitStack) -> Layer:
    if storage is Storage.MEMORY:
        owner = f"mode=755,uid={slot.uid},gid={slot.gid}"
        inodes = max(room.inodes, _LEAST_INODES)
        mount("tmpfs", directory, f"size={room.disk_bytes},nr_inodes={inodes},{owner}")
        stack.callback(detach_mount, directory)
    upper, merged, before = directory / "u", directory / "m", directory / "b"
    for path in (upper, directory / "w", merged, before):
        path.mkdir(mode=0o755)
        slot.give(path)
    name = directory.name
    _mount_overlay(base.trees, directory, "m", f",upperdir={name}/u,workdir={name}/w")
    stack.callback(detach_mount, merged)
    if len(base.trees) == 1:
        before = base.trees[0]
    else:
        _mount_overlay(base.trees, directory, "b", "")
        stack.callback(detach_mount, before)
    space: Space = _MemorySpace(directory) if storage is Storage.MEMORY else _DiskSpace(upper, room)
    return Layer(base=base, before=before, merged=merged, upper=upper, space=space, storage=storage)


def _mount_overlay(trees: Sequence[Path], directory: Path, point: str, more: str) -> None:
    """Mount with paths relative to the slot's directory: the mount table inside shows these options as they are."""
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(directory.parent)
        lower = ":".join(os.path.relpath(tree, directory.parent) for tree in trees)
        mount("overlay", f"{directory.name}/{point}", f"lowerdir={lower}{more},userxattr")
    finally:
        os.fchdir(here)
        os.close(here)


def _copied(base: Base, directory: Path, slot: Slot, room: Room) -> Layer:
    (tree,) = base.trees
    merged = directory / "m"
    command = (find_system_program("cp", "coreutils"), "-a", "--reflink=auto", "--", str(tree), str(merged))
    result = run(slot.argv(command), env={"LC_ALL": "C"}, timeout_s=_COPY_TIMEOUT_S)
    if not result.ok:
        said = result.stderr.tail.decode(errors="replace").strip() or result.detail
        raise HostError(f"{tree}: cannot be copied: {said}; see the scratch directory's file system")
    n_bytes, n_inodes = _measure(merged, Room(disk_bytes=sys.maxsize, inodes=sys.maxsize))
    whole = Room(disk_bytes=room.disk_bytes + n_bytes, inodes=room.inodes + n_inodes)
    return Layer(
        base=base, before=tree, merged=merged, upper=None, space=_DiskSpace(merged, whole), storage=Storage.DISK
    )


def _remove(directory: Path) -> None:
    try:
        remove_tree(directory)
    except OSError as problem:
        raise HostError(f"{problem}; remove it by hand") from problem


class _MemorySpace:
    """A file system in memory, of which the kernel knows what is left."""

    def __init__(self, point: Path) -> None:
        self._point = point

    def full(self) -> Limit | None:
        """See `Space`."""
        figures = os.statvfs(self._point)
        if figures.f_bavail == 0:
            return Limit.DISK
        return Limit.INODES if figures.f_favail == 0 else None


class _DiskSpace:
    """A directory that is walked now and then, more seldom the longer that takes.

    What stands in a directory that we may not read is not seen; only a worker without a namespace of its own meets
    that.
    """

    def __init__(self, root: Path, room: Room) -> None:
        self._root = root
        self._room = room
        self._next_s = 0.0

    def full(self) -> Limit | None:
        """See `Space`."""
        started_s = monotonic_s()
        if started_s < self._next_s:
            return None
        n_bytes, n_inodes = _measure(self._root, self._room)
        ended_s = monotonic_s()
        self._next_s = ended_s + _WALK_SHARE * (ended_s - started_s)
        if n_bytes > self._room.disk_bytes:
            return Limit.DISK
        return Limit.INODES if n_inodes > self._room.inodes else None


def _measure(root: Path, room: Room) -> tuple[int, int]:
    """Sum blocks and entries of a tree that may change meanwhile, until either is too much."""
    n_bytes = n_inodes = 0
    waiting = [str(root)]
    while waiting and n_bytes <= room.disk_bytes and n_inodes <= room.inodes:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    n_inodes += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    n_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue  # removed meanwhile, or closed to us
    return n_bytes, n_inodes
