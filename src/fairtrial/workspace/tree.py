"""Reading and writing below one directory without ever following a link in it.

Names are bytes: an agent's need not be text. Nobody else may change the tree meanwhile.
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.host.files import remove_tree
from fairtrial.host.slot import Slot
from fairtrial.model.sandbox import Limit

__all__ = ["LONGEST_PATH", "Item", "Tree", "TreeLimitError"]

LONGEST_PATH: Final = 4095
"""Bytes: what lies deeper can be made, but not named in one call; no tool that judges would find it."""
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_BYTES: Final = 1 << 20
_NOTHING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


class TreeLimitError(Exception):
    """A tree has more in it than was allowed.

    Attributes:
        limit: What there is too much of.
    """

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit)
        self.limit = limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One path of a tree.

    Attributes:
        path: Relative to the root.
        mode: Type and permissions.
        is_opaque: A directory of an overlay's upper layer that hides everything below it.
    """

    path: bytes
    mode: int
    is_opaque: bool


class Tree:
    """One directory and what lies below; every `.git` is left out, as git itself does."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def walk(self, below: bytes = b"", *, most_entries: int | None = None) -> Iterator[Item]:
        """Yield a path (the root itself excepted) and all below it, a directory before what it holds.

        Raises:
            TreeLimitError: There are more entries than allowed, or one lies too deep.
        """
        waiting = [below]
        if below:
            mode = self.mode(below)
            if mode is None:
                return
            yield Item(path=below, mode=mode, is_opaque=False)
            if not stat.S_ISDIR(mode):
                return
        n_entries = 0
        while waiting:
            directory = waiting.pop()
            for item in self._list(directory):
                n_entries += 1
                if most_entries is not None and n_entries > most_entries:
                    raise TreeLimitError(Limit.INODES)
                if len(item.path) > LONGEST_PATH:
                    raise TreeLimitError(Limit.INODES)
                yield item
                if stat.S_ISDIR(item.mode):
                    waiting.append(item.path)

    def _list(self, directory: bytes) -> Iterator[Item]:
        fd = self._open_directory(directory)
        if fd is None:
            return
        try:
            for name in sorted(os.fsencode(text) for text in os.listdir(fd)):  # noqa: PTH208 - a descriptor has no Path
                if name.lower() == b".git":  # in whatever case: git would not track it
                    continue
                mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                is_opaque = stat.S_ISDIR(mode) and _is_opaque(fd, name)
                yield Item(path=directory + b"/" + name if directory else name, mode=mode, is_opaque=is_opaque)
        finally:
            os.close(fd)

    def mode(self, path: bytes) -> int | None:
        """Return type and permissions of a path; None when there is nothing."""
        parent, _, name = path.rpartition(b"/")
        fd = self._open_directory(parent)
        if fd is None:
            return None
        try:
            return os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        except OSError as problem:
            if problem.errno in _NOTHING:
                return None
            raise
        finally:
            os.close(fd)

    def is_directory(self, path: bytes) -> bool:
        """Tell whether the path is a directory."""
        mode = self.mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def read_link(self, path: bytes) -> bytes:
        """Read a link's target."""
        parent, _, name = path.rpartition(b"/")
        fd = self._require_directory(parent)
        try:
            return os.fsencode(os.readlink(name, dir_fd=fd))
        finally:
            os.close(fd)

    def read_file(self, path: bytes, most_bytes: int) -> bytes:
        """Read the first bytes of a file."""
        parent, _, name = path.rpartition(b"/")
        fd = self._require_directory(parent)
        try:
            file = os.open(name, _FILE, dir_fd=fd)
        finally:
            os.close(fd)
        try:
            parts: list[bytes] = []
            while most_bytes > 0 and (data := os.read(file, min(most_bytes, _READ_BYTES))):
                parts.append(data)
                most_bytes -= len(data)
            return b"".join(parts)
        finally:
            os.close(file)

    def put_file(self, path: bytes, content: bytes, mode: int, slot: Slot) -> None:
        """Write a new file, the slot's; whatever stands in its way is removed."""
        fd, name = self._make_way(path, slot)
        try:
            file = os.open(name, _NEW_FILE, 0o600, dir_fd=fd)
            try:
                left = memoryview(content)
                while left:
                    left = left[os.write(file, left) :]
                os.fchmod(file, mode)
            finally:
                os.close(file)
            _give(fd, name, slot)
        finally:
            os.close(fd)

    def put_link(self, path: bytes, target: bytes, slot: Slot) -> None:
        """Make a link, the slot's; whatever stands in its way is removed."""
        fd, name = self._make_way(path, slot)
        try:
            os.symlink(target, name, dir_fd=fd)
            _give(fd, name, slot)
        finally:
            os.close(fd)

    def remove(self, path: bytes) -> None:
        """Remove a file or link if it is there, and the directories that this leaves empty, as git does."""
        parent, _, name = path.rpartition(b"/")
        fd = self._open_directory(parent)
        if fd is None:
            return
        try:
            os.unlink(name, dir_fd=fd)
        except OSError as problem:
            if problem.errno not in _NOTHING | {errno.EISDIR}:
                raise
        finally:
            os.close(fd)
        while parent and self._remove_if_empty(parent):
            parent = parent.rpartition(b"/")[0]

    def _remove_if_empty(self, path: bytes) -> bool:
        parent, _, name = path.rpartition(b"/")
        fd = self._open_directory(parent)
        if fd is None:
            return False
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def _make_way(self, path: bytes, slot: Slot) -> tuple[int, bytes]:
        """Open the directory that a new path will stand in, and see to it that nothing has its name."""
        *parents, name = path.split(b"/")
        at = os.open(self._root, _DIRECTORY)
        try:
            for part in parents:
                below = _enter(at, part, slot)
                os.close(at)
                at = below
            try:
                os.unlink(name, dir_fd=at)
            except FileNotFoundError:
                pass
            except IsADirectoryError:
                remove_tree(self._root / os.fsdecode(path))
        except BaseException:
            os.close(at)
            raise
        return at, name

    def _require_directory(self, path: bytes) -> int:
        fd = self._open_directory(path)
        if fd is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory in the tree", os.fsdecode(path))
        return fd

    def _open_directory(self, path: bytes) -> int | None:
        """Open a directory by its components, none of which may be a link; None when it is none."""
        at = os.open(self._root, _DIRECTORY)
        for part in path.split(b"/") if path else ():
            try:
                below = os.open(part, _DIRECTORY, dir_fd=at)
            except OSError as problem:
                if problem.errno in _NOTHING:
                    return None
                raise
            finally:
                os.close(at)
            at = below
        return at


def _enter(at: int, name: bytes, slot: Slot) -> int:
    """Open a directory in another one, made anew where there is none, also in place of a file or a link."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=at)
    except FileNotFoundError:
        pass
    except OSError as problem:
        if problem.errno not in _NOTHING:
            raise
        os.unlink(name, dir_fd=at)
    os.mkdir(name, 0o755, dir_fd=at)
    _give(at, name, slot)
    return os.open(name, _DIRECTORY, dir_fd=at)


def _give(at: int, name: bytes, slot: Slot) -> None:
    if slot.is_foreign:
        os.chown(name, slot.uid, slot.gid, dir_fd=at, follow_symlinks=False)


def _is_opaque(parent: int, name: bytes) -> bool:
    try:
        return (
            os.getxattr(f"/proc/self/fd/{parent}/".encode() + name, "user.overlay.opaque", follow_symlinks=False)
            == b"y"
        )
    except OSError as problem:
        if problem.errno in {errno.ENODATA, errno.ENOTSUP}:
            return False
        raise
