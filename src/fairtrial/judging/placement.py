"""Putting things into a judged tree, which an agent has shaped, without ever following a link in it.

Nothing else may change the tree meanwhile: every process of the agent is gone by then.
"""

import errno
import os
import stat
from enum import StrEnum
from pathlib import Path
from typing import Final

from fairtrial.host.files import remove_tree
from fairtrial.host.slot import Slot

__all__ = ["MountPoint", "PlacedFile", "make_mount_point", "place_file", "place_link", "read_file", "remove_path"]

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_DIRECTORY: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


class MountPoint(StrEnum):
    """What a mount needs to be there."""

    FILE = "file"
    DIRECTORY = "directory"


class PlacedFile:
    """A file that we put into a tree, held on to, so that it can be told from another one at the same path."""

    def __init__(self, root: Path, path: bytes, content: bytes, fd: int) -> None:
        self._root = root
        self._path = path
        self._content = content
        self._fd = fd

    def is_intact(self) -> bool:
        """Tell whether its path, through no link, still leads to this very file with the bytes that we wrote."""
        try:
            fd = _open(self._root, self._path, _READ)
        except OSError:
            return False
        try:
            same = os.path.samestat(os.fstat(fd), os.fstat(self._fd))
        finally:
            os.close(fd)
        return same and os.pread(self._fd, len(self._content) + 1, 0) == self._content

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)


def place_file(root: Path, path: bytes, content: bytes, *, slot: Slot, mode: int = 0o644) -> PlacedFile:
    """Put a file at a path, in place of whatever is there, and of whatever stands in the way.

    Raises:
        OSError: The tree cannot be written.
    """
    parent, _, name = path.rpartition(b"/")
    directory = _make_way(root, parent, slot)
    try:
        _clear(root, path, directory, name)
        fd = os.open(name, _NEW, 0o600, dir_fd=directory)
    finally:
        os.close(directory)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(fd, left) :]
        os.fchmod(fd, mode)
        if slot.is_foreign:
            os.fchown(fd, slot.uid, slot.gid)
    except BaseException:
        os.close(fd)
        raise
    return PlacedFile(root, path, content, fd)


def place_link(root: Path, path: bytes, leads_to: bytes, *, slot: Slot) -> None:
    """Put a link at a path, likewise.

    Raises:
        OSError: The tree cannot be written.
    """
    parent, _, name = path.rpartition(b"/")
    directory = _make_way(root, parent, slot)
    try:
        _clear(root, path, directory, name)
        os.symlink(leads_to, name, dir_fd=directory)
        if slot.is_foreign:
            os.chown(name, slot.uid, slot.gid, dir_fd=directory, follow_symlinks=False)
    finally:
        os.close(directory)


def make_mount_point(root: Path, path: bytes, kind: MountPoint, *, slot: Slot) -> None:
    """See to it that something can be mounted at a path: what an agent left there instead is removed.

    Raises:
        OSError: The tree cannot be written.
    """
    if kind is MountPoint.DIRECTORY:
        os.close(_make_way(root, path, slot))
        return
    try:
        fd = _open(root, path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno not in _NO_DIRECTORY:
            raise
    else:
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        os.close(fd)
        if is_file:
            return
    place_file(root, path, b"", slot=slot).close()


def remove_path(root: Path, path: bytes) -> None:
    """Remove a file, link or directory, if it is there.

    Raises:
        OSError: The tree cannot be written.
    """
    parent, _, name = path.rpartition(b"/")
    try:
        directory = _open(root, parent, _DIRECTORY)
    except OSError as problem:
        if problem.errno in _NO_DIRECTORY:
            return
        raise
    try:
        _clear(root, path, directory, name)
    finally:
        os.close(directory)


def read_file(root: Path, path: bytes, most_bytes: int) -> bytes | None:
    """Read the first bytes of a plain file; None when there is none at this path."""
    try:
        fd = _open(root, path, _READ)
    except OSError as problem:
        if problem.errno in _NO_DIRECTORY:
            return None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(most_bytes)


def _open(root: Path, path: bytes, flags: int) -> int:
    """Open a path by its components, none of which may be a link."""
    at = os.open(root, _DIRECTORY)
    parts = path.split(b"/") if path else []
    for position, part in enumerate(parts, start=1):
        try:
            below = os.open(part, flags if position == len(parts) else _DIRECTORY, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at


def _make_way(root: Path, path: bytes, slot: Slot) -> int:
    """Open a directory, made anew where there is none, also in place of a file or a link on the way."""
    at = os.open(root, _DIRECTORY)
    for part in path.split(b"/") if path else ():
        try:
            below = _enter(at, part, slot)
        finally:
            os.close(at)
        at = below
    return at


def _enter(at: int, name: bytes, slot: Slot) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=at)
    except FileNotFoundError:
        pass
    except OSError as problem:
        if problem.errno not in _NO_DIRECTORY:
            raise
        os.unlink(name, dir_fd=at)
    os.mkdir(name, 0o755, dir_fd=at)
    if slot.is_foreign:
        os.chown(name, slot.uid, slot.gid, dir_fd=at, follow_symlinks=False)
    return os.open(name, _DIRECTORY, dir_fd=at)


def _clear(root: Path, path: bytes, directory: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        remove_tree(root / os.fsdecode(path))
