"""Small configuration files that would take all memory, all time, or the interpreter's stack."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.config.document import MAX_DEPTH, TOO_DEEP, Document
from fairtrial.config.read import read_toml, read_yaml
from fairtrial.errors import ConfigError

Reader = Callable[[Path], Document]


def refusal(reader: Reader, path: Path, source: str) -> str:
    path.write_text(source)
    with pytest.raises(ConfigError) as caught:
        reader(path)
    return str(caught.value).removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("reader", "source"),
    [
        (read_yaml, "[" * MAX_DEPTH + "]" * MAX_DEPTH),
        (read_toml, "a=" + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)),
    ],
)
def test_the_deepest_nesting_that_is_allowed_is_read(reader: Reader, tmp_path: Path, source: str) -> None:
    path = tmp_path / "deep"
    path.write_text(source)
    assert reader(path).value


@pytest.mark.parametrize("piece", ["[", "- ", "{a: "])
def test_yaml_nested_without_end_does_not_reach_the_interpreters_limit(tmp_path: Path, piece: str) -> None:
    assert refusal(read_yaml, tmp_path / "deep", piece * 50_000).endswith(TOO_DEEP)


def test_yaml_nested_by_aliases_does_not_reach_the_interpreters_limit(tmp_path: Path) -> None:
    chain = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 200))
    assert refusal(read_yaml, tmp_path / "deep", chain).endswith(TOO_DEEP)


def test_yaml_aliases_that_multiply_do_not_fill_memory(tmp_path: Path) -> None:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)]  # ten to the ninth values
    message = refusal(read_yaml, tmp_path / "laughs", "a0: &a0 lol\n" + "".join(levels))
    assert message == "6:25: more than 50000 values, aliases expanded; split the file"


@pytest.mark.parametrize(
    "source",
    [
        "a=" + "[" * 500_000,
        "a=" + "[" * 1000 + "]" * 1000,
        "a=" + "{a=" * 100 + "1" + "}" * 100,
        "[" + ".".join("a" * (MAX_DEPTH + 1)) + "]",
    ],
    ids=["open arrays", "arrays", "inline tables", "table header"],
)
def test_toml_nested_without_end_does_not_reach_the_interpreters_limit(tmp_path: Path, source: str) -> None:
    assert refusal(read_toml, tmp_path / "deep", source).endswith(TOO_DEEP)


@pytest.mark.parametrize("end", ["a = 1", "", "a]"])
def test_toml_keys_of_many_parts_do_not_keep_the_parser_busy_for_hours(tmp_path: Path, end: str) -> None:
    # tomllib's time grows with the square of the parts: 24 s for 32,000.
    source = ("[" if end == "a]" else "") + "a." * 400_000 + end
    assert refusal(read_toml, tmp_path / "dots", source).endswith(TOO_DEEP)
