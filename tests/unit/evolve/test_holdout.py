"""Uses of holdout tasks."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.errors import IntegrityError
from fairtrial.evolve.holdout import USE_SCHEMA, HoldoutUse, count_uses, note_use, read_uses, uses_path

USE = HoldoutUse(
    schema=USE_SCHEMA,
    used_utc="2026-11-29T13:01:00Z",
    evolution="e1",
    generation=0,
    candidate_overlay_digest="c" * 64,
    tasks={"h1": "d" * 64, "h2": "e" * 64},
)


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.yaml"
    path.write_text("tasks: []\n")
    return path


def test_each_use_is_counted_and_stands_beside_the_task_file(tasks: Path) -> None:
    assert note_use(tasks, USE) == {"h1": 1, "h2": 1}
    assert note_use(tasks, replace(USE, evolution="e2", tasks={"h1": "d" * 64})) == {"h1": 2}
    assert note_use(tasks, replace(USE, generation=1)) == {"h1": 3, "h2": 2}
    assert uses_path(tasks) == tasks.with_name("tasks.holdout.jsonl")
    assert count_uses(read_uses(tasks), ("h2", "h3")) == {"h2": 2, "h3": 0}


def test_the_same_gate_taken_up_again_is_no_new_use(tasks: Path) -> None:
    note_use(tasks, USE)
    before = uses_path(tasks).read_bytes()
    assert note_use(tasks, replace(USE, used_utc="2026-11-29T14:00:00Z")) == {"h1": 1, "h2": 1}
    assert uses_path(tasks).read_bytes() == before


def test_a_gate_that_measures_everything_once_more_is_a_use_of_its_own(tasks: Path) -> None:
    note_use(tasks, USE)
    assert note_use(tasks, replace(USE, repeat=1)) == {"h1": 2, "h2": 2}
    assert note_use(tasks, replace(USE, repeat=1)) == {"h1": 2, "h2": 2}
    assert [use.repeat for use in read_uses(tasks)] == [0, 1]


def test_uses_that_were_noted_without_a_repeat_are_first_ones(tasks: Path) -> None:
    note_use(tasks, USE)
    path = uses_path(tasks)
    path.write_text(path.read_text().replace('"repeat":0,', ""))
    assert read_uses(tasks) == (USE,)


def test_without_a_use_there_is_no_file(tasks: Path) -> None:
    assert read_uses(tasks) == ()


@pytest.mark.parametrize(
    "line", ["{", '{"schema":"holdout-use/1"}', json.dumps({**json.loads("{}"), "schema": "holdout-use/2"})]
)
def test_a_damaged_line_is_named_and_nothing_is_noted(tasks: Path, line: str) -> None:
    uses_path(tasks).write_text(line + "\n")
    with pytest.raises(IntegrityError, match=r"tasks\.holdout\.jsonl:1: "):
        note_use(tasks, USE)
    assert uses_path(tasks).read_text() == line + "\n"


def test_a_use_of_an_unknown_schema_is_refused(tasks: Path) -> None:
    note_use(tasks, replace(USE, schema="holdout-use/9"))
    with pytest.raises(IntegrityError, match="is not known here"):
        read_uses(tasks)
