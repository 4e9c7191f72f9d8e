import hashlib
import os
from pathlib import Path

import pytest

from fairtrial.config.document import Document, Position
from fairtrial.config.read import MAX_FILE_BYTES, read_yaml
from fairtrial.errors import ConfigError

TASKS = """\
# tasks
tasks:
  fix-parser:
    verify: make test
    phases:
      - prompt: |
          Fix it.
      - {prompt: again, tools: [a, b]}
  'second': {verify: x}
"""


def read(tmp_path: Path, source: str | bytes) -> Document:
    path = tmp_path / "tasks.yaml"
    path.write_bytes(source.encode() if isinstance(source, str) else source)
    return read_yaml(path)


def refusal(tmp_path: Path, source: str | bytes) -> str:
    """The message, without the directory, that starts with `tasks.yaml:LINE:COLUMN: `."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, source)
    return str(caught.value).removeprefix(f"{tmp_path}/")


def test_values_are_those_of_yaml_1_2_and_no_stays_text(tmp_path: Path) -> None:
    document = read(
        tmp_path,
        "a: no\nb: yes\nc: true\nd: null\ne: ~\nf:\ng: 0x1F\nh: 0o17\ni: 017\nj: 1e3\nk: -.5\nl: 2026-11-29\n"
        "m: 1_000\nn: 12:30\no: '1'\np: on\nq: 1.2.3\n",
    )
    assert document.value == {
        "a": "no", "b": "yes", "c": True, "d": None, "e": None, "f": None, "g": 31, "h": 15, "i": 17, "j": 1000.0,
        "k": -0.5, "l": "2026-11-29", "m": "1_000", "n": "12:30", "o": "1", "p": "on", "q": "1.2.3",
    }  # fmt: skip


def test_every_key_and_item_has_its_line_and_column(tmp_path: Path) -> None:
    document = read(tmp_path, TASKS)
    assert document.value == {
        "tasks": {
            "fix-parser": {
                "verify": "make test",
                "phases": [{"prompt": "Fix it.\n"}, {"prompt": "again", "tools": ["a", "b"]}],
            },
            "second": {"verify": "x"},
        }
    }
    assert document.positions == {
        ("tasks",): (2, 1),
        ("tasks", "fix-parser"): (3, 3),
        ("tasks", "fix-parser", "verify"): (4, 5),
        ("tasks", "fix-parser", "phases"): (5, 5),
        ("tasks", "fix-parser", "phases", 0): (6, 9),
        ("tasks", "fix-parser", "phases", 0, "prompt"): (6, 9),
        ("tasks", "fix-parser", "phases", 1): (8, 9),
        ("tasks", "fix-parser", "phases", 1, "prompt"): (8, 10),
        ("tasks", "fix-parser", "phases", 1, "tools"): (8, 25),
        ("tasks", "fix-parser", "phases", 1, "tools", 0): (8, 33),
        ("tasks", "fix-parser", "phases", 1, "tools", 1): (8, 36),
        ("tasks", "second"): (9, 3),
        ("tasks", "second", "verify"): (9, 14),
    }


def test_a_path_that_the_file_lacks_is_located_at_its_nearest_parent(tmp_path: Path) -> None:
    document = read(tmp_path, TASKS)
    assert document.locate(("tasks", "fix-parser", "oracle", "run")) == Position(3, 3)
    assert document.locate(("nothing",)) == Position(1, 1)


def test_columns_count_characters_and_a_byte_order_mark_is_not_one(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff{'é😀': 1, b: 2}\n").positions == {("é😀",): (1, 2), ("b",): (1, 11)}


def test_the_digest_is_that_of_the_bytes_on_disk(tmp_path: Path) -> None:
    source = "\ufeffa: 1\r\n".encode()
    assert read(tmp_path, source).sha256 == hashlib.sha256(source).hexdigest()


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "# only a comment\n").value is None


def test_an_alias_repeats_its_value_and_is_located_where_it_stands(tmp_path: Path) -> None:
    document = read(tmp_path, "base: &b {x: 1}\nuse: *b\nname: &n key\n*n : v\n")
    assert document.value == {"base": {"x": 1}, "use": {"x": 1}, "name": "key", "key": "v"}
    assert document.locate(("use", "x")) == Position(2, 1)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "4:3: duplicate key 'c'; it stands in line 3 too"),
        ("a: !!python/object:os.system x\n", "1:4: tag"),
        ("a: !!str 1\n", "1:4: tag"),
        ("a: !thing {x: 1}\n", "1:4: tag '!thing' is not supported"),
        ("- !u [1]\n", "1:3: tag"),
        ("1: x\n", "1:1: a key must be text; quote it"),
        ("{a: 1}: x\n", "1:1: a key must be text"),
        ("? [a]\n: x\n", "1:3: a key must be text"),
        ("a: 1\n---\nb: 2\n", "2:1: a second document begins here"),
        ("%YAML 1.1\n---\na: no\n", "2:1: only YAML 1.2 is read"),
        ("a: &a [*a]\n", "1:8: alias '*a' names no complete value above it"),
        ("a: *b\n", "1:4: alias '*b'"),
        ("a: .nan\n", "1:4: .nan is not a finite number"),
        ("a: [-.inf]\n", "1:5: -.inf is not a finite number"),
        ("a: 1e999\n", "1:1: key 'a' is not a finite number"),
        ("a: 9223372036854775808\n", "1:1: key 'a' is an integer beyond 64 bits; quote it"),
        ("a: " + "9" * 5000 + "\n", "1:4: an integer of 5000 characters is longer than 64 bits need; quote it"),
        ('a: "x\\0y"\n', "1:1: key 'a' holds a NUL character"),
        ('"x\\0y": 1\n', "1:1: a key under '' holds a NUL character"),
        ('a: "\\ud800"\n', "1:1: key 'a' holds a lone surrogate"),
        ('a: "\\UFFFFFFFF"\n', "1:"),
        ("a: x\x00y\n", "1:5: holds a NUL byte; it is not a text file"),
        ("a: b\nc: \x07\n", "2:4: character 7 is not allowed"),
        ("a: 1\n\tb: 2\n", "2:1: found character '\\t'"),
        ("a: {b: 1\n", "2:1: "),
        ("a: b: c\n", "1:5: mapping values are not allowed here"),
        (b"ok: 1\ncaf\xc3\xa9: \xff\n", "2:7: byte 0xff is not UTF-8; save the file as UTF-8"),
        (b"\xff\xfea\x00", "1:1: byte 0xff is not UTF-8"),
    ],
)
def test_what_is_refused_is_refused_with_its_place(tmp_path: Path, source: str | bytes, message: str) -> None:
    assert refusal(tmp_path, source).startswith(f"tasks.yaml:{message}")


def test_a_message_is_one_line(tmp_path: Path) -> None:
    assert "\n" not in refusal(tmp_path, "a: [1\nb: 'x\n")


def test_a_file_that_is_too_large_is_refused_and_a_device_does_not_fill_memory(tmp_path: Path) -> None:
    assert "is larger than" in refusal(tmp_path, b"#" * (MAX_FILE_BYTES + 1))
    assert read(tmp_path, b"#" * MAX_FILE_BYTES).value is None
    with pytest.raises(ConfigError, match="is larger than"):
        read_yaml(Path("/dev/zero"))


def test_a_pipe_that_nobody_writes_to_is_not_waited_for_and_one_that_is_written_to_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is a pipe that nobody writes to"):
        read_yaml(tmp_path / "pipe")
    reader, writer = os.pipe()
    os.write(writer, b"a: 1")
    os.close(writer)
    try:
        assert read_yaml(Path(f"/dev/fd/{reader}")).value == {"a": 1}
    finally:
        os.close(reader)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.yaml", tmp_path, tmp_path / "a\0b"):
        with pytest.raises(ConfigError, match=r"cannot be read: ") as caught:
            read_yaml(path)
        assert caught.value.path == path
        assert caught.value.line is None


def test_an_error_names_the_innermost_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "a:\n  b:\n    - c: 1\n      c: 2\n")
    assert (caught.value.line, caught.value.column, caught.value.key) == (4, 7, "a.b[0]")
