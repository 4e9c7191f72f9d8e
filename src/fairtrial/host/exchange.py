"""Directories held by descriptor, reached through no symbolic link, and two of their entries exchanged at once."""

import ctypes
import errno
import os
from pathlib import Path

__all__ = ["exchange", "open_below", "open_without_links"]

_RENAME_EXCHANGE = 2  # <linux/fs.h>
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_without_links(path: Path) -> int:
    """Open a directory in whose whole path no part is a symbolic link; the caller closes it.

    Raises:
        OSError: A part is a link, no directory, or missing.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow the links that are refused here
    root = os.open(absolute.anchor, _DIRECTORY)
    try:
        return open_below(root, "/".join(absolute.parts[1:]))
    finally:
        os.close(root)


def open_below(fd: int, relative: str) -> int:
    """Open a directory below a held one, through no symbolic link; "" is the held one itself.

    Raises:
        OSError: A part is a link, no directory, or missing; `filename` is that part.
    """
    at = os.dup(fd)
    for part in relative.split("/") if relative else ():
        try:
            below = os.open(part, _DIRECTORY, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at


def exchange(fd: int, one: str, other: str) -> None:
    """Let two names in a held directory change what they stand for, at one instant; nothing is lost.

    Raises:
        OSError: One is missing, or the file system cannot do it (EINVAL: NFS and some others).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(fd, os.fsencode(one), fd, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return
    number = ctypes.get_errno()
    reason = "the file system cannot exchange two files" if number == errno.EINVAL else os.strerror(number)
    raise OSError(number, reason, other)
