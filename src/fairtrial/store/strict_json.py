"""JSON as this project writes and believes it.

Writing: compact, UTF-8, one form for each value, and never anything that reading would refuse. Reading: one object, no
duplicate key, no NaN or infinity (not even 1e999), no more than 200 levels, no half characters. What a key means is not
decided here.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar, cast

import orjson
from pydantic_core import SchemaValidator, core_schema, from_json, to_json

__all__ = [
    "JsonObject",
    "MalformedJsonError",
    "MemberReader",
    "encode_object",
    "parse_object",
    "render_parsed",
    "take",
    "take_objects",
]

JsonObject = dict[str, object]
T = TypeVar("T")

_MOST_LEVELS: Final = 200
"""What the parser of the reference reads."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class MalformedJsonError(ValueError):
    """A text is not one strict JSON object; the message says what is wrong, the caller knows where."""


def encode_object(value: Mapping[str, object]) -> bytes:
    """Write an object as one compact line without its newline.

    A file name that is not UTF-8 reaches us as lone surrogates, which no UTF-8 text can hold: each becomes U+FFFD.

    Raises:
        ValueError: A NaN, an infinity, more than 200 levels, or no plain JSON: a bug of the caller.
    """
    try:
        data = to_json(value, inf_nan_mode="constants")
    except ValueError:
        data = to_json(_as_plain_json(value))
    # Evidence that we ourselves could not read again would be lost: find out while the caller still has it. The
    # serializer also writes dates and paths as strings, in silence; only tuples may come back as something else.
    if parse_object(data) != value:
        data = to_json(_as_plain_json(value))
    return data


def render_parsed(value: JsonObject) -> bytes:
    """Write what was parsed, or is plain by its types, in the form of `encode_object`."""
    return to_json(value)


def _as_plain_json(value: Mapping[str, object]) -> object:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return json.loads(_LONE_SURROGATE.sub("\ufffd", text))


def parse_object(text: bytes) -> JsonObject:
    """Read one strict JSON object.

    Parsers keep the last of two equal keys in silence, and some read 1e999 as infinity. What is written back to the
    same bytes can hold neither; a text in any other form is looked through by slower parsers, which say what is wrong.

    Raises:
        MalformedJsonError: It is not one.
    """
    if (quick := _parse_own_form(text)) is not None:
        return quick
    try:
        value: object = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise MalformedJsonError(str(error)) from None
    if type(value) is not dict:
        raise MalformedJsonError("not a JSON object")
    if to_json(value) != text:
        json.loads(text, object_pairs_hook=_refuse_duplicates, parse_float=_refuse_infinity)
    return cast("JsonObject", value)


def _parse_own_form(text: bytes) -> JsonObject | None:
    """Read an object that is written as we write it, in half the time; None for whatever is not, or may be too deep."""
    if text.count(b"{") + text.count(b"[") > _MOST_LEVELS:
        return None
    try:
        value: object = orjson.loads(text)
    except ValueError:
        return None
    return cast("JsonObject", value) if type(value) is dict and orjson.dumps(value) == text else None


class MemberReader:
    """Reads a few members of objects that are known to be strict: twice as quick as reading them whole.

    Args:
        names: The members; one that an object lacks is left out.
    """

    def __init__(self, names: Iterable[str]) -> None:
        fields = {name: core_schema.typed_dict_field(core_schema.any_schema(), required=False) for name in names}
        self._validator = SchemaValidator(core_schema.typed_dict_schema(fields, extra_behavior="ignore"))

    def read(self, text: bytes) -> JsonObject:
        """Read them.

        Raises:
            ValueError: It is no object.
        """
        return cast("JsonObject", self._validator.validate_json(text))


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        name, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        message = f"duplicate key {name!r}"
        raise MalformedJsonError(message)
    return found


def _refuse_infinity(digits: str) -> float:
    number = float(digits)
    if number - number != 0.0:
        message = f"a number is too large: {digits[:40]}"
        raise MalformedJsonError(message)
    return number


def take(value: Mapping[str, object], name: str, kind: type[T]) -> T:
    """Return a member of exactly this type.

    Raises:
        MalformedJsonError: There is none.
    """
    member = value.get(name)
    if type(member) is not kind:
        message = f"no {name}" if member is None else f"{name} is of another type"
        raise MalformedJsonError(message)
    return member


def take_objects(value: Mapping[str, object], name: str) -> list[JsonObject]:
    """Return a member that is a list of objects.

    Raises:
        MalformedJsonError: There is none.
    """
    members = cast("list[JsonObject]", take(value, name, list))
    for position, member in enumerate(members):
        if type(member) is not dict:
            message = f"{name}[{position}] is no object"
            raise MalformedJsonError(message)
    return members
