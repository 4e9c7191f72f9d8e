"""Configuration files from disk: bounded, UTF-8, plain values with positions."""

import hashlib
import os
import stat
from pathlib import Path
from typing import Final

from fairtrial.config.document import Document, require_plain
from fairtrial.config.toml_text import parse_toml
from fairtrial.config.yaml_text import parse_yaml
from fairtrial.errors import ConfigError

__all__ = ["MAX_FILE_BYTES", "read_toml", "read_yaml"]

MAX_FILE_BYTES: Final = 1 << 20


def read_yaml(path: Path) -> Document:
    """Read a YAML 1.2 file.

    Raises:
        ConfigError: It cannot be read, is too large, or holds what `Document.value` excludes.
    """
    source = _read_source(path)
    text = _decode(source, path)
    return require_plain(parse_yaml(text, path=path, sha256=hashlib.sha256(source).hexdigest()))


def read_toml(path: Path) -> Document:
    """Read a TOML 1.0 file.

    Raises:
        ConfigError: It cannot be read, is too large, or holds what `Document.value` excludes.
    """
    source = _read_source(path)
    text = _decode(source, path)
    return require_plain(parse_toml(text, path=path, sha256=hashlib.sha256(source).hexdigest()))


def _read_source(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=_open_at_once) as file:  # `Path.open` takes no opener
            source = file.read(MAX_FILE_BYTES + 1)  # by size and not by stat: it may be a pipe or a device
            if not source and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise ConfigError("is a pipe that nobody writes to; name a file", path=path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = f"cannot be read: {reason}; name a file that can be read"
        raise ConfigError(message, path=path) from error
    if len(source) > MAX_FILE_BYTES:
        message = f"is larger than {MAX_FILE_BYTES} bytes; split it"
        raise ConfigError(message, path=path)
    return source


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; a pipe that nobody has opened for writing is at its end, and is not waited for."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def _decode(source: bytes, path: Path) -> str:
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = source.rfind(b"\n", 0, error.start) + 1
        line = source.count(b"\n", 0, error.start) + 1
        column = len(source[start : error.start].decode("utf-8-sig")) + 1
        message = f"byte 0x{source[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise ConfigError(message, path=path, line=line, column=column) from error
    if (at := text.find("\0")) >= 0:
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        raise ConfigError("holds a NUL byte; it is not a text file", path=path, line=line, column=column)
    return text
