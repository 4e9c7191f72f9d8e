"""Plain values to frozen dataclasses; every problem at once, each with its place and its near miss."""

import json
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from fairtrial.config.document import Document, KeyPath, Position, show_path
from fairtrial.config.names import show_name, suggest
from fairtrial.config.shape import choices_at, keys_at
from fairtrial.errors import ConfigError

__all__ = ["validate"]

_T = TypeVar("_T")

_MAX_PROBLEMS: Final = 20
_MAX_SHOWN: Final = 60


def validate(document: Document, type_: type[_T]) -> _T:
    """Build `type_` (a frozen dataclass, or a collection of them) from the document.

    Strict: `"1"` is no integer, an unknown key is an error. A `ValueError` raised by a `__post_init__` is a problem of
    the document like any other.

    Raises:
        ConfigError: It does not fit. The message has one line a problem, in the order of the file.
    """
    # By way of JSON, because strict Python mode wants instances of the dataclass, of Path, of the enums, where a
    # document has mappings and text. Strict JSON mode is what a configuration file means.
    text = json.dumps(document.value, allow_nan=False)
    try:
        return TypeAdapter(type_).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        details = error.errors(include_url=False)
    problems = sorted({_explain(document, type_, detail) for detail in details})
    raise _joined(document, problems)


def _joined(document: Document, problems: list[tuple[Position, str, str]]) -> ConfigError:
    (line, column), first, key = problems[0]
    more = [f"{document.path}:{at.line}:{at.column}: {message}" for at, message, _ in problems[1:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        more.append(f"{document.path}: and {len(problems) - _MAX_PROBLEMS} more problems")
    return ConfigError("\n".join((first, *more)), path=document.path, line=line, column=column, key=key or None)


def _explain(document: Document, type_: object, detail: ErrorDetails) -> tuple[Position, str, str]:
    """Where the problem is, what it is, and the key that it is about."""
    kind, key_path = detail["type"], _document_path(document, detail["loc"])
    if kind == "missing":
        missing = str(detail["loc"][-1])
        where = f" in {show_path(key_path)!r}" if key_path else ""
        return document.locate(key_path), f"missing key {missing!r}{where}", show_path((*key_path, missing))
    key = show_path(key_path)
    if kind == "unexpected_keyword_argument":
        parent, name = key_path[:-1], str(key_path[-1])
        where = f" in {show_path(parent)!r}" if parent else ""
        problem = f"unknown key {show_name(name)}{where}{suggest(name, keys_at(type_, parent))}"
    elif kind in ("enum", "literal_error") and isinstance(name := detail["input"], str):
        problem = f"key {key!r} has unknown value {show_name(name)}{suggest(name, choices_at(type_, key_path))}"
    elif kind == "value_error":  # from a `__post_init__`, which says it all
        problem = f"{f'key {key!r}: ' if key else ''}{detail['msg'].removeprefix('Value error, ')}"
    else:
        message = detail["msg"][:1].lower() + detail["msg"][1:]
        problem = f"{f'key {key!r}: ' if key else ''}{message}, got {_show(detail['input'])}"
    return document.locate(key_path), problem, key


def _document_path(document: Document, loc: tuple[int | str, ...]) -> KeyPath:
    """The part of pydantic's path that the document has; it also names union members and missing keys."""
    value = document.value
    key_path: KeyPath = ()
    for part in loc:
        if isinstance(value, dict) and isinstance(part, str) and part in value:  # noqa: SIM114 -- each narrows its own types
            value = value[part]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        key_path = (*key_path, part)
    return key_path


def _show(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"
