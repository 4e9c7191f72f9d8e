"""The tool lane's vocabulary: what a scenario asks, what a subject answers, what the stores were seen to hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

__all__ = [
    "JsonObject",
    "LocalState",
    "Manner",
    "Motion",
    "Operation",
    "Place",
    "Play",
    "Probe",
    "Reading",
    "RemoteWords",
    "Sabotage",
    "Scenario",
    "Serve",
    "Setup",
    "Step",
    "StoreFault",
    "Transport",
    "Truth",
    "Variant",
]

JsonObject: TypeAlias = dict[str, object]


class Transport(StrEnum):
    """How a subject's client reaches its server."""

    FILE = "file"
    HTTP = "http"
    NATIVE = "native"
    SSH = "ssh"
    HOSTED = "hosted"


class Motion(StrEnum):
    """What an operation means, whatever the tool calls it."""

    ACQUIRE = "acquire"
    INSPECT = "inspect"
    EDIT = "edit"
    SNAPSHOT = "snapshot"
    PUBLISH = "publish"
    JOIN = "join"
    DESCRIBE = "describe"
    END = "end"


class Manner(StrEnum):
    """In which way a motion is meant where there is more than one.

    `fresh`, `warm` and `join` tell how a workspace is acquired: from the server alone, sharing an existing clone, or
    from the server alone on a branch that is published already. `review` asks `describe` for what a reviewer would read
    instead of attaching a description; `force` publishes over whatever the branch holds; `merged` snapshots what a join
    has begun, once the files hold the work of both.
    """

    PLAIN = "plain"
    FRESH = "fresh"
    WARM = "warm"
    JOIN = "join"
    REVIEW = "review"
    FORCE = "force"
    MERGED = "merged"


class Play(StrEnum):
    """How a scenario is played."""

    TASKS = "tasks"  # its operations in order
    FAULTS = "faults"  # one publication for each fault case
    OAK_LOCAL = "oak_local"  # two tasks on one branch, and the end of the server
    PARALLEL = "parallel"  # every phase at once
    INTERRUPTED = "interrupted"  # one publication to a fixture that never answers


class Setup(StrEnum):
    """Whether the harness's own preparation appears as rows."""

    UNTIMED = "untimed"
    ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One named step of a scenario.

    Attributes:
        name: The row's operation name, for example `task.acquire`; its first dotted part is the phase that the time
            counts for.
        phase: The phase whose workspace it works in.
        motion: What it means; None for work that only the harness does.
        manner: In which way.
        hole: Why the step cannot be measured here; None when it can.
    """

    name: str
    phase: str
    motion: Motion | None
    manner: Manner = Manner.PLAIN
    hole: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteWords:
    """What rows say of a remote.

    Attributes:
        transport: `remote_transport`.
        server: `remote_server`.
    """

    transport: str
    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A list of operations under an immutable name: a changed meaning is a new name.

    Attributes:
        name: The scenario's name.
        stem: First part of its summary rows, `<stem>.total` and `<stem>.skipped`.
        profile: The `profile` field of its rows.
        phases: Phases in order; each has a workspace, a branch and a payload of its own.
        shared_base: A clone made before the clock starts, that warm acquisitions share; without it they share the
            first phase's.
        setup: Whether preparing the server appears as rows.
        operations: What is done, in order.
        transports: The transports it is defined for; None for all.
        subject_kinds: The kinds of subject it is defined for; None for all.
        skip_text: What the skip row says to a subject kind that it is not defined for.
        play: How it is played.
        remote: What its rows say of the remote, where that is not what the transport says.
        track: Their `benchmark_track`, likewise.
    """

    name: str
    stem: str
    profile: str
    phases: tuple[str, ...]
    shared_base: bool
    setup: Setup
    operations: tuple[Operation, ...]
    transports: frozenset[Transport] | None = None
    subject_kinds: frozenset[str] | None = None
    skip_text: str = ""
    play: Play = Play.TASKS
    remote: RemoteWords | None = None
    track: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A subject as configured: the tool itself, or the tool tuned.

    Attributes:
        name: Unique name in rows and on the command line.
        subject: Name of the subject plugin.
        label: What reports call it.
        binary: Absolute path of the program, or None to look the plugin's program up on PATH.
        settings: The tool's own configuration keys and values.
        acquire_options: Extra arguments of a clone: of a fresh acquisition, and of the base that warm ones share.
    """

    name: str
    subject: str
    label: str
    binary: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    acquire_options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What was found of a subject on this host.

    Attributes:
        binary: Absolute path of its program, or None when it cannot be used.
        version: What it says of its version, or None.
        details: Anything else worth a record (strings only).
        missing: Why it cannot be used, with the install command; None when it can.
    """

    binary: str | None
    version: str | None
    details: Mapping[str, str]
    missing: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one phase of one trial happens.

    Attributes:
        root: The trial's own directory.
        store: The server's own store (meaningless on a hosted remote).
        base: The clone whose objects a warm acquisition shares.
        workspace: The phase's working tree.
        remote: The address the client uses.
        trunk: The branch that work starts from.
        branch: The branch that the phase publishes.
        message: The description of the work, one line.
        published: The head that the client is about to publish, once it is known: the one to look for where a tool
            keeps several open heads on one branch.
    """

    root: Path
    store: Path
    base: Path
    workspace: Path
    remote: str
    trunk: str
    branch: str
    message: str
    published: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of the tool.

    Attributes:
        argv: The command; its first item is the subject's program.
        cwd: Where it runs.
        name: "" for the operation itself, ".add" for a part below it, "branch" for a part beside it in the same phase.
        expected: Exit statuses that are no failure.
    """

    argv: tuple[str, ...]
    cwd: Path
    name: str = ""
    expected: tuple[int, ...] = (0,)

    def row_name(self, operation: str) -> str:
        """The row's operation name when this step carries out the operation of that name."""
        if self.name == "" or self.name.startswith("."):
            return operation + self.name
        return operation.rpartition(".")[0] + "." + self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    """A server of the tool's own, on 127.0.0.1, in the foreground.

    Attributes:
        argv: The command; `{port}` in it stands for the port.
        cwd: Where it runs.
        ready: What it prints, on either stream, once it listens. (A port that answers may be somebody else's.)
    """

    argv: tuple[str, ...]
    cwd: Path
    ready: str


class StoreFault(StrEnum):
    """What a server's own store does to a publication."""

    REFUSE = "refuse"  # it says no
    KILL_BEFORE = "kill_before"  # the server dies before the branch has moved
    KILL_AFTER = "kill_after"  # the server dies when the branch has just moved
    KILL_REPORT = "kill_report"  # the server dies when all is done but the report


@dataclass(frozen=True, slots=True, kw_only=True)
class Sabotage:
    """How a store is made to fail.

    Attributes:
        arm: Commands that make it fail.
        disarm: Commands that heal it.
        mark: A file that gets a line each time it failed; None where only the wire can tell.
        repair: What whoever runs the server types where the tool does not get over the fault by itself.
    """

    arm: tuple[Step, ...]
    disarm: tuple[Step, ...]
    mark: Path | None = None
    repair: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalState:
    """What a workspace says of its own work, without asking the server.

    Attributes:
        unpublished: It holds work that it believes to be unpublished; None when the tool keeps no such record.
        dirty: The working tree differs from the last snapshot; None when that could not be read.
    """

    unpublished: bool | None
    dirty: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one independent look at a published branch saw.

    Attributes:
        source: `store` (the server's own files) or `wire` (over the transport).
        head: The branch's head there, or None when there is none; of several `place.published` if it is one of them,
            else the newest.
        content: The exact bytes of the payload file there, or None when it could not be read.
        detail: What went wrong, else "".
        beside: The branch's other open heads there, where the tool lets a branch fork.
        failed: Nobody could look there, and `detail` says why: that there is no head is then no fact.
    """

    source: str
    head: str | None
    content: bytes | None
    detail: str = ""
    beside: tuple[str, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Everything that was read back of one branch.

    Attributes:
        readings: One for each way of looking that the transport allows.
        integrity: The store's own check passed; None when the store is out of reach.
        integrity_detail: What the check said when it failed, else "".
    """

    readings: tuple[Reading, ...]
    integrity: bool | None
    integrity_detail: str = ""
