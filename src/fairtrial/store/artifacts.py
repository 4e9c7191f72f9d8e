"""Files below a results directory: listed and digested, never through a symbolic link."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, cast

from fairtrial.store.strict_json import JsonObject, MalformedJsonError, take

__all__ = [
    "Entry",
    "EntryKind",
    "FileDigest",
    "NotRegularError",
    "digest_bytes",
    "digest_file",
    "digest_listed_file",
    "list_directory",
    "open_regular",
    "read_digests",
    "read_small_file",
    "render_digest",
    "take_digests",
    "walk",
]

_NAME = attrgetter("name")
_NO_NAMES = {"", ".", ".."}
# O_NONBLOCK: opening a FIFO that somebody left here must not wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SMALL_BYTES = 64 * 1024
_MAX_PATH_BYTES = 3500  # PATH_MAX is 4096, and a name is at most 255


class NotRegularError(Exception):
    """A symbolic link or special file stands where a regular file is due."""


class EntryKind(Enum):
    """What a name below a results directory stands for."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"


class Entry(NamedTuple):
    """One name below a directory.

    Attributes:
        relative: Path relative to the directory that was walked, with `/`.
        kind: OTHER for a symbolic link, socket, FIFO or device.
    """

    relative: str
    kind: EntryKind


class FileDigest(NamedTuple):
    """What is recorded of a file.

    Attributes:
        sha256: Digest of its bytes, in hex.
        n_bytes: Its length.
    """

    sha256: str
    n_bytes: int


def open_regular(path: str | Path) -> tuple[int, int]:
    """Open a regular file for reading; return its descriptor and its length in bytes.

    Raises:
        NotRegularError: It is none.
        OSError: It cannot be opened.
    """
    try:
        fd = os.open(path, _READ)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a symbolic link, a socket
            raise NotRegularError(str(path)) from None
        raise
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise NotRegularError(str(path))
    return fd, status.st_size


def digest_file(path: str | Path) -> FileDigest:
    """Digest a regular file.

    Raises:
        NotRegularError: It is none.
        OSError: It cannot be read.
    """
    fd, n_bytes = open_regular(path)
    try:
        # `file_digest` sets up a large buffer for every file, and most files here are small.
        if n_bytes <= _SMALL_BYTES:
            return digest_bytes(os.read(fd, _SMALL_BYTES + 1))
        with open(fd, "rb", buffering=0, closefd=False) as file:
            return FileDigest(hashlib.file_digest(file, "sha256").hexdigest(), file.tell())
    finally:
        os.close(fd)


def digest_listed_file(path: str) -> FileDigest:
    """Digest what was listed as a regular file: quicker than `digest_file` for small ones.

    Raises:
        NotRegularError: It is none any more.
        OSError: It cannot be read.
    """
    data = read_small_file(path)
    return digest_file(path) if data is None else digest_bytes(data)


def read_small_file(path: str) -> bytes | None:
    """Read what was listed as a regular file; None when it is not small.

    Raises:
        OSError: It cannot be read.
    """
    fd = os.open(path, _READ)
    try:
        data = os.read(fd, _SMALL_BYTES)
    finally:
        os.close(fd)
    return data if len(data) < _SMALL_BYTES else None


def digest_bytes(data: bytes) -> FileDigest:
    """Digest a file's content that is in memory."""
    return FileDigest(hashlib.sha256(data).hexdigest(), len(data))


def render_digest(digest: FileDigest) -> dict[str, object]:
    """Write a digest as it stands in outcomes and the seal."""
    return {"sha256": digest.sha256, "bytes": digest.n_bytes}


def read_digests(document: Mapping[str, object]) -> dict[str, FileDigest]:
    """Read the `artifacts` of an outcome or a seal: relative path to digest.

    Raises:
        MalformedJsonError: There are none, or a path leads elsewhere.
    """
    artifacts = cast("JsonObject", take(document, "artifacts", dict))
    return {relative: _read_digest(relative, record) for relative, record in artifacts.items()}


def take_digests(document: JsonObject) -> dict[str, FileDigest]:
    """Read the `artifacts` as `read_digests` does, but take them out of the document: a large one is not held twice.

    Raises:
        MalformedJsonError: As for `read_digests`.
    """
    artifacts = cast("JsonObject", take(document, "artifacts", dict))
    digests: dict[str, FileDigest] = {}
    while artifacts:
        relative, record = artifacts.popitem()
        digests[relative] = _read_digest(relative, record)
    return digests


def _read_digest(relative: str, record: object) -> FileDigest:
    if type(record) is not dict:
        raise MalformedJsonError(f"artifact {relative!r} has no digest")
    if not _NO_NAMES.isdisjoint(relative.split("/")):
        raise MalformedJsonError(f"artifact {relative!r} is no relative path")
    known = cast("JsonObject", record)
    return FileDigest(take(known, "sha256", str), take(known, "bytes", int))


def walk(root: str | Path, prefix: str = "") -> Iterator[Entry]:
    """List everything below a directory, in order of names, each directory before what it holds.

    It does not recurse: a tree can be made deeper than the interpreter's stack. Deeper than the longest path it ends
    with an entry of kind OTHER.

    Args:
        root: A directory that is no symbolic link.
        prefix: Put before every relative path.

    Raises:
        OSError: A directory cannot be read.
    """
    levels = [(prefix, iter(list_directory(root)))]
    while levels:
        begin, entries = levels[-1]
        entry = next(entries, None)
        if entry is None:
            levels.pop()
            continue
        relative = begin + entry.name
        if entry.is_file(follow_symlinks=False):
            yield Entry(relative, EntryKind.FILE)
        elif entry.is_dir(follow_symlinks=False) and len(os.fsencode(entry.path)) < _MAX_PATH_BYTES:
            yield Entry(relative, EntryKind.DIRECTORY)
            levels.append((relative + "/", iter(list_directory(entry.path))))
        else:
            yield Entry(relative, EntryKind.OTHER)


def list_directory(path: str | Path) -> list[os.DirEntry[str]]:
    """List one directory in order of names.

    Raises:
        OSError: It cannot be read.
    """
    with os.scandir(path) as listing:
        return sorted(listing, key=_NAME)
