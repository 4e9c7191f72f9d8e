"""Controls: what must fail and what must pass before a task is worth anything."""

import hashlib
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Final

from fairtrial.bench.blobs import BlobStore
from fairtrial.model.agent import Tool
from fairtrial.model.bench import Arm, Blob, Phase, PhaseKind, Task

__all__ = ["CHEAT", "EXIT_AT_IMPORT", "NOP", "REFERENCE", "control_arm", "exit_at_import", "exit_not_tried"]

NOP: Final = "nop"
REFERENCE: Final = "reference"
CHEAT: Final = "cheat-"
EXIT_AT_IMPORT: Final = f"{CHEAT}exit-0-at-import"
NO_MODEL: Final = "none"
_EXITS: Final = {
    ".py": "import os\\nos._exit(0)\\n",
    ".js": "process.exit(0)\\n",
    ".cjs": "process.exit(0)\\n",
    ".mjs": "process.exit(0)\\n",
    ".ts": "process.exit(0)\\n",
}
_GO_EXIT: Final = 'import "os"\\nfunc init() { os.Exit(0) }\\n'


def control_arm(name: str, kind: PhaseKind = PhaseKind.IMPLEMENT) -> Arm:
    """The arm of a control: an agent without a model, and one phase that says nothing."""
    agent = REFERENCE if name == REFERENCE else NOP
    phase = Phase(name="work", prompt="{task}", tools=frozenset(Tool) - {Tool.WEB}, kind=kind)
    digest = hashlib.sha256(f"control\0{name}\0{kind}".encode()).hexdigest()
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


def exit_not_tried(tasks: Iterable[Task], exits: Container[str]) -> list[str]:
    """Ids of the tasks of which that control cannot be tried, though they have a reference; a review starts nothing.

    Args:
        tasks: The tasks.
        exits: Ids of those that have such a script.
    """
    return [task.id for task in tasks if task.reference is not None and not task.is_review and task.id not in exits]


def _paths(patch: bytes) -> list[str]:
    """The files that a patch writes."""
    found: list[str] = []
    for line in patch.decode(errors="replace").splitlines():
        if line.startswith("+++ "):
            path = line[4:].split("\t")[0].strip().strip('"')
            if path != "/dev/null":
                found.append(path.removeprefix("b/"))
    return list(dict.fromkeys(found))
