"""Files that survive a power cut, and trees that are really gone."""

import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.host.mounts import read_mounts

__all__ = ["TEMPORARY", "free_bytes", "fsync_directory", "remove_tree", "write_durably", "write_once"]

TEMPORARY: Final = ".fairtrial-"
"""What names of files that are being written begin with."""

_AT_FDCWD = -100  # <fcntl.h>
_RENAME_NOREPLACE = 1  # <linux/fs.h>
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def write_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace a file's content so that after a crash it holds the old bytes or the new ones, whole.

    Raises:
        OSError: It could not be written, or not be made durable; no temporary file is left.
    """
    _write_beside(path, data, mode=mode, put=Path.rename)


def write_once(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file that nobody has written: after a crash it is whole or not there, and of two writers one fails.

    Raises:
        FileExistsError: There is one, or whatever else has its name; it is as before.
        OSError: As for `write_durably`.
    """
    _write_beside(path, data, mode=mode, put=_rename_to_free_name)


def _rename_to_free_name(temporary: Path, path: Path) -> None:
    """Rename, but never over another file. Not a link and an unlink: killed between them we would leave both names."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(temporary), os.fsencode(path)
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE) == 0:
        return
    number = ctypes.get_errno()
    if number != errno.EINVAL:
        raise OSError(number, os.strerror(number), str(path))
    # A file system without this (NFS, some FUSE): two writers at the same instant are then not told apart.
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    temporary.rename(path)


def _write_beside(path: Path, data: bytes, *, mode: int, put: Callable[[Path, Path], object]) -> None:
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(fd, mode)  # the umask took its part of the first one
            unwritten = memoryview(data)
            while unwritten:
                unwritten = unwritten[os.write(fd, unwritten) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        put(temporary, path)
    except OSError as problem:
        temporary.unlink(missing_ok=True)
        raise OSError(problem.errno, problem.strerror, str(path)) from problem
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Make the directory's entries durable: a new or renamed file is lost with its entry otherwise."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def free_bytes(path: Path) -> int:
    """Return what an unprivileged user can still write to the file system of `path`."""
    figures = os.statvfs(path)
    return figures.f_bavail * figures.f_frsize


def remove_tree(path: Path) -> None:
    """Remove a directory and all below it: unreadable directories, read-only files, any depth; links are not followed.

    What is mounted below would be emptied along with the tree, so a mount there is refused before anything is touched.
    What something else removes from it meanwhile is gone as wished.

    Raises:
        OSError: There is no such directory, something is mounted below, or some of it remains; the message names it.
    """
    _refuse_mounts_below(path)
    removal = _Removal(path.parent)
    try:
        removal.remove(path.name)
    finally:
        os.close(removal.fd)
    if removal.failures:
        shown = ", ".join(removal.failures[:5])
        message = f"could not remove {path}: {len(removal.failures)} entries remain: {shown}"
        raise OSError(message)


def _refuse_mounts_below(path: Path) -> None:
    real = path.parent.resolve() / path.name
    points = [mount.mount_point for mount in read_mounts()]
    below = [str(point) for point in points if point != real and point.is_relative_to(real)]
    if below:
        message = f"could not remove {path}: mounted below it, unmount first: {', '.join(below[:5])}"
        raise OSError(message)


@dataclass(slots=True, kw_only=True)
class _Level:
    """A directory on the way down.

    Attributes:
        name: Its name in the level above.
        identity: Its device and inode.
        subdirectories: Names of those not yet removed.
    """

    name: str
    identity: tuple[int, int]
    subdirectories: list[str]


class _Removal:
    """A walk through a tree that removes it from the leaves up.

    It holds one descriptor and does not recurse: an agent can easily make a tree deeper than the longest path, the
    descriptor limit and the interpreter's stack.

    Attributes:
        fd: The directory where the walk is.
        failures: What could not be removed, and why.
    """

    __slots__ = ("_levels", "failures", "fd")

    def __init__(self, parent: Path) -> None:
        self.fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.failures: list[str] = []
        self._levels = [_Level(name=str(parent), identity=_identity(self.fd), subdirectories=[])]

    def remove(self, name: str) -> None:
        """Remove one subdirectory of the parent."""
        self._enter(name)
        while len(self._levels) > 1:
            if self._levels[-1].subdirectories:
                self._enter(self._levels[-1].subdirectories.pop())
            else:
                self._leave()

    def _enter(self, name: str) -> None:
        """Go down one level and remove what is no directory there."""
        try:
            self._move(_open_directory(self.fd, name))
        except OSError as problem:
            self._note(name, problem)
            return
        self._levels.append(_Level(name=name, identity=_identity(self.fd), subdirectories=[]))
        with os.scandir(self.fd) as entries:
            listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for entry_name, is_directory in listed:
            if is_directory:
                self._levels[-1].subdirectories.append(entry_name)
                continue
            try:
                os.unlink(entry_name, dir_fd=self.fd)
            except OSError as problem:
                self._note(entry_name, problem)

    def _leave(self) -> None:
        """Go up one level and remove the emptied directory, if this is the level that we came from."""
        self._move(os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd))
        emptied = self._levels.pop()
        if _identity(self.fd) != self._levels[-1].identity:
            message = (
                f"could not remove {self._where(emptied.name)}: it was moved meanwhile; outside it nothing was touched"
            )
            raise OSError(message)
        try:
            os.rmdir(emptied.name, dir_fd=self.fd)
        except OSError as problem:
            self._note(emptied.name, problem)

    def _move(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd

    def _note(self, name: str, problem: OSError) -> None:
        if isinstance(problem, FileNotFoundError) and len(self._levels) > 1:
            return  # below the tree's own name, what is gone is what we came for
        self.failures.append(f"{self._where(name)} ({problem.strerror})")

    def _where(self, name: str) -> str:
        return "/".join([*(level.name for level in self._levels), name])


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _open_directory(parent_fd: int, name: str) -> int:
    """Open a subdirectory, giving ourselves the permissions that emptying it takes."""
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=parent_fd)
    except PermissionError:
        # A descriptor that only names the directory needs no permission on it, and chmod through /proc goes by it.
        handle = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=parent_fd)
        try:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        finally:
            os.close(handle)
        fd = os.open(name, _DIRECTORY, dir_fd=parent_fd)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) & 0o700 != 0o700:
            os.fchmod(fd, 0o700)
    except BaseException:
        os.close(fd)
        raise
    return fd
