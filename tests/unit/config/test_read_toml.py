from pathlib import Path

import pytest

from fairtrial.config.document import Document, Position
from fairtrial.config.read import MAX_FILE_BYTES, read_toml
from fairtrial.errors import ConfigError

SUBJECTS = """\
title = "x"  # a comment
fruit.apple.color = 1
fruit.apple.taste = 2

[git-tuned]
subject = "git"
config = { "core.fsmonitor" = "true", pack.threads = [1, { n = 2 }] }
many = [
  1,  # one
  [2, 3],
]

[git-tuned.env]
'A B' = "c"

[[variant]]
name = "a"
[[variant]]
name = "b"
[variant.deep]
k = 1
[[variant.inner]]
z = 1
"""


def read(tmp_path: Path, source: str | bytes) -> Document:
    path = tmp_path / "subjects.toml"
    path.write_bytes(source.encode() if isinstance(source, str) else source)
    return read_toml(path)


def refusal(tmp_path: Path, source: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, source)
    return str(caught.value).removeprefix(f"{tmp_path}/")


def test_every_kind_of_key_has_its_line_and_column(tmp_path: Path) -> None:
    document = read(tmp_path, SUBJECTS)
    assert document.positions == {
        ("title",): (1, 1),
        ("fruit",): (2, 1),
        ("fruit", "apple"): (2, 7),
        ("fruit", "apple", "color"): (2, 13),
        ("fruit", "apple", "taste"): (3, 13),
        ("git-tuned",): (5, 2),
        ("git-tuned", "subject"): (6, 1),
        ("git-tuned", "config"): (7, 1),
        ("git-tuned", "config", "core.fsmonitor"): (7, 12),
        ("git-tuned", "config", "pack"): (7, 39),
        ("git-tuned", "config", "pack", "threads"): (7, 44),
        ("git-tuned", "config", "pack", "threads", 0): (7, 55),
        ("git-tuned", "config", "pack", "threads", 1): (7, 58),
        ("git-tuned", "config", "pack", "threads", 1, "n"): (7, 60),
        ("git-tuned", "many"): (8, 1),
        ("git-tuned", "many", 0): (9, 3),
        ("git-tuned", "many", 1): (10, 3),
        ("git-tuned", "many", 1, 0): (10, 4),
        ("git-tuned", "many", 1, 1): (10, 7),
        ("git-tuned", "env"): (13, 12),
        ("git-tuned", "env", "A B"): (14, 1),
        ("variant",): (16, 3),
        ("variant", 0): (16, 3),
        ("variant", 0, "name"): (17, 1),
        ("variant", 1): (18, 3),
        ("variant", 1, "name"): (19, 1),
        ("variant", 1, "deep"): (20, 10),
        ("variant", 1, "deep", "k"): (21, 1),
        ("variant", 1, "inner"): (22, 11),
        ("variant", 1, "inner", 0): (22, 11),
        ("variant", 1, "inner", 0, "z"): (23, 1),
    }


def test_values_are_tomllibs_own(tmp_path: Path) -> None:
    assert read(tmp_path, SUBJECTS).value == {
        "title": "x",
        "fruit": {"apple": {"color": 1, "taste": 2}},
        "git-tuned": {
            "subject": "git",
            "config": {"core.fsmonitor": "true", "pack": {"threads": [1, {"n": 2}]}},
            "many": [1, [2, 3]],
            "env": {"A B": "c"},
        },
        "variant": [{"name": "a"}, {"name": "b", "deep": {"k": 1}, "inner": [{"z": 1}]}],
    }


def test_columns_count_characters_and_a_byte_order_mark_is_not_one(tmp_path: Path) -> None:
    assert read(tmp_path, '\ufeff"é😀".k = {"ü" = 1, b = 2}\r\n').positions == {
        ("é😀",): (1, 1),
        ("é😀", "k"): (1, 6),
        ("é😀", "k", "ü"): (1, 11),
        ("é😀", "k", "b"): (1, 20),
    }


def test_a_path_that_the_file_lacks_is_located_at_its_nearest_parent(tmp_path: Path) -> None:
    document = read(tmp_path, SUBJECTS)
    assert document.locate(("variant", 1, "deep", "x", 3)) == Position(20, 10)
    assert document.locate(("nothing",)) == Position(1, 1)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a = 1\nb 2\n", "2:3: not valid TOML: Expected '=' after a key in a key/value pair"),
        ("a = 1\na = 2\n", "2:6: not valid TOML: Cannot overwrite a value"),
        ("[a]\n[a]\n", "2:3: not valid TOML: Cannot declare ('a',) twice"),
        ("a = 1\nb = ", "2:5: not valid TOML: Invalid value"),
        ("a = [1,\n", "2:1: not valid TOML: Invalid value"),
        ("[x]\na = nan\n", "2:1: key 'x.a' is not a finite number"),
        ("a = [1, -inf]\n", "1:9: key 'a[1]' is not a finite number"),
        ("a = 1e999\n", "1:1: key 'a' is not a finite number"),
        ("a = 2026-11-29\n", "1:1: key 'a' is a date; quote it to keep it as text"),
        ("a = 2026-11-29T10:00:00Z\n", "1:1: key 'a' is a datetime; quote it"),
        ("a = 10:00:00\n", "1:1: key 'a' is a time; quote it"),
        ("a = 2026-02-30\n", "1:5: not valid TOML: Invalid date"),
        ("a = 0xffffffffffffffff\n", "1:1: key 'a' is an integer beyond 64 bits"),
        ('a = "x\\u0000y"\n', "1:1: key 'a' holds a NUL character"),
        ('"x\\u0000y" = 1\n', "1:1: a key under '' holds a NUL character"),
        ('a = "\\ud800"\n', "1:"),
        ("a = 'x\x00y'\n", "1:7: holds a NUL byte"),
        (b"a = 1\nb = '\xff'\n", "2:6: byte 0xff is not UTF-8"),
    ],
)
def test_what_is_refused_is_refused_with_its_place(tmp_path: Path, source: str | bytes, message: str) -> None:
    assert refusal(tmp_path, source).startswith(f"subjects.toml:{message}")


def test_a_number_without_end_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "a = " + "9" * 5000).startswith("subjects.toml: not valid TOML: Exceeds the limit")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    assert "is larger than" in refusal(tmp_path, b"#" * (MAX_FILE_BYTES + 1))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory; name a file that can be read"):
        read_toml(tmp_path)
