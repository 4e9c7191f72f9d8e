"""Reading an oracle's captured files back: whole and unchanged, or not at all."""

import errno
import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from fairtrial.errors import UsageError
from fairtrial.judging.values import CapturedFile

__all__ = ["LONGEST_TARGET_BYTES", "CaptureLostError", "check_target", "is_unchanged", "read_captured"]

LONGEST_TARGET_BYTES: Final = 240
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class CaptureLostError(Exception):
    """A captured file is missing or changed: outside every sandbox, so no arm can have done it."""


def check_target(target: str) -> None:
    """Refuse a target that is no plain relative path, or lies in a repository's own directory.

    Raises:
        UsageError: It is.
    """
    parts = target.split("/")
    plain = not {"", ".", ".."} & set(parts) and not set(target) & {"\\", "\0"} and PurePosixPath(target).parts
    if not plain or parts[0] == ".git" or len(target.encode(errors="surrogateescape")) > LONGEST_TARGET_BYTES:
        raise UsageError(
            f"oracle: target {target!r} must be a relative path of plain parts, at most {LONGEST_TARGET_BYTES} bytes,"
            " outside .git"
        )


def read_captured(files: Sequence[CapturedFile]) -> tuple[bytes, ...]:
    """Read captured files.

    Raises:
        CaptureLostError: One is missing, or is not what was captured.
    """
    return tuple(_read(file) for file in files)


def is_unchanged(files: Sequence[CapturedFile]) -> bool:
    """Tell whether captured files still are what was captured."""
    try:
        read_captured(files)
    except CaptureLostError:
        return False
    return True


def _read(file: CapturedFile) -> bytes:
    try:
        content = _read_plain(file.source, file.n_bytes + 1)
    except OSError as problem:
        raise CaptureLostError(f"{file.target}: its captured copy cannot be read: {problem.strerror}") from problem
    if len(content) != file.n_bytes or hashlib.sha256(content).hexdigest() != file.sha256:
        raise CaptureLostError(f"{file.target}: its captured copy has changed")
    return content


def _read_plain(path: Path, most_bytes: int) -> bytes:
    fd = os.open(path, _OPEN)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no plain file")
    with os.fdopen(fd, "rb") as file:
        return file.read(most_bytes)
