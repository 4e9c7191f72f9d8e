"""Whole files with a `schema`: read strictly, written durably, and put aside when broken."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from fairtrial.errors import HostError, IntegrityError
from fairtrial.host.files import fsync_directory, write_durably
from fairtrial.store.artifacts import NotRegularError, open_regular
from fairtrial.store.layout import Results
from fairtrial.store.strict_json import JsonObject, MalformedJsonError, encode_object, parse_object

__all__ = [
    "FILE_MODE",
    "MAX_DOCUMENT_BYTES",
    "BrokenDocumentError",
    "move_aside",
    "parse_document",
    "read_bytes",
    "read_document",
    "set_aside",
    "write_document",
]

# Whoever reads these files must not need more memory than a small machine has: no honest one comes near.
MAX_DOCUMENT_BYTES = 1 << 30
FILE_MODE = 0o644


class BrokenDocumentError(IntegrityError):
    """A file that does not hold what was written: truncated, unparsable, or of another shape."""


def read_bytes(path: str | Path) -> bytes:
    """Read a whole regular file, never through a symbolic link.

    Raises:
        FileNotFoundError: It is not there.
        IntegrityError: It is a link, no regular file, or too large.
        HostError: It cannot be read.
    """
    try:
        fd, n_bytes = open_regular(path)
    except NotRegularError:
        raise _broken(path, "is a symbolic link or a special file") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}); check its permissions"
        raise HostError(message) from error
    try:
        if n_bytes > MAX_DOCUMENT_BYTES:
            raise _broken(path, f"is larger than {MAX_DOCUMENT_BYTES} bytes")
        return os.read(fd, n_bytes)
    finally:
        os.close(fd)


def read_document(path: Path, *, schema: str) -> JsonObject:
    """Read one JSON document of a known schema.

    Raises:
        FileNotFoundError: It is not there.
        IntegrityError: A BrokenDocumentError when it is damaged, else its schema is not known here.
    """
    return parse_document(path, read_bytes(path), schema=schema)


def parse_document(path: str | Path, data: bytes, *, schema: str) -> JsonObject:
    """Read the bytes of one JSON document; see `read_document`."""
    try:
        document = parse_object(data.removesuffix(b"\n"))
    except MalformedJsonError as error:
        raise _broken(path, f"is damaged ({error})") from None
    found = document.get("schema")
    if not isinstance(found, str):
        raise _broken(path, "is damaged (it names no schema)")
    if found != schema:
        message = f"{path}: schema {found!r} is not known here (expected {schema!r}); use the fairtrial that wrote it"
        raise IntegrityError(message)
    return document


def _broken(path: str | Path, what: str) -> BrokenDocumentError:
    return BrokenDocumentError(f"{path}: {what}; restore it from a copy, and believe nothing derived from it")


def write_document(path: Path, document: Mapping[str, object]) -> bytes:
    """Write a document so that a crash leaves the old one or the new; return its bytes.

    Raises:
        OSError: The file system refuses.
        ValueError: The document is not strict JSON.
    """
    data = encode_object(document) + b"\n"
    write_durably(path, data, mode=FILE_MODE)
    return data


def set_aside(results: Results, name: str, data: bytes) -> Path:
    """Keep damaged bytes under `set-aside/`, never over others; the same bytes are kept once.

    Raises:
        OSError: The file system refuses.
    """
    # A repair that was itself interrupted finds its own bytes there.
    path = next(
        path
        for path in _names(results, name)
        if not os.path.lexists(path) or (path.is_file() and path.read_bytes() == data)
    )
    if not os.path.lexists(path):
        write_durably(path, data, mode=FILE_MODE)
    return path


def move_aside(results: Results, path: Path, name: str) -> Path:
    """Move a damaged file to `set-aside/`, never over another.

    Raises:
        OSError: The file system refuses.
    """
    target = next(target for target in _names(results, name) if not os.path.lexists(target))
    path.rename(target)
    fsync_directory(target.parent)
    fsync_directory(path.parent)
    return target


def _names(results: Results, name: str) -> Iterator[Path]:
    if not results.set_aside.is_dir():
        results.set_aside.mkdir()
        fsync_directory(results.root)
    number = 1
    yield results.set_aside / name
    while True:
        number += 1
        yield results.set_aside / f"{name}-{number}"
