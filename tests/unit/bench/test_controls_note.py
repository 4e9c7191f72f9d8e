"""What is noted of controls, and what makes it stale."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.bench import controls_note
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.controls_note import Checked, Freshness, controls_path, read_controls, status_of, write_controls
from fairtrial.bench.tasks import bind_task, read_task_file, task_binding
from fairtrial.errors import UsageError
from fairtrial.evidence.controls import ControlVerdict, Held
from fairtrial.model.bench import Task

pytestmark = pytest.mark.needs("git")
CHECKED = Checked(when="2026-11-29T12:00:00Z", results="results/c", seal="s")
CHEATS = "    cheats: [{name: half, patch: half.patch}, {name: prints, script: prints.sh}]\n    oracle:"


def verdict(control: str, held: Held = Held.HELD) -> ControlVerdict:
    return ControlVerdict(task="mend-add", control=control, held=held, runs=1, passed=0, flaky=False, reason="")


ALL_HELD = (verdict("nop"), verdict("reference"), verdict("cheat-half"))


@pytest.fixture
def bind(world: Path, task_text: str, blobs: BlobStore) -> Callable[..., Task]:
    """Bind the task of the file; `edit` changes the file's text first."""
    (world / "half.patch").write_text("--- a/calc.py\n+++ b/calc.py\n")
    (world / "prints.sh").write_text("exit 0\n")
    text = task_text.replace("    oracle:", CHEATS)

    def run(edit: tuple[str, str] = ("", "")) -> Task:
        (world / "tasks.yaml").write_text(text.replace(*edit) if edit[0] else text)
        document, parsed = read_task_file(world / "tasks.yaml")
        return bind_task(document, 0, parsed.tasks[0], blobs)

    return run


@pytest.fixture
def noted(bind: Callable[..., Task], world: Path) -> Path:
    """A task file whose controls held."""
    tasks = world / "tasks.yaml"
    write_controls(tasks, {"mend-add": task_binding(bind())}, ALL_HELD, CHECKED)
    return tasks


def known(tasks: Path, task: Task) -> Freshness:
    return read_controls(tasks, (task,))["mend-add"]


def test_without_a_note_nothing_is_known(bind: Callable[..., Task], world: Path) -> None:
    assert known(world / "tasks.yaml", bind()) is Freshness.MISSING


def test_a_note_holds_for_what_was_checked(bind: Callable[..., Task], noted: Path) -> None:
    assert known(noted, bind()) is Freshness.HELD


def test_a_note_holds_in_another_checkout(bind: Callable[..., Task], noted: Path) -> None:
    elsewhere = replace(bind(), repository="/elsewhere/repository")
    assert known(noted, elsewhere) is Freshness.HELD
    assert known(noted, replace(elsewhere, commit="0" * 40)) is Freshness.STALE


@pytest.mark.parametrize(
    "edit",
    [
        ("Mend add.", "Mend it."),
        ('command: "true"', 'command: "exit 0"'),
        ("import calc", "import os"),
        ("target: oracle.py}", "target: other.py}"),
        ("    class:", "    isolation: process\n    class:"),
        ("    class:", "    limits: {memory_mib: 512}\n    class:"),
        ("name: half", "name: halves"),
        (", {name: prints, script: prints.sh}", ""),
    ],
)
def test_any_change_of_the_task_makes_it_stale(bind: Callable[..., Task], noted: Path, edit: tuple[str, str]) -> None:
    assert known(noted, bind(edit)) is Freshness.STALE


@pytest.mark.parametrize("name", ["oracle.py", "reference.patch", "half.patch", "prints.sh"])
def test_any_change_of_a_file_of_the_task_makes_it_stale(
    bind: Callable[..., Task], noted: Path, world: Path, name: str
) -> None:
    (world / name).write_text((world / name).read_text() + "\n")
    assert known(noted, bind()) is Freshness.STALE


def test_another_fairtrial_makes_it_stale(
    bind: Callable[..., Task], noted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controls_note, "digest_sources", lambda: "0" * 64)
    assert known(noted, bind()) is Freshness.STALE


@pytest.mark.parametrize(
    ("key", "value"),
    [("status", "held"), ("checked", "x"), ("seal", "other"), ("when", "2027-01-01T00:00:00Z"), ("controls", [])],
)
def test_an_edit_by_hand_makes_it_stale(bind: Callable[..., Task], noted: Path, key: str, value: object) -> None:
    failed = (*ALL_HELD[:2], verdict("cheat-half", Held.FAILED))
    task = bind()
    write_controls(noted, {"mend-add": task_binding(task)}, failed, CHECKED)
    assert known(noted, task) is Freshness.FAILED
    path = controls_path(noted)
    note = json.loads(path.read_text())
    note["tasks"]["mend-add"][key] = value
    path.write_text(json.dumps(note))
    assert known(noted, task) is Freshness.STALE


def test_an_entry_cannot_be_moved_to_another_task(bind: Callable[..., Task], noted: Path) -> None:
    path = controls_path(noted)
    note = json.loads(path.read_text())
    note["tasks"]["mend-sub"] = note["tasks"]["mend-add"]
    path.write_text(json.dumps(note))
    assert read_controls(noted, (bind(("id: mend-add", "id: mend-sub")),)) == {"mend-sub": Freshness.STALE}


def test_without_a_reference_or_with_a_control_that_was_not_tried_nothing_is_held() -> None:
    assert status_of((verdict("nop"),)) is Freshness.INCOMPLETE
    assert status_of((verdict("nop"), verdict("reference", Held.UNKNOWN))) is Freshness.INCOMPLETE
    assert status_of((verdict("nop", Held.FAILED), verdict("reference", Held.UNKNOWN))) is Freshness.FAILED
    assert status_of(ALL_HELD) is Freshness.HELD


@pytest.mark.parametrize(
    ("verdicts", "runner", "not_tried"),
    [
        (ALL_HELD, None, ["cheat-exit-0-at-import"]),
        ((*ALL_HELD, verdict("cheat-exit-0-at-import")), None, []),
        ((*ALL_HELD, verdict("cheat-exit-0-at-import", Held.FAILED)), None, []),
        (ALL_HELD, "review", []),
    ],
)
def test_a_control_that_could_not_be_tried_is_noted(
    bind: Callable[..., Task],
    world: Path,
    verdicts: tuple[ControlVerdict, ...],
    runner: str | None,
    not_tried: list[str],
) -> None:
    binding = {**task_binding(bind()), "oracle_runner": runner}
    path = write_controls(world / "tasks.yaml", {"mend-add": binding}, verdicts, CHECKED)
    assert json.loads(path.read_text())["tasks"]["mend-add"]["not_tried"] == not_tried


def test_a_damaged_note_is_named(bind: Callable[..., Task], noted: Path) -> None:
    controls_path(noted).write_text("{")
    with pytest.raises(UsageError, match="run `fairtrial check"):
        read_controls(noted, (bind(),))


def test_the_digest_of_our_sources_is_the_same_each_time() -> None:
    assert controls_note.digest_sources() == controls_note.digest_sources()
