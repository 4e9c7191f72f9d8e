"""What is noted of a task file's controls, beside it: how they went, and all that this holds for.

An entry holds only for the bytes that it was made for: the task as bound (commit, prompt, check, oracle, reference,
cheats, limits, …), and fairtrial's own sources; not for the place where they lie, so that it can be committed beside
the task file. A digest over the whole entry shows an edit by hand. It is no
signature: whoever computes the digest anew can write any note, and is believed as far as the author of the oracle is.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final, cast

from fairtrial import __version__
from fairtrial.bench.controls import EXIT_AT_IMPORT, REFERENCE
from fairtrial.bench.tasks import task_binding
from fairtrial.errors import UsageError
from fairtrial.evidence.controls import ControlVerdict, Held
from fairtrial.host.files import write_durably
from fairtrial.model.bench import REVIEW_RUNNER, Task

__all__ = [
    "CHECKING",
    "Checked",
    "Freshness",
    "controls_path",
    "digest_sources",
    "read_controls",
    "status_of",
    "write_controls",
]

SCHEMA: Final = "controls/2"
CHECKING: Final = "checking"
"""What the rows of the check itself say of their task's controls."""
DIGEST: Final = "attested_sha256"
SOURCES: Final = frozenset({".py", ".mjs", ".yaml"})
EXAMPLES: Final = "examples"


class Freshness(StrEnum):
    """What is known of a task's controls."""

    HELD = "held"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    """There is no reference, or one of them could not be tried."""
    STALE = "stale"
    """The task, its oracle, its reference, a cheat, fairtrial or the note itself is not what it was."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The check that a note is of.

    Attributes:
        when: The moment, as text.
        results: Name of its results directory.
        seal: The digest of that directory's seal.
    """

    when: str
    results: str
    seal: str


def controls_path(tasks: Path) -> Path:
    """Where the controls of a task file are noted: beside it."""
    return tasks.with_name(f"{tasks.stem}.controls.json")


def digest_sources() -> str:
    """Digest of fairtrial's own sources: what judged yesterday need not judge alike today."""
    digest = hashlib.sha256()
    with as_file(files("fairtrial")) as root:
        for path in sorted(root.rglob("*")):
            if path.suffix in SOURCES and EXAMPLES not in path.parts:
                for part in (path.relative_to(root).as_posix().encode(), path.read_bytes()):
                    digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def status_of(verdicts: Iterable[ControlVerdict]) -> Freshness:
    """What the controls of one task show together; pure."""
    found = tuple(verdicts)
    if any(each.held is Held.FAILED for each in found):
        return Freshness.FAILED
    complete = all(each.held is Held.HELD for each in found) and any(each.control == REFERENCE for each in found)
    return Freshness.HELD if complete else Freshness.INCOMPLETE


def read_controls(tasks: Path, bound: Iterable[Task]) -> dict[str, Freshness]:
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
    entries, sources = _entries(noted), digest_sources()
    return {task.id: _freshness(entries.get(task.id), task, sources) for task in bound}


def write_controls(
    tasks: Path, bindings: Mapping[str, Mapping[str, object]], verdicts: Iterable[ControlVerdict], checked: Checked
) -> Path:
    """Note how the controls of some tasks went; what is noted of others stays.

    Args:
        tasks: The task file.
        bindings: The tasks that were checked, as the check's own `sweep.json` holds them, by id.
        verdicts: How their controls went.
        checked: Where and when.

    Raises:
        OSError: The file cannot be written.
    """
    path = controls_path(tasks)
    try:
        entries = _entries(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        entries = {}
    found = tuple(verdicts)
    sources = digest_sources()
    for name, binding in bindings.items():
        of_task = [each for each in found if each.task == name]
        entry: dict[str, object] = {
            "task": name,
            "binding_sha256": _digest_binding(binding),
            "fairtrial": __version__,
            "fairtrial_sha256": sources,
            "status": str(status_of(of_task)),
            "controls": [
                {"control": each.control, "held": str(each.held), "runs": each.runs, "passed": each.passed}
                for each in of_task
            ],
            "not_tried": [] if _has_exit(binding, of_task) else [EXIT_AT_IMPORT],
            **asdict(checked),
        }
        entries[name] = entry | {DIGEST: _digest(entry)}
    text = json.dumps({"schema": SCHEMA, "tasks": entries}, indent=1, sort_keys=True)
    write_durably(path, f"{text}\n".encode(), mode=0o644)
    return path


def _has_exit(binding: Mapping[str, object], verdicts: Iterable[ControlVerdict]) -> bool:
    """Whether the control was tried that ends its process when it is loaded; a review has no process."""
    is_review = binding["oracle_runner"] == REVIEW_RUNNER
    return is_review or any(each.control == EXIT_AT_IMPORT for each in verdicts)


def _digest_binding(binding: Mapping[str, object]) -> str:
    """Digest of a task as bound, without its repository's path: the commit says what is in it, in every checkout."""
    return _digest({name: value for name, value in binding.items() if name != "repo_identity"})


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _entries(noted: object) -> dict[str, object]:
    if not isinstance(noted, dict) or noted.get("schema") != SCHEMA:  # pyright: ignore[reportUnknownMemberType]
        return {}
    tasks: object = noted.get("tasks")  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return dict(cast("dict[str, object]", tasks)) if isinstance(tasks, dict) else {}


def _freshness(entry: object, task: Task, sources: str) -> Freshness:
    if not isinstance(entry, dict):
        return Freshness.MISSING
    known = dict(cast("dict[str, object]", entry))
    attested = known.pop(DIGEST, None)
    same = {"task": task.id, "binding_sha256": _digest_binding(task_binding(task)), "fairtrial_sha256": sources}
    if attested != _digest(known) or any(known.get(name) != value for name, value in same.items()):
        return Freshness.STALE
    return next((each for each in Freshness if each == known.get("status")), Freshness.STALE)
