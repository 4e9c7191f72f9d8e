"""`how-to/install-the-subjects.md` against what the subjects say when they are missing, and against what CI sets up."""

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from fairtrial.model.loop import Variant

PAGE = "docs/how-to/install-the-subjects.md"
ROW = re.compile(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \| `([^`]+)` \|$", re.MULTILINE)
PINS = re.compile(r"^declare -Ar versions=\(\[oak\]=([\d.]+) \[jj\]=([\d.]+)\)$", re.MULTILINE)
OLDEST_RUST = re.compile(r"^declare -Ar oldest=\(\[oak\]=([\d.]+) \[jj\]=([\d.]+)\)$", re.MULTILINE)


def test_a_subject_that_is_missing_names_the_command_of_its_row(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ROW.findall((clone / PAGE).read_text())
    classes = {point.name: point.load() for point in entry_points(group="fairtrial.subjects")}
    assert [name for name, *_ in rows] == [name for name in ("git", "hg", "fossil", "oak", "jj") if name in classes]
    monkeypatch.setenv("PATH", "/nowhere")
    for name, oldest, measured, command in rows:
        missing = classes[name](Variant(name=name, subject=name, label=name)).probe().missing
        assert missing.endswith(f" {oldest} or newer: {command}"), missing
        assert [int(part) for part in oldest.split(".")] <= [int(part) for part in measured.split(".")]


def test_what_is_set_up_is_what_was_measured(clone: Path) -> None:
    script, page = (clone / "requirements/built/setup").read_text(), (clone / PAGE).read_text()
    measured = {name: version for name, _, version, _ in ROW.findall(page)}
    (pins,) = PINS.findall(script)
    assert pins == (measured["oak"], measured["jj"])
    (rust,) = OLDEST_RUST.findall(script)
    assert "The build needs Rust {} for oak, {} for jj".format(*rust) in page
