"""What judges are given and what they say. Plain values: whoever builds trees and reads tasks fills them in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from fairtrial.evidence.endings import EndingKind
from fairtrial.host.limits import Space
from fairtrial.model.sandbox import Bind, Limit, Limits, SandboxState

__all__ = [
    "CapturedFile",
    "ChangedPath",
    "CheckVerdict",
    "Counts",
    "Isolation",
    "JudgedTree",
    "OracleSpec",
    "OracleVerdict",
    "Place",
    "Proof",
    "Runner",
    "Surroundings",
]


class Place(StrEnum):
    """Where an oracle's file is put when it judges."""

    ORACLE_ROOT = "oracle-root"
    """Beside the workspace, in the directory that $FAIRTRIAL_ORACLE_ROOT names."""
    WORKSPACE = "workspace"
    """Over the judged tree, at its path."""


class Isolation(StrEnum):
    """Where the candidate's code runs while an oracle judges it."""

    SHARED = "shared"
    """With the oracle: tests import it, and code that lies on purpose inside the test process is not found out."""
    PROCESS = "process"
    """In a sandbox of its own, without the oracle's files; the oracle, which has nothing of the tree, has commands run
    there by `$FAIRTRIAL_CANDIDATE COMMAND...` and sees what they write and how they end."""


class Runner(StrEnum):
    """A shipped runner: it starts the tests as a child, counts what they report, and then proves that it finished."""

    PYTEST = "pytest"
    UNITTEST = "unittest"
    NODE = "node"
    GO = "go"
    CARGO = "cargo"


class Proof(StrEnum):
    """Whether a judge has proved that it finished."""

    PROVEN = "proven"
    MISSING = "missing"
    """Nothing was written to $FAIRTRIAL_PROOF_FD."""
    WRONG = "wrong"
    """Something was, but not the run's nonce alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedFile:
    """A file of an oracle that was copied before any session, outside every sandbox.

    Attributes:
        target: Where it belongs, relative to `place`; plain parts only.
        place: Beside the workspace, or over the judged tree.
        source: The copy.
        sha256: Digest of its bytes as captured.
        n_bytes: Their number.
    """

    target: str
    place: Place
    source: Path
    sha256: str
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleSpec:
    """The hidden truth of a task.

    Attributes:
        command: Shell command, or the arguments of `runner`.
        runner: Shipped runner, or None for a command that writes the nonce itself.
        expect_tests: Tests that must have run and passed; None = at least one. Of no meaning without a runner.
        files: What it needs.
        isolation: Where the candidate's code runs.
    """

    command: str
    files: tuple[CapturedFile, ...]
    runner: Runner | None = None
    expect_tests: int | None = None
    isolation: Isolation = Isolation.SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedPath:
    """One path of the credited change.

    Attributes:
        path: Relative to the root; names need not be text.
        before: A file's bytes in the base; None when it had none there.
        after: A file's bytes (a link's target) now; None when it is gone.
        is_link: It is a link now.
        before_link: Where a link led in the base; None when it had none there.
        was_executable: The base's file can be executed.
    """

    path: bytes
    before: bytes | None
    after: bytes | None
    is_link: bool = False
    before_link: bytes | None = None
    was_executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTree:
    """A tree that we built, in a throwaway layer of one judge's own: tests may write it, nobody sees it afterwards.

    Attributes:
        merged: Its directory; it belongs to the slot.
        space: Tells when the layer is full; None = not watched.
        change: The credited change that it holds.
    """

    merged: Path
    space: Space | None
    change: tuple[ChangedPath, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a judge finds beside the tree.

    Attributes:
        env: Environment; variables that start with FAIRTRIAL_ are ours.
        binds: Read-only dependencies and toolchains.
        limits: What it may use.
    """

    env: Mapping[str, str]
    binds: tuple[Bind, ...] = ()
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Tests as a runner counted them.

    Attributes:
        n_passed: Ran and passed.
        n_failed: Ran and failed, or could not be run.
        n_skipped: Did not run, by their own will.
    """

    n_passed: int
    n_failed: int
    n_skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleVerdict:
    """What became of an oracle. Nothing that it wrote is in here.

    Attributes:
        passed: It exited with 0, proved that it finished, and its files are what they were.
        kind: None when it passed, else `oracle-failed`, `oracle-unavailable` (void) or `infra-error` (void).
        reason: Why it did not pass, in our words; "" when it passed.
        proof: Whether it proved that it finished; None when it was not run.
        counts: What a runner counted; None without a runner, or when there is no report that can be believed.
        restored: Paths of the change that a test runner would have loaded by itself and that this run did without.
        state: How its sandbox ended; None when none was started.
        returncode: Its exit status, likewise.
        limit: What it ran into.
        elapsed_ms: Wall time of its sandbox; None when none was started.
        enforced: The mechanism behind each limit.
    """

    passed: bool
    kind: EndingKind | None
    reason: str
    proof: Proof | None = None
    counts: Counts | None = None
    restored: tuple[str, ...] = ()
    state: SandboxState | None = None
    returncode: int | None = None
    limit: Limit | None = None
    elapsed_ms: float | None = None
    enforced: Mapping[Limit, str] = field(default_factory=dict[Limit, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckVerdict:
    """What became of a task's authored check.

    Attributes:
        passed: It exited with 0.
        kind: None when it passed, else `verify-failed` or `infra-error` (void).
        reason: Why it did not pass, in our words; "" when it passed.
        output: The last of what it wrote, redacted.
        state: How its sandbox ended.
        returncode: Its exit status; None when there is none.
        limit: What it ran into.
        elapsed_ms: Wall time of its sandbox.
        enforced: The mechanism behind each limit.
    """

    passed: bool
    kind: EndingKind | None
    reason: str
    output: str
    state: SandboxState
    returncode: int | None
    limit: Limit | None
    elapsed_ms: float
    enforced: Mapping[Limit, str]
