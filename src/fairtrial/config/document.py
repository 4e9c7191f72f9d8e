"""A parsed configuration file: plain values, and where each key stands. It knows neither YAML nor TOML."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from fairtrial.errors import ConfigError

__all__ = ["MAX_DEPTH", "TOO_DEEP", "Document", "KeyPath", "PlainValue", "Position", "require_plain", "show_path"]

PlainValue: TypeAlias = "dict[str, PlainValue] | list[PlainValue] | str | int | float | bool | None"

KeyPath: TypeAlias = "tuple[str | int, ...]"

MAX_DEPTH: Final = 64
"""Levels of nesting; far above any real file, far below Python's recursion limit."""

TOO_DEEP: Final = f"nested more than {MAX_DEPTH} levels deep; flatten it"


class Position(NamedTuple):
    """A place in a text file.

    Attributes:
        line: 1-based line.
        column: 1-based column, in characters.
    """

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One configuration file as it was read.

    Attributes:
        path: The file.
        sha256: Hex digest of the bytes that were parsed.
        value: What it says, in plain values; never NaN, an infinity, a date, a NUL or a lone surrogate.
        positions: Where each key or list item stands, by its path from the root.
    """

    path: Path
    sha256: str
    value: PlainValue
    positions: Mapping[KeyPath, Position]

    def locate(self, key_path: KeyPath) -> Position:
        """Where the key (or list item) stands, or else its nearest parent that the file has."""
        for length in range(len(key_path), 0, -1):
            if (position := self.positions.get(key_path[:length])) is not None:
                return position
        return Position(1, 1)

    def error(self, key_path: KeyPath, message: str) -> ConfigError:
        """A `ConfigError` at the key's place, for checks that only the reader of the values can make."""
        line, column = self.locate(key_path)
        return ConfigError(message, path=self.path, line=line, column=column, key=show_path(key_path) or None)


def show_path(key_path: KeyPath) -> str:
    """The path as a person writes it: `tasks.fix-parser.phases[0].prompt`; "" for the root."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key_path).removeprefix(".")


def require_plain(document: Document) -> Document:
    """Return the document if every value in it can be recorded, compared and put into an argv.

    Raises:
        ConfigError: A value is nested too deeply, not finite, beyond 64 bits, a date, or text with a NUL or surrogate.
    """
    todo: list[tuple[KeyPath, PlainValue]] = [((), document.value)]
    while todo:
        key_path, value = todo.pop()
        if len(key_path) > MAX_DEPTH:
            raise document.error(key_path[:MAX_DEPTH], TOO_DEEP)
        if isinstance(value, dict):
            for key in value:
                if problem := _problem_of(key):
                    message = f"a key under {show_path(key_path)!r} {problem}"
                    raise document.error(key_path, message)
            todo.extend(((*key_path, key), below) for key, below in value.items())
        elif isinstance(value, list):
            todo.extend(((*key_path, index), below) for index, below in enumerate(value))
        elif problem := _problem_of(value):
            message = f"key {show_path(key_path)!r} {problem}"
            raise document.error(key_path, message)
    return document


def _problem_of(value: object) -> str | None:
    """What keeps a scalar (of any type: tomllib makes dates too) from being a plain value."""
    problem = None
    match value:
        case None | bool():
            pass
        case int():
            if not -(2**63) <= value < 2**63:
                problem = "is an integer beyond 64 bits; quote it to keep it as text"
        case float():
            if not math.isfinite(value):
                problem = "is not a finite number"
        case str():
            if "\0" in value:
                problem = "holds a NUL character, which no program argument can carry"
            elif not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
                problem = "holds a lone surrogate, which is no Unicode text"
        case _:
            problem = f"is a {type(value).__name__}; quote it to keep it as text"
    return problem
