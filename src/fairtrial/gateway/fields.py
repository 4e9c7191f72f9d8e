"""Members of JSON objects that somebody else wrote: what is not of the wanted type is not there."""

from collections.abc import Mapping
from typing import Final, cast

from pydantic_core import from_json, to_json

from fairtrial.gateway.dialect import JsonObject

__all__ = [
    "as_object",
    "count_in",
    "joined_text",
    "list_in",
    "object_in",
    "objects_in",
    "parse_arguments",
    "render_compact",
    "text_in",
]

_MAX_COUNT: Final = 2**53


def as_object(value: object) -> JsonObject | None:
    """The value if it is an object."""
    return cast("JsonObject", value) if isinstance(value, dict) else None


def object_in(source: Mapping[str, object], *names: str) -> JsonObject:
    """The object at the path of names; an empty one when there is none."""
    found: Mapping[str, object] = source
    for name in names:
        value = found.get(name)
        if not isinstance(value, dict):
            return {}
        found = cast("JsonObject", value)
    return cast("JsonObject", found)


def list_in(source: Mapping[str, object], name: str) -> list[object]:
    """The list of that name; an empty one when there is none."""
    value = source.get(name)
    return cast("list[object]", value) if isinstance(value, list) else []


def objects_in(source: Mapping[str, object], name: str) -> list[JsonObject]:
    """The objects in the list of that name."""
    return [cast("JsonObject", value) for value in list_in(source, name) if isinstance(value, dict)]


def text_in(source: Mapping[str, object], name: str) -> str | None:
    """The text of that name."""
    value = source.get(name)
    return value if isinstance(value, str) else None


def count_in(source: Mapping[str, object], name: str) -> int | None:
    """The count of that name: a whole number that is not negative; 12.0 is 12."""
    value = source.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < _MAX_COUNT else None


def joined_text(value: object, *kinds: str) -> str:
    """A text, or the texts of a list of parts whose `type` is one of the kinds, joined by newlines."""
    if isinstance(value, str):
        return value
    parts = cast("list[object]", value) if isinstance(value, list) else []
    objects = [cast("JsonObject", part) for part in parts if isinstance(part, dict)]
    texts = [text_in(part, "text") for part in objects if part.get("type") in kinds]
    return "\n".join(text for text in texts if text)


def parse_arguments(text: str) -> JsonObject | None:
    """The arguments of a tool call as their text holds them; None when that is no JSON object. No text is `{}`."""
    if not text.strip():
        return {}
    try:
        return as_object(from_json(text))
    except ValueError:
        return None


def render_compact(value: object) -> bytes:
    """Write plain values as compact JSON."""
    return to_json(value, inf_nan_mode="constants")
