"""Whatever is in the file, a reader ends with a document or with a `ConfigError`, and its message is for people."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairtrial.config.document import Document, KeyPath, PlainValue, show_path
from fairtrial.config.read import read_toml, read_yaml
from fairtrial.config.validate import validate
from fairtrial.errors import ConfigError

Reader = Callable[[Path], Document]

READERS = pytest.mark.parametrize("reader", [read_yaml, read_toml])


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    a: str
    b: int = 0
    c: Colour | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    leaves: dict[str, Leaf] = field(default_factory=dict[str, Leaf])
    pairs: tuple[tuple[Leaf, float], ...] = ()
    either: Leaf | list[Leaf] | Literal["none"] | None = None


# Pieces of syntax, and keys of `Root`: far more of these texts get past the scanner than of arbitrary ones.
PIECES = st.lists(
    st.sampled_from(
        [
            *(
                "\n",
                "\n  ",
                "\n    ",
                "\t",
                " ",
                "\r\n",
                ": ",
                "- ",
                "? ",
                ", ",
                "[",
                "]",
                "{",
                "}",
                "#",
                "=",
                ".",
                "[[",
                "]]",
            ),
            *(
                "&a ",
                "*a",
                "!t ",
                "!!int ",
                "|",
                ">",
                "|+1\n",
                "'",
                '"',
                "'''",
                '"""',
                "\\",
                "%YAML 1.2\n",
                "---\n",
                "...\n",
            ),
            *(
                "a",
                "b",
                "leaves",
                "pairs",
                "either",
                "x.y",
                "'k'",
                "é",
                "\u2028",
                "\x85",
                "\ufeff",
                "\x00",
                "\x1b",
                "😀",
            ),
            *(
                "0",
                "1",
                "-1",
                "0x1F",
                "0o7",
                "1.5",
                "1e400",
                "nan",
                ".inf",
                "true",
                "null",
                "~",
                "no",
                "2026-11-29",
                "9" * 20,
            ),
            *("<<", "@", "`", "%", '"\\ud800"', '"\\U0010FFFF"', '"\\UFFFFFFFF"', '"\\0"', "red", "none", "99" * 2500),
        ]
    ),
    max_size=60,
).map("".join)

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXT | st.sampled_from("abc"), below, max_size=4),
    max_leaves=20,
)

ROOTS = st.fixed_dictionaries(
    {},
    optional={
        key: VALUES | st.dictionaries(TEXT, VALUES, max_size=3) for key in ("leaves", "pairs", "either", "leafs")
    },
)


def read_or_refuse(reader: Reader, source: bytes) -> Document | None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(source)
        file.flush()
        path = Path(file.name)
        try:
            document = reader(path)
        except ConfigError as error:
            require_one_good_line(error, str(error), path)
            return None
        for key_path, position in document.positions.items():
            assert position.line >= 1, key_path
            assert position.column >= 1, key_path
        validate_or_refuse(document)
        return document


def validate_or_refuse(document: Document) -> None:
    try:
        validate(document, Root)
    except ConfigError as error:
        for line in str(error).splitlines():
            require_one_good_line(error, line, document.path)


def require_one_good_line(error: ConfigError, line: str, path: Path) -> None:
    assert line.startswith(f"{path}:")
    assert line.isprintable(), line
    assert (error.line is None) == (error.column is None)


@READERS
@given(source=st.binary(max_size=200))
@example(source=b"\xef\xbb\xbf\xff")
def test_arbitrary_bytes_are_read_or_refused(reader: Reader, source: bytes) -> None:
    read_or_refuse(reader, source)


@READERS
@given(text=st.text(max_size=200) | PIECES)
@example(text="*\ud7fc")  # an alias whose name no terminal can show
@settings(max_examples=500)
def test_arbitrary_text_is_read_or_refused(reader: Reader, text: str) -> None:
    read_or_refuse(reader, text.encode("utf-8", "surrogatepass"))


@given(value=VALUES | ROOTS)
def test_what_is_written_as_flow_yaml_comes_back_with_a_position_for_every_key(value: PlainValue) -> None:
    document = read_or_refuse(read_yaml, json.dumps(value, ensure_ascii=False).encode())
    assert document is not None
    assert document.value == value
    assert set(document.positions) == set(key_paths(value))


@given(value=ROOTS | st.dictionaries(TEXT, VALUES, max_size=4))
def test_what_is_written_as_toml_comes_back_with_a_position_for_every_key(value: dict[str, PlainValue]) -> None:
    value = {key: below for key, below in value.items() if "null" not in json.dumps(below)}  # which TOML has not
    document = read_or_refuse(
        read_toml, "".join(f"{toml(key)} = {toml(below)}\n" for key, below in value.items()).encode()
    )
    assert document is not None
    assert document.value == value
    assert set(document.positions) == set(key_paths(value))


@given(value=VALUES | ROOTS)
def test_arbitrary_documents_fit_or_are_refused(value: PlainValue) -> None:
    validate_or_refuse(Document(path=Path("any.yaml"), sha256="", value=value, positions={}))


@given(key_path=st.lists(st.integers(0, 9) | TEXT).map(tuple))
def test_every_key_path_can_be_shown(key_path: KeyPath) -> None:
    assert isinstance(show_path(key_path), str)


def key_paths(value: PlainValue, base: KeyPath = ()) -> list[KeyPath]:
    if isinstance(value, dict):
        below = [((*base, key), inner) for key, inner in value.items()]
    elif isinstance(value, list):
        below = [((*base, index), inner) for index, inner in enumerate(value)]
    else:
        return []
    return [path for key_path, inner in below for path in (key_path, *key_paths(inner, key_path))]


def toml(value: PlainValue) -> str:
    """A value, or a key, as TOML; JSON's text escapes are TOML's, too, within the basic plane."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(below) for below in value) + "]"
    return json.dumps(value, ensure_ascii=False)
