"""`results-directory.md` against the directory of a real sweep."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.store.layout import Results
from fairtrial.store.reserve import LOW_SPACE_BYTES, RESERVE_BYTES

pytestmark = [pytest.mark.needs("git"), pytest.mark.xdist_group("measurement"), pytest.mark.timeout(900)]

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

PAGE = "results-directory.md"
LATER = {"report.html", "promotion.json"}
"""Files that the layout has a place for and that this version does not write."""


def one_of(sweep: Path, name: str) -> dict[str, Any]:
    """The first document of that name, or the first line of it."""
    found = sorted(sweep.rglob(name))
    assert found, name
    text = found[0].read_text()
    data: dict[str, Any] = json.loads(text if name.endswith(".json") else text.splitlines()[0])
    return data


def documented(read_table: ReadTable, heading: str) -> set[str]:
    return {line["field"].strip("`") for line in read_table(PAGE, heading)}


def test_every_file_of_the_directory_is_in_the_reference(sweep: Path, read_table: ReadTable) -> None:
    paths = {line["path"].strip("`") for line in read_table(PAGE, "The results directory")}
    for path in sweep.rglob("*"):
        name = re.sub(r"^trials/[0-9a-f]{16}/\d+", "trials/<id>/<attempt>", str(path.relative_to(sweep)))
        if path.is_file():
            assert name in paths
    layout = Results(root=Path())
    placed = {
        str(value) for name in vars(Results) if name[0] != "_" and isinstance(value := getattr(layout, name), Path)
    }
    assert placed - {"."} - LATER <= {path.rstrip("/").partition("/")[0] for path in paths}


@pytest.mark.parametrize("name", ["sweep.json", "intent.json", "outcome.json", "seal.json", "wire.json"])
def test_every_field_of_a_document_is_in_the_reference(name: str, sweep: Path, read_table: ReadTable) -> None:
    assert documented(read_table, name) == one_of(sweep, name).keys()


def test_every_field_of_a_transcript_is_in_the_reference(sweep: Path, read_table: ReadTable) -> None:
    assert documented(read_table, "transcript.jsonl") == one_of(sweep, "transcript.jsonl").keys()


@pytest.mark.parametrize("field", ["options", "machine"])
def test_what_stands_inside_a_field_of_the_sweeps_file_is_named(
    field: str, sweep: Path, read_table: ReadTable, names: Names
) -> None:
    (line,) = (line for line in read_table(PAGE, "sweep.json") if line["field"] == f"`{field}`")
    assert set(names(line["meaning"])) == one_of(sweep, "sweep.json")[field].keys()


def test_the_variants_of_the_sweeps_file_are_described(sweep: Path, read_table: ReadTable, names: Names) -> None:
    (line,) = (line for line in read_table(PAGE, "sweep.json") if line["field"] == "`variants`")
    assert set(names(line["meaning"])) == one_of(sweep, "sweep.json")["variants"][0].keys()


def test_the_sizes_are_those_of_the_program(reference: Path) -> None:
    text = (reference / PAGE).read_text()
    assert f"{RESERVE_BYTES >> 20} MiB kept for the last rows" in text
    assert f"less than {LOW_SPACE_BYTES >> 20} MiB free" in text
