"""What a task's toolchains hold, as one digest each: a directory that changes under a sweep is noticed by its content.

Names, kinds, executable bits, links and bytes count; times do not. `__pycache__` is left out: whoever runs a virtual
environment's Python on the host writes there, and what is in it is made from what counts. A file is read again only
when its identity has changed, so that binding the same task again costs a walk.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from fairtrial.bench.blobs import framed_digest
from fairtrial.errors import UsageError

__all__ = ["SYSTEM", "toolchain_digest"]

SYSTEM: Final = "system"
"""Stands for /usr itself, which every sandbox has, named as a toolchain or not."""
_LEFT_OUT: Final = frozenset({"__pycache__"})
_MOST_ENTRIES: Final = 1_000_000


def toolchain_digest(path: str) -> str:
    """Digest of all that a toolchain holds.

    Raises:
        UsageError: Something of it cannot be read, or it holds more than a million entries.
    """
    if Path(path) == Path("/usr"):
        return SYSTEM
    try:
        return framed_digest(_frames(Path(path)))
    except OSError as problem:
        # What opens and cannot be read, as much below /proc, has no name in the error.
        where = path if problem.filename is None else os.fsdecode(problem.filename)
        raise UsageError(f"{where}: cannot be read whole: {problem.strerror}; name another directory") from problem


def _frames(root: Path) -> Iterator[bytes]:
    for number, entry in enumerate(_walk(os.fsencode(root)), start=1):
        if number > _MOST_ENTRIES:
            raise UsageError(f"{root}: more than {_MOST_ENTRIES} entries; name a smaller directory")
        status = entry.stat(follow_symlinks=False)
        yield entry.path.removeprefix(os.fsencode(root))
        if stat.S_ISREG(status.st_mode):
            yield b"x" if status.st_mode & stat.S_IXUSR else b"f"
            identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            yield _content_digest(entry.path, identity)
        elif stat.S_ISLNK(status.st_mode):
            yield b"l"
            yield os.fsencode(Path(os.fsdecode(entry.path)).readlink())
        else:
            yield b"d" if stat.S_ISDIR(status.st_mode) else b"s"


def _walk(directory: bytes) -> Iterator[os.DirEntry[bytes]]:
    """Everything below a directory in the order of names, a directory before what it holds; no link is followed."""
    with os.scandir(directory) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if os.fsdecode(entry.name) in _LEFT_OUT:
            continue
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)


@cache
def _content_digest(path: bytes, identity: tuple[int, ...]) -> bytes:  # noqa: ARG001 - what is remembered goes by it
    with open(path, "rb") as file:  # noqa: PTH123 - names need not be text
        return hashlib.file_digest(file, "sha256").digest()
