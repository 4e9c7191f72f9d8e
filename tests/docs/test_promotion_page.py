"""`promotion.md` against the values that it describes."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.evidence import admit
from fairtrial.promote.binding import Binding, BoundArm, BoundFile, BoundPolicy, Origin
from fairtrial.promote.promotion import BoundDecision, BoundSweep, Promotion, RunStatus
from fairtrial.promote.recovery import Backup, Recovery, State
from fairtrial.workspace import overlay
from fairtrial.workspace.skill_layout import SkillLayout, read_layout

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

PAGE = "promotion.md"


def fields_of(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


@pytest.mark.parametrize(
    ("heading", "kind"),
    [("promotion/1", Promotion), ("binding", Binding), ("decisions", BoundDecision), ("recovery/1", Recovery)],
)
def test_every_field_is_in_its_table_in_order(heading: str, kind: type, read_table: ReadTable) -> None:
    assert [line["field"].strip("`") for line in read_table(PAGE, heading)] == fields_of(kind)


@pytest.mark.parametrize(
    ("heading", "field", "kind"),
    [
        ("promotion/1", "sweep", BoundSweep),
        ("binding", "candidate_files", BoundFile),
        ("binding", "arms", BoundArm),
        ("binding", "policy", BoundPolicy),
        ("recovery/1", "backups", Backup),
    ],
)
def test_what_a_field_holds_is_named(heading: str, field: str, kind: type, read_table: ReadTable, names: Names) -> None:
    (line,) = (line for line in read_table(PAGE, heading) if line["field"] == f"`{field}`")
    assert names(line["meaning"]) == fields_of(kind)


@pytest.mark.parametrize(
    ("heading", "field", "kind"),
    [
        ("promotion/1", "run_status", RunStatus),
        ("binding", "candidate_origin", Origin),
        ("recovery/1", "transaction_state", State),
    ],
)
def test_a_closed_set_is_told_whole(
    heading: str, field: str, kind: type[RunStatus] | type[Origin] | type[State], read_table: ReadTable, names: Names
) -> None:
    (line,) = (line for line in read_table(PAGE, heading) if line["field"] == f"`{field}`")
    assert names(line["meaning"]) == [str(each) for each in kind]


def test_every_reason_is_in_its_table_with_the_fields_that_it_looks_at(read_table: ReadTable, names: Names) -> None:
    lines = {line["kind"].strip("`"): line["when"] for line in read_table(PAGE, "Why rows may not be used")}
    assert list(lines) == [str(kind) for kind in admit.ReasonKind]
    assert names(lines["unenforced-limit"]) == list(admit.REQUIRED_LIMITS)
    assert names(lines["mixed-task"]) == list(admit.SAME_IN_A_TASK)
    assert names(lines["mixed-arm"]) == list(admit.SAME_IN_AN_ARM)
    for field, kind in admit.KINDS.items():
        assert f"`{field}`" in lines[kind]
    assert f"{admit.MAX_AGE_DAYS} days" in lines["too-old"]
    assert f"{admit.CLOCK_SKEW.seconds // 60} minutes" in lines["from-the-future"]


def test_the_limits_of_an_overlay_are_those_of_the_program(read_table: ReadTable) -> None:
    assert [int(line["value"]) for line in read_table(PAGE, "Overlays") if "value" in line] == [
        overlay.MAX_FILES,
        overlay.MAX_ENTRIES,
        overlay.MAX_OVERLAY_BYTES,
        overlay.MAX_PATH_BYTES,
    ]


def test_the_keys_and_the_shipped_layouts_are_those_of_the_program(read_table: ReadTable, names: Names) -> None:
    lines = read_table(PAGE, "Skill layouts")
    assert [line["key"].strip("`") for line in lines if "key" in line] == fields_of(SkillLayout)
    shipped = [line for line in lines if "layout" in line]
    for line in shipped:
        layout = read_layout(line["layout"].strip("`"))
        assert names(line["root"]) == [layout.root]
        assert tuple(names(line["mirrors"])) == layout.mirrors
        assert tuple(names(line["skills"])) == (layout.skills or ())
    text = Path(overlay.__file__).with_name("layouts.yaml").read_text()
    assert len(shipped) == text.count("root:")
