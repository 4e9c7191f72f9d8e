"""What a type allows at a place in a document: the keys and choices that an error message names."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo

from fairtrial.config.document import KeyPath

__all__ = ["choices_at", "keys_at"]


def keys_at(type_: object, key_path: KeyPath) -> list[str]:
    """Field names of the dataclasses that may stand at the path, sorted."""
    types = _types_at(type_, key_path)
    return sorted({str(name) for each in types if _is_dataclass(each) for name in _keys(each)})


def choices_at(type_: object, key_path: KeyPath) -> list[str]:
    """Values of the enums and literals that may stand at the path, sorted."""
    choices: set[str] = set()
    for each in _types_at(type_, key_path):
        if isinstance(each, type) and issubclass(each, Enum):
            choices.update(str(member.value) for member in each)
        elif get_origin(each) is Literal:
            choices.update(str(value) for value in get_args(each))
    return sorted(choices)


def _types_at(type_: object, key_path: KeyPath) -> list[Any]:
    types = _alternatives(type_)
    for part in key_path:
        types = [inner for each in types for below in _below(each, part) for inner in _alternatives(below)]
    return types


def _alternatives(type_: object) -> list[Any]:
    origin = get_origin(type_)
    if origin is Annotated:
        return _alternatives(get_args(type_)[0])
    if origin is Union or origin is UnionType:
        return [inner for each in get_args(type_) for inner in _alternatives(each)]
    return [type_]


def _below(type_: Any, part: str | int) -> Iterable[object]:  # noqa: ANN401 -- any type annotation
    if _is_dataclass(type_):
        keys = _keys(type_)
        return [keys[part]] if part in keys else []
    origin, args = get_origin(type_), get_args(type_)
    if not isinstance(origin, type) or not args:
        return []
    if issubclass(origin, Mapping):
        return [args[1]]
    if issubclass(origin, tuple) and args[-1] is not Ellipsis:
        return [args[part]] if isinstance(part, int) and part < len(args) else []
    if issubclass(origin, Sequence) or issubclass(origin, frozenset | set):
        return [args[0]]
    return []


def _keys(type_: Any) -> dict[str | int, object]:  # noqa: ANN401 -- any dataclass
    """A dataclass's fields by the key that a document has for each: an alias where the name is no Python name."""
    hints = get_type_hints(type_, include_extras=True)
    keys: dict[str | int, object] = {}
    for field in dataclasses.fields(type_):
        marks = get_args(hints[field.name])[1:] if get_origin(hints[field.name]) is Annotated else ()
        alias = next((mark.alias for mark in marks if isinstance(mark, FieldInfo) and mark.alias), field.name)
        keys[alias] = hints[field.name]
    return keys


def _is_dataclass(type_: object) -> bool:
    return isinstance(type_, type) and dataclasses.is_dataclass(type_)
