"""Space kept back for the last rows, and the watermark under which no new trial begins.

A sweep on a full disk must still be able to say how its running trials ended: the reserve file is made while there is
room and given up when a write of evidence fails for want of it.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fairtrial.errors import HostError
from fairtrial.host.files import free_bytes, fsync_directory
from fairtrial.store.layout import Results, explain_failure

__all__ = ["LOW_SPACE_BYTES", "RESERVE_BYTES", "is_low", "keeping_reserve", "prepare_reserve", "release_reserve"]

RESERVE_BYTES = 4 * 1024 * 1024
LOW_SPACE_BYTES = 16 * 1024 * 1024

T = TypeVar("T")


def prepare_reserve(results: Results) -> None:
    """Make the reserve, or keep the one that is there.

    Raises:
        HostError: There is no room for it, or the directory cannot be written.
    """
    try:
        fd = os.open(results.reserve, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise explain_failure(results.root, error) from error
        # Where the file system knows no fallocate, glibc writes: what it wrote before the disk was full must not stay.
        results.reserve.unlink(missing_ok=True)
        message = (
            f"{results.root}: {free_bytes(results.root)} bytes free and {RESERVE_BYTES} needed as a reserve for the"
            " last rows; free some, or name another file system with --out"
        )
        raise HostError(message) from error
    fsync_directory(results.root)


def release_reserve(results: Results) -> bool:
    """Give the reserve's space back; True when there was one."""
    try:
        results.reserve.unlink()
    except FileNotFoundError:
        return False
    fsync_directory(results.root)
    return True


def is_low(directory: Path, *, watermark_bytes: int = LOW_SPACE_BYTES) -> bool:
    """Tell whether so little space is left on a directory's disk that no new trial should begin."""
    return free_bytes(directory) < watermark_bytes


def keeping_reserve(results: Results, write: Callable[[], T]) -> T:
    """Do a write of evidence; when the disk is full, give up the reserve and do it once more.

    Args:
        results: Whose reserve.
        write: Leaves no part of itself behind when it raises OSError.

    Raises:
        HostError: It cannot be written, or the disk is full and the reserve is spent.
        FileExistsError: What is written once was written before: no fault of the host's.
    """
    try:
        return write()
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT} or not release_reserve(results):
            raise explain_failure(results.root, error) from error
    try:
        return write()
    except OSError as error:
        raise explain_failure(results.root, error) from error
