"""Bytes that were captured before anything ran, kept under their digests in the sweep's scratch directory.

No trial can reach them there: a session, check or oracle sees only what is mounted into its sandbox.
"""

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, UsageError
from fairtrial.host.files import write_durably
from fairtrial.model.bench import Blob

__all__ = ["BlobLostError", "BlobStore", "framed_digest", "read_stable"]

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BlobLostError(Exception):
    """Captured bytes are missing or changed, outside every sandbox."""


class BlobStore:
    """A directory of captured bytes.

    Attributes:
        root: The directory; only we may enter it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, name: str, content: bytes) -> Blob:
        """Keep bytes under their digest.

        Raises:
            HostError: The disk refuses.
        """
        digest = hashlib.sha256(content).hexdigest()
        path = self.root / digest
        try:
            self.root.mkdir(mode=0o700, exist_ok=True)
            if not path.exists():
                write_durably(path, content, mode=0o400)
        except OSError as problem:
            raise HostError(
                f"{self.root}: {name} cannot be kept ({problem.strerror}); make room there, or name another place with"
                " --scratch"
            ) from problem
        return Blob(name=name, sha256=digest, n_bytes=len(content))

    def read(self, blob: Blob) -> bytes:
        """Read bytes back and check them.

        Raises:
            BlobLostError: They are not there, or not what was captured.
        """
        try:
            content = (self.root / blob.sha256).read_bytes()
        except OSError as problem:
            raise BlobLostError(f"{blob.name}: captured bytes cannot be read: {problem.strerror}") from problem
        if hashlib.sha256(content).hexdigest() != blob.sha256:
            raise BlobLostError(f"{blob.name}: captured bytes have changed")
        return content


def read_stable(root: Path, relative: str, *, max_bytes: int) -> bytes:
    """Read a regular file below a directory, through no link, that does not change meanwhile.

    Raises:
        UsageError: It is missing, no regular file, reached through a link, too large, or was changed while it was read.
    """
    where = root / relative
    try:
        fd = _open_below(root, relative)
    except OSError as problem:
        raise UsageError(f"{where}: cannot be read ({problem.strerror}); it must be a plain file, no link") from problem
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise UsageError(f"{where}: is no regular file")
        if before.st_size > max_bytes:
            raise UsageError(f"{where}: is larger than {max_bytes} bytes")
        with os.fdopen(os.dup(fd), "rb") as file:
            content = file.read(max_bytes + 1)
        if _identity(before) != _identity(os.fstat(fd)) or len(content) != before.st_size:
            raise UsageError(f"{where}: was changed while it was read; run again when nothing writes it")
    finally:
        os.close(fd)
    return content


def framed_digest(frames: Iterable[bytes]) -> str:
    """SHA-256 over frames, each after its length in eight bytes, big end first."""
    digest = hashlib.sha256()
    for frame in frames:
        digest.update(len(frame).to_bytes(8, "big"))
        digest.update(frame)
    return digest.hexdigest()


def _open_below(root: Path, relative: str) -> int:
    *parents, name = relative.split("/")
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parents:
            below = os.open(part, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, _READ, dir_fd=at)
    finally:
        os.close(at)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
