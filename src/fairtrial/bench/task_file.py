"""The task file as a person writes it: its keys, and the rules that one task can be checked for by itself.

Owns the form of the file. What its paths and refs stand for is `tasks`'s.
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import PurePosixPath
from typing import Annotated, Final

from pydantic import Field

from fairtrial.model.bench import REVIEW_RUNNER, Into, IsolationMode, TaskLimits

__all__ = [
    "REVIEW_LABELS",
    "RUNNERS",
    "CheatEntry",
    "DependencyEntry",
    "Into",
    "OracleEntry",
    "OracleFileEntry",
    "TaskEntry",
    "TaskFile",
    "check_model_name",
    "path_problem",
]

TEST_RUNNERS: Final = ("pytest", "unittest", "node", "go", "cargo")
RUNNERS: Final = (*TEST_RUNNERS, REVIEW_RUNNER)
REVIEW_LABELS: Final = "review-labels.json"
MAX_COMMAND_BYTES: Final = 8 * 1024
MAX_MODEL_CHARACTERS: Final = 256
MAX_ORACLE_FILES: Final = 8
MAX_ORACLE_PATH_BYTES: Final = 240
MAX_ASSET_PATH_BYTES: Final = 4096
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MOVING_MODEL: Final = re.compile(r"(.*[-/@:])?(auto|latest)")


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleFileEntry:
    """A file of an oracle.

    Attributes:
        source: Path below the task file's directory.
        target: Path below the oracle's root, or below the workspace.
        into: Which of the two.
    """

    source: str
    target: str
    into: Into = Into.ORACLE_ROOT

    def __post_init__(self) -> None:
        for name, path in (("source", self.source), ("target", self.target)):
            if problem := path_problem(path, MAX_ORACLE_PATH_BYTES):
                raise ValueError(f"{name} {path!r:.80} {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleEntry:
    """The hidden truth of a task.

    Attributes:
        command: Shell command that must exit 0 and prove that it finished; with a runner, the runner's arguments;
            left out with the runner `review`.
        files: What it needs; with the runner `review`, the labels alone, with the target `review-labels.json`.
        runner: Shipped runner that starts the tests and reads its report, or scores a review.
        expect_tests: Tests that must have run.
    """

    files: tuple[OracleFileEntry, ...]
    command: str = ""
    runner: str | None = None
    expect_tests: int | None = None

    def __post_init__(self) -> None:
        if self.runner == REVIEW_RUNNER:
            self._require_labels_alone()
            return
        if not self.command.strip():
            raise ValueError("command is blank; give the command that judges")
        if len(self.command.encode()) > MAX_COMMAND_BYTES:
            raise ValueError(f"command is longer than {MAX_COMMAND_BYTES} bytes; put it into a file")
        if not 1 <= len(self.files) <= MAX_ORACLE_FILES:
            raise ValueError(f"files has {len(self.files)} entries; give 1 to {MAX_ORACLE_FILES}")
        for name in ("source", "target"):
            paths = [getattr(entry, name) for entry in self.files]
            if twice := sorted({path for path in paths if paths.count(path) > 1}):
                raise ValueError(f"{name} {twice[0]!r} is named twice in files; name it once")
        placed = {(entry.into, entry.target) for entry in self.files}
        for into, target in sorted(placed):
            if below := sorted(each for place, each in placed if place is into and each.startswith(f"{target}/")):
                raise ValueError(f"target {below[0]!r} lies below the file {target!r}; name another")
        if self.runner is not None and self.runner not in RUNNERS:
            raise ValueError(f"runner {self.runner!r} is unknown; valid: {', '.join(RUNNERS)}")
        if self.expect_tests is not None and self.expect_tests < 1:
            raise ValueError("expect_tests is at least 1")
        if self.expect_tests is not None and self.runner is None:
            raise ValueError(f"expect_tests needs a runner that counts: {', '.join(TEST_RUNNERS)}")

    def _require_labels_alone(self) -> None:
        if self.command or self.expect_tests is not None:
            raise ValueError("the runner 'review' runs nothing: leave 'command' and 'expect_tests' out")
        if [(each.target, each.into) for each in self.files] != [(REVIEW_LABELS, Into.ORACLE_ROOT)]:
            raise ValueError(f"the runner 'review' needs one file, with the target {REVIEW_LABELS!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyEntry:
    """A directory of the repository's work tree that trials see read-only.

    Attributes:
        source: Path below the repository.
        target: Path below the workspace.
    """

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheatEntry:
    """A way to look resolved that must fail: exactly one of a patch and a script.

    Attributes:
        name: What reports call it.
        patch: A patch, below the task file's directory.
        script: A shell script likewise, run in the workspace.
    """

    name: str
    patch: str | None = None
    script: str | None = None

    def __post_init__(self) -> None:
        _require_id(self.name, "name")
        if (self.patch is None) == (self.script is None):
            raise ValueError(f"cheat {self.name!r} needs either a patch or a script")
        _require_path("patch", self.patch)
        _require_path("script", self.script)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntry:
    """One task.

    Attributes:
        id: Unique name.
        task_class: What kind of work it is (key `class`).
        repo: The repository; a relative path starts at the task file's directory.
        ref: The commit to start from, by any name.
        prompt: What every arm is told.
        verify: The authored check, a shell command.
        oracle: The hidden truth.
        setup: Shell command that prepares the tree before any arm.
        setup_network: It may use the network.
        expensive: It is skipped unless asked for.
        holdout: Only the final gate of `fairtrial evolve` uses it; nothing is learnt from it.
        hidden: Paths that no trial may see.
        toolchains: Absolute host paths that trials see read-only.
        sandbox_copy: Paths of the repository's work tree that are put into the tree.
        sandbox_dependencies: Directories of it that are mounted read-only.
        limits: What one session, check or oracle may use.
        isolation: Where the candidate runs while the oracle judges.
        reference: The known-good patch, or review, below the task file's directory.
        cheats: What must fail.
    """

    id: str
    task_class: Annotated[str, Field(alias="class")]
    repo: str
    prompt: str
    verify: str
    oracle: OracleEntry
    ref: str = "HEAD"
    setup: str | None = None
    setup_network: bool = False
    expensive: bool = False
    holdout: bool = False
    hidden: tuple[str, ...] = ()
    toolchains: tuple[str, ...] = ()
    sandbox_copy: tuple[str, ...] = ()
    sandbox_dependencies: tuple[DependencyEntry, ...] = ()
    limits: TaskLimits = field(default_factory=TaskLimits)
    isolation: IsolationMode = IsolationMode.SHARED
    reference: str | None = None
    cheats: tuple[CheatEntry, ...] = ()

    def __post_init__(self) -> None:
        _require_id(self.id, "id")
        texts = {"class": self.task_class, "repo": self.repo, "prompt": self.prompt, "verify": self.verify}
        for name, value in {**texts, "ref": self.ref, **({} if self.setup is None else {"setup": self.setup})}.items():
            if not value.strip():
                raise ValueError(f"{name} is blank")
        if self.setup_network and self.setup is None:
            raise ValueError("setup_network is set, but there is no setup")
        for path in self.toolchains:
            if not path.startswith("/") or path_problem(path[1:], MAX_ASSET_PATH_BYTES):
                raise ValueError(f"toolchains: {path!r:.80} is no absolute path below /")
        for path in self.hidden:
            _require_path("hidden", path)
        _require_apart("sandbox_copy", self.sandbox_copy)
        for each in self.sandbox_dependencies:
            _require_path("source", each.source)
        targets = tuple(each.target for each in self.sandbox_dependencies)
        _require_apart("sandbox_dependencies: target", targets)
        _require_none_hidden("sandbox_copy", self.sandbox_copy, self.hidden)
        _require_none_hidden(
            "sandbox_dependencies: source", tuple(each.source for each in self.sandbox_dependencies), self.hidden
        )
        _require_none_hidden("sandbox_dependencies: target", targets, self.hidden)
        _require_path("reference", self.reference)
        if self.isolation is IsolationMode.PROCESS and any(each.into is Into.WORKSPACE for each in self.oracle.files):
            raise ValueError(
                "isolation 'process' keeps the oracle out of the workspace, so no file of it can go 'into: workspace'"
            )
        names = [cheat.name for cheat in self.cheats]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"cheat {twice[0]!r} is named twice; name it once")
        if self.oracle.runner == REVIEW_RUNNER and any(cheat.script is None for cheat in self.cheats):
            raise ValueError("a review cannot be cheated by a patch; give each cheat a script")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """A task file.

    Attributes:
        tasks: Its tasks.
    """

    tasks: tuple[TaskEntry, ...]


def path_problem(path: str, max_bytes: int) -> str | None:
    """Say what is wrong with a relative path, or None."""
    parts = path.split("/")
    if not path or "" in parts or "." in parts or ".." in parts:
        return "is no plain relative path (no leading '/', no '.', '..' or empty part)"
    if "\\" in path or "\0" in path:
        return "holds a backslash or NUL"
    if len(path.encode()) > max_bytes:
        return f"is longer than {max_bytes} bytes"
    if parts[0].casefold() == ".git":
        return "lies below .git"
    return None


def check_model_name(name: str) -> str:
    """Return the name of a model, trimmed.

    Raises:
        ValueError: It is blank, no name, or stands for whatever a provider serves today.
    """
    trimmed = name.strip()
    if not trimmed:
        raise ValueError("the model's name is blank")
    if len(trimmed) > MAX_MODEL_CHARACTERS or not trimmed.isprintable():
        raise ValueError(
            f"model {trimmed!r:.80} is no name: give at most {MAX_MODEL_CHARACTERS} characters, all of them printable"
        )
    if _MOVING_MODEL.fullmatch(trimmed.casefold()):
        raise ValueError(f"model {trimmed!r} names no fixed model; name the one that is meant")
    return trimmed


def _require_id(value: str, name: str) -> None:
    if not _ID.fullmatch(value):
        raise ValueError(
            f"{name} {value!r:.80} must be 1 to 128 letters, digits, '.', '_' or '-', and begin with a letter or digit"
        )


def _require_path(name: str, path: str | None) -> None:
    if path is not None and (problem := path_problem(path, MAX_ASSET_PATH_BYTES)):
        raise ValueError(f"{name} {path!r:.80} {problem}")


def _require_apart(name: str, paths: tuple[str, ...]) -> None:
    """Refuse paths of which one lies in another."""
    for path in paths:
        _require_path(name, path)
    ordered = sorted(PurePosixPath(path).parts for path in paths)
    for earlier, later in pairwise(ordered):
        if later[: len(earlier)] == earlier:
            raise ValueError(f"{name}: {'/'.join(later)!r} lies in {'/'.join(earlier)!r}; name only one of them")


def _require_none_hidden(name: str, paths: tuple[str, ...], hidden: tuple[str, ...]) -> None:
    """Refuse paths that would bring back what is hidden: those that lie in it, and those that hold it."""
    for path, kept in product(paths, hidden):
        if f"{path}/".startswith(f"{kept}/") or f"{kept}/".startswith(f"{path}/"):
            raise ValueError(f"{name}: {path!r} would bring back {kept!r}, which is hidden; leave one of them out")
