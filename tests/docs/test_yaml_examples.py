"""Every YAML example of the how-to pages against the forms that are read."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.bench.arms import ArmsFile, read_arms
from fairtrial.bench.task_file import TaskFile
from fairtrial.config.read import read_yaml
from fairtrial.config.validate import validate

PAGES = ("write-a-task.md", "write-an-oracle.md", "define-an-arm.md")
WITHOUT_ORACLE = "id: t\nclass: c\nrepo: r\nprompt: p\nverify: v\n"
ORACLE = "oracle: {command: c, files: [{source: s, target: t}]}\n"


def examples(clone: Path, page: str) -> Iterator[str]:
    text = (clone / "docs" / "how-to" / page).read_text()
    for block in re.findall(r"(?:^    .*\n|^\n)+", text, re.MULTILINE):
        example = textwrap.dedent(block)
        if re.match(r"\s*[a-z]+:", example):
            yield example.partition("\nfairtrial ")[0]


def as_task(keys: str) -> str:
    """A task file with one task of those keys."""
    return "tasks:\n  -\n" + textwrap.indent(keys, "    ")


@pytest.mark.parametrize("page", PAGES)
def test_every_example_is_read(page: str, clone: Path, tmp_path: Path) -> None:
    found = list(examples(clone, page))
    assert found
    path = tmp_path / "example.yaml"
    for example in found:
        first = example.split(":")[0].strip()
        if first == "arms":
            path.write_text(example)
            assert validate(read_yaml(path), ArmsFile).arms.keys() <= read_arms(path).keys()
            continue
        whole = {"tasks": example, "oracle": as_task(WITHOUT_ORACLE + example)}
        path.write_text(whole.get(first) or as_task(WITHOUT_ORACLE + ORACLE + example))
        assert validate(read_yaml(path), TaskFile).tasks
