import json
import math
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.store.strict_json import (
    MalformedJsonError,
    MemberReader,
    encode_object,
    parse_object,
    take,
    take_objects,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=5)


class Colour(StrEnum):
    RED = "red"


@given(OBJECTS)
def test_what_is_written_reads_back_the_same(value: dict[str, object]) -> None:
    data = encode_object(value)
    assert b"\n" not in data
    read = parse_object(data)
    assert encode_object(read) == data
    if data.isascii() or b"\xef\xbf\xbd" not in data:
        assert read == value
    for name in value:
        assert MemberReader([name, "another"]).read(data) == {
            key: read[key] for key in (name, "another") if key in read
        }


@given(OBJECTS)
def test_what_the_standard_library_writes_in_any_layout_is_read(value: dict[str, object]) -> None:
    expected = parse_object(encode_object(value))
    texts = (json.dumps(value, indent=2), json.dumps(value, separators=(" , ", " : ")))
    for text in texts:
        if "\\ud" not in text:
            assert parse_object(text.encode()) == expected


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_an_object_or_malformed(data: bytes) -> None:
    try:
        value = parse_object(data)
    except MalformedJsonError:
        return
    assert value == json.loads(data)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "EOF"),
        (b"[]", "not a JSON object"),
        (b"1", "not a JSON object"),
        (b'{"a":1', "EOF"),
        (b'{"a":1}x', "trailing"),
        (b"{}\x00", "trailing"),
        (b'{"a":NaN}', "expected value"),
        (b'{"a":-Infinity}', "invalid number"),
        (b'{"a":1e999}', "a number is too large: 1e999"),
        (b'{"a":[{"b":-1e999}]}', "a number is too large"),
        (b'{"a":1,"a":1}', "duplicate key 'a'"),
        (b'{"a":1,"b" :2,"b":2}', "duplicate key 'b'"),
        (b'{"a":1,"\\u0061":1}', "duplicate key 'a'"),
        (b'{"x":[{"a":1,"b":2,"a":3}]}', "duplicate key 'a'"),
        (b'{"s":"\\u0022:","a":1,"a":1}', "duplicate key 'a'"),
        (b'{"a":"\xff"}', "unicode"),
        (b'{"a":"\\ud800"}', "hex escape"),
        (b'{"a":"\x01"}', "control character"),
        (b"\xef\xbb\xbf{}", "expected value"),
        (b'{"a":' + b"[" * 250 + b"]" * 250 + b"}", "recursion"),
        (b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", "recursion"),
        (b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}", "recursion"),
        (b'{"a":' + b"[" * 100_000, "recursion"),
        (b'{"a":' + b"9" * 5000 + b"}", "number out of range"),
    ],
)
def test_what_is_not_strict_json_is_refused_and_says_why(text: bytes, why: str) -> None:
    with pytest.raises(MalformedJsonError, match=why):
        parse_object(text)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        -math.inf,
        datetime(2026, 11, 29, tzinfo=UTC),
        Path("/x"),
        b"\xff",
        {1, 2},
        object(),
    ],
)
def test_what_is_not_plain_json_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        encode_object({"a": value})


def test_a_value_too_deep_to_be_read_back_is_not_written() -> None:
    for depth in (201, 300, 5000):
        value: object = 1
        for _ in range(depth):
            value = [value]
        with pytest.raises(ValueError, match=r".+"):
            encode_object({"a": value})


def test_tuples_and_string_enums_are_written_as_json_has_them() -> None:
    assert encode_object({"a": (1, ("x", None)), "b": Colour.RED}) == b'{"a":[1,["x",null]],"b":"red"}'


def test_half_characters_of_a_foreign_file_name_become_the_replacement_character() -> None:
    name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")
    assert (
        encode_object({"name": name, name: (name,)})
        == '{"name":"caf\ufffd.txt","caf\ufffd.txt":["caf\ufffd.txt"]}'.encode()
    )


def test_members_are_taken_only_in_their_type() -> None:
    value: dict[str, object] = {"n": 1, "yes": True, "objects": [{}, {"a": 1}], "mixed": [{}, 1]}
    assert take(value, "n", int) == 1
    assert take_objects(value, "objects") == [{}, {"a": 1}]
    with pytest.raises(MalformedJsonError, match="no missing"):
        take(value, "missing", int)
    with pytest.raises(MalformedJsonError, match="yes is of another type"):
        take(value, "yes", int)
    with pytest.raises(MalformedJsonError, match=r"mixed\[1\] is no object"):
        take_objects(value, "mixed")
