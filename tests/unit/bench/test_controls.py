"""The exit-at-import control."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.controls import exit_at_import, exit_not_tried
from fairtrial.bench.tasks import bind_task, read_task_file
from fairtrial.model.bench import Task

pytestmark = pytest.mark.needs("git")


def bind(path: Path, blobs: BlobStore) -> Task:
    document, parsed = read_task_file(path)
    return bind_task(document, 0, parsed.tasks[0], blobs)


def test_each_source_file_of_the_reference_ends_its_process(
    write_tasks: Callable[[str], Path], task_text: str, blobs: BlobStore, world: Path
) -> None:
    patch = "".join(f"--- a/{name}\n+++ b/{name}\n" for name in ("calc.py", "it's.mjs", "m.go", "notes.md"))
    (world / "reference.patch").write_text(patch + "--- a/gone.py\n+++ /dev/null\n")
    script = exit_at_import(bind(write_tasks(task_text), blobs), blobs)
    assert script is not None
    text = blobs.read(script).decode()
    assert "import os\\nos._exit(0)\\n' > 'calc.py'" in text
    assert "process.exit(0)\\n' > 'it'\\''s.mjs'" in text
    assert "^package ' 'm.go'" in text
    assert "notes" not in text
    assert "gone" not in text


def test_without_a_file_that_can_exit_there_is_no_such_control(
    write_tasks: Callable[[str], Path], task_text: str, blobs: BlobStore, world: Path
) -> None:
    (world / "reference.patch").write_text("--- a/notes.md\n+++ b/notes.md\n")
    task = bind(write_tasks(task_text), blobs)
    assert exit_at_import(task, blobs) is None
    assert exit_not_tried((task,), {}) == ["mend-add"]
    assert exit_not_tried((task,), {"mend-add"}) == []
    unsolved = bind(write_tasks(task_text.replace("    reference: reference.patch\n", "")), blobs)
    assert exit_at_import(unsolved, blobs) is None
    assert exit_not_tried((unsolved,), {}) == [], "nothing at all is known of it"
