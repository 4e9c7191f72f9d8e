"""Controls: what must fail and what must pass before a task is worth anything, and whether that was tried."""

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, cast

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.tasks import task_binding
from fairtrial.errors import UsageError
from fairtrial.host.files import write_durably
from fairtrial.model.agent import Tool
from fairtrial.model.bench import Arm, Blob, Phase, Task

__all__ = [
    "CHEAT",
    "EXIT_AT_IMPORT",
    "NOP",
    "REFERENCE",
    "Freshness",
    "binding_digest",
    "control_arm",
    "controls_path",
    "exit_at_import",
    "read_controls",
    "write_controls",
]

NOP: Final = "nop"
REFERENCE: Final = "reference"
CHEAT: Final = "cheat-"
EXIT_AT_IMPORT: Final = f"{CHEAT}exit-0-at-import"
SCHEMA: Final = "controls/1"
NO_MODEL: Final = "none"
_EXITS: Final = {
    ".py": "import os\\nos._exit(0)\\n",
    ".js": "process.exit(0)\\n",
    ".cjs": "process.exit(0)\\n",
    ".mjs": "process.exit(0)\\n",
    ".ts": "process.exit(0)\\n",
}
_GO_EXIT: Final = 'import "os"\\nfunc init() { os.Exit(0) }\\n'


class Freshness(StrEnum):
    """What is known of a task's controls."""

    HELD = "held"
    FAILED = "failed"
    STALE = "stale"
    MISSING = "missing"


def control_arm(name: str) -> Arm:
    """The arm of a control: an agent without a model, and one phase that says nothing."""
    agent = REFERENCE if name == REFERENCE else NOP
    phase = Phase(name="work", prompt="{task}", tools=frozenset(Tool) - {Tool.WEB})
    digest = hashlib.sha256(f"control\0{name}".encode()).hexdigest()
    return Arm(
        name=name, phases=(phase,), agent=agent, model=NO_MODEL, effort=None, skills=(), grants=(), digest=digest
    )


def exit_at_import(task: Task, blobs: BlobStore) -> Blob | None:
    """A script that makes every source file of the reference end its process with status 0 as soon as it is loaded.

    None where the reference names no file of a language that can: then there is no such control.
    """
    if task.reference is None:
        return None
    lines: list[str] = []
    for path in _paths(blobs.read(task.reference)):
        suffix = Path(path).suffix
        quoted = "'" + path.replace("'", "'\\''") + "'"
        if suffix in _EXITS:
            lines.append(f"mkdir -p \"$(dirname {quoted})\" && printf '{_EXITS[suffix]}' > {quoted}")
        elif suffix == ".go":
            lines.append(f"{{ grep -m1 '^package ' {quoted}; printf '{_GO_EXIT}'; }} > .x && mv .x {quoted}")
    if not lines:
        return None
    return blobs.put(EXIT_AT_IMPORT, ("set -e\n" + "\n".join(lines) + "\n").encode())


def _paths(patch: bytes) -> list[str]:
    """The files that a patch writes."""
    found: list[str] = []
    for line in patch.decode(errors="replace").splitlines():
        if line.startswith("+++ "):
            path = line[4:].split("\t")[0].strip().strip('"')
            if path != "/dev/null":
                found.append(path.removeprefix("b/"))
    return list(dict.fromkeys(found))


def binding_digest(task: Task) -> str:
    """What a control is about: any change of the task makes it stale."""
    return hashlib.sha256(json.dumps(task_binding(task), sort_keys=True).encode()).hexdigest()


def controls_path(tasks: Path) -> Path:
    """Where the controls of a task file are noted: beside it."""
    return tasks.with_name(f"{tasks.stem}.controls.json")


def read_controls(tasks: Path, bound: tuple[Task, ...]) -> dict[str, Freshness]:
    """What is known of each task's controls.

    Raises:
        UsageError: The note is damaged.
    """
    path = controls_path(tasks)
    try:
        noted: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {task.id: Freshness.MISSING for task in bound}
    except (OSError, ValueError) as problem:
        raise UsageError(f"{path}: cannot be read ({problem}); run `fairtrial check {tasks}` again") from problem
    entries = _entries(noted)
    return {task.id: _freshness(entries.get(task.id), task) for task in bound}


def write_controls(tasks: Path, held: Mapping[str, bool], bound: tuple[Task, ...], *, when: str, seal: str) -> Path:
    """Note how the controls of some tasks went; what is noted of others stays.

    Raises:
        OSError: The file cannot be written.
    """
    path = controls_path(tasks)
    try:
        entries = _entries(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        entries = {}
    for task in bound:
        entries[task.id] = {
            "binding_sha256": binding_digest(task),
            "held": held[task.id],
            "checked_utc": when,
            "seal": seal,
        }
    text = json.dumps({"schema": SCHEMA, "tasks": entries}, indent=1, sort_keys=True)
    write_durably(path, f"{text}\n".encode(), mode=0o644)
    return path


def _entries(noted: object) -> dict[str, object]:
    if not isinstance(noted, dict) or noted.get("schema") != SCHEMA:  # pyright: ignore[reportUnknownMemberType]
        return {}
    tasks: object = noted.get("tasks")  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return dict(cast("dict[str, object]", tasks)) if isinstance(tasks, dict) else {}


def _freshness(entry: object, task: Task) -> Freshness:
    if not isinstance(entry, dict):
        return Freshness.MISSING
    known = cast("dict[str, object]", entry)
    if known.get("binding_sha256") != binding_digest(task):
        return Freshness.STALE
    return Freshness.HELD if known.get("held") is True else Freshness.FAILED
