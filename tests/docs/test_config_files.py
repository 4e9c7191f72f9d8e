"""`config-files.md` against the readers, and every TOML example of the docs."""

import dataclasses
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairtrial.cli.subjects import VariantEntry, read_variants
from fairtrial.config import yaml_text
from fairtrial.config.document import MAX_DEPTH
from fairtrial.config.read import MAX_FILE_BYTES

ReadTable = Callable[..., list[dict[str, str]]]

PAGE = "config-files.md"


def test_the_keys_of_a_variant_are_those_of_the_program(read_table: ReadTable) -> None:
    told = {line["key"].strip("`"): line["default"] for line in read_table(PAGE, "Subjects (`--subjects-file`, TOML)")}
    fields = {field.name: field for field in dataclasses.fields(VariantEntry)}
    assert list(told) == list(fields)
    required = {
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    assert {name for name, default in told.items() if default == "required"} == required


def test_the_limits_are_those_of_the_program(reference: Path) -> None:
    text = (reference / PAGE).read_text()
    for limit in (f"({MAX_FILE_BYTES} bytes)", f"{MAX_DEPTH} levels", f"{yaml_text._MAX_NODES:,} values"):
        assert limit in text


def toml_examples(clone: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((clone / "docs").rglob("*.md")):
        for block in re.findall(r"(?:^    .*\n|^\n)+", path.read_text(), re.MULTILINE):
            text = textwrap.dedent(block)
            if "[subject." in text:
                yield path.name, text.partition("\nfairtrial ")[0]


def test_every_example_of_a_subjects_file_is_read(clone: Path, tmp_path: Path) -> None:
    examples = list(toml_examples(clone))
    assert {page for page, _ in examples} >= {PAGE, "tune-a-subject.md"}
    for page, text in examples:
        path = tmp_path / page
        path.write_text(text)
        names = re.findall(r"^\[subject\.(\S+)\]", text, re.MULTILINE)
        assert [variant.name for variant in read_variants(names, path)] == names


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(VariantEntry)])
def test_the_how_to_page_names_every_key(key: str, clone: Path) -> None:
    assert f"`{key}`" in (clone / "docs" / "how-to" / "tune-a-subject.md").read_text()


def test_the_tuned_subjects_that_are_shipped_can_be_read_and_are_named_where_they_are_described(clone: Path) -> None:
    path = clone / "docs" / "how-to" / "tuned-subjects.toml"
    names = ["git-fsmonitor", "git-partial-sparse"]
    variants = read_variants(names, path)
    assert [variant.name for variant in variants] == names
    text = (clone / "docs" / "how-to" / "tune-a-subject.md").read_text()
    assert all(f"`{name}`" in text for name in names)
