"""`results-directory.md` against the directory of a real sweep of the agent lane."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.xdist_group("bench-docs"), pytest.mark.timeout(300)]

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

PAGE = "results-directory.md"
SWEEP = "sweep.json of the agent lane"


@pytest.fixture
def record(bench: Path) -> dict[str, Any]:
    """What the sweep's file holds."""
    value: dict[str, Any] = json.loads((bench / "sweep.json").read_text())
    return value


def test_every_file_of_the_directory_is_in_the_reference(bench: Path, read_table: ReadTable) -> None:
    paths = {line["path"].strip("`") for line in read_table(PAGE, "The results directory")}
    found = {str(path.relative_to(bench)) for path in bench.rglob("*") if path.is_file()}
    generic = {re.sub(r"^trials/[0-9a-f]{16}/\d+", "trials/<id>/<attempt>", name) for name in found}
    assert {re.sub(r"-(work|plan)\.jsonl$", "-<phase>.jsonl", name) for name in generic} <= paths


def test_every_field_of_the_sweeps_file_is_in_the_reference(record: dict[str, Any], read_table: ReadTable) -> None:
    told = {line["field"].strip("`") for heading in ("sweep.json", SWEEP) for line in read_table(PAGE, heading)}
    assert record.keys() <= told
    assert {line["field"].strip("`") for line in read_table(PAGE, SWEEP)} <= record.keys()


def test_the_options_and_an_entry_of_the_plan_are_told_whole(
    record: dict[str, Any], read_table: ReadTable, names: Names
) -> None:
    meaning = {line["field"].strip("`"): names(line["meaning"]) for line in read_table(PAGE, SWEEP)}
    assert set(meaning["options"]) - {"check"} == record["options"].keys()
    assert meaning["plan"] == list(record["plan"][0])


def test_every_field_of_a_judgement_is_in_the_reference(bench: Path, read_table: ReadTable, names: Names) -> None:
    lines = {line["field"].strip("`"): names(line["meaning"]) for line in read_table(PAGE, "judgement-whole.json")}
    for name in ("judgement-whole.json", "judgement-source-only.json"):
        found = sorted(bench.rglob(name))
        assert found, name
        judgement = json.loads(found[0].read_text())
        assert list(lines) == list(judgement)
        assert lines["files"] == list(judgement["files"][0])
