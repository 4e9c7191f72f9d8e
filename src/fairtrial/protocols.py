"""Every extension point, in one file.

A plugin is a class that fits one of these protocols and is named by an entry point; there is no base class to
inherit. What a plugin raises that is no `FairtrialError` makes its trial void with kind `unknown` and ends the sweep
with exit code 70.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from fairtrial.evidence.publication import ClientClaim
from fairtrial.model.agent import (
    AgentProbe,
    Installation,
    Report,
    SessionPlan,
    SessionRequest,
    SkillProof,
    Tool,
    ToolControl,
)
from fairtrial.model.context import ContextCommand, ContextInstallation, ContextProbe
from fairtrial.model.loop import (
    LocalState,
    Manner,
    Motion,
    Place,
    Probe,
    Sabotage,
    Serve,
    Step,
    StoreFault,
    Transport,
    Truth,
    Variant,
)
from fairtrial.model.process import ProcessResult
from fairtrial.wire.settings import FrontSettings

__all__ = ["Agent", "Context", "Engine", "RunProbe", "Subject", "Worker"]


class RunProbe(Protocol):
    """Runs one command of the harness on the subject's behalf, in the subject's environment, bounded in time."""

    def __call__(self, argv: Sequence[str], *, cwd: Path) -> ProcessResult:
        """Run it; standard output is kept whole up to 4 MiB in `stdout.head`."""
        ...


class Subject(Protocol):
    """A developer tool under test: entry-point group `fairtrial.subjects`, one file each.

    All methods but `probe` and those that take `run` are pure: they say which commands carry out a motion, and the
    lane runs, times and counts them.

    Attributes:
        kind: What scenarios are defined for, for example "git".
        transports: The transports it can be driven over.
        acquisition_models: What a fresh and a warm acquisition are called in records.
        publication_request: Substring of "METHOD target" of the HTTP requests that can move a branch, for fault rules
            and for counting replays.
        publication_mark: Text in what a client sends by which a publication is known in the tool's own protocol.
    """

    kind: ClassVar[str]
    transports: ClassVar[frozenset[Transport]]
    acquisition_models: ClassVar[Mapping[Manner, str]]
    publication_request: ClassVar[str]
    publication_mark: ClassVar[str]

    def __init__(self, variant: Variant) -> None:
        """Take a variant; it must not touch the machine."""
        ...

    def check_settings(self) -> Mapping[str, str]:
        """What is wrong with the variant's settings, and the remedy, by key; empty when nothing is."""
        ...

    def probe(self) -> Probe:
        """Find the program and its version on this host."""
        ...

    def environment(self, home: Path) -> dict[str, str]:
        """The whole environment of its commands, built from nothing."""
        ...

    def home_files(self, home: Path) -> Mapping[str, str]:
        """Configuration files that its commands read, by path below `home`."""
        ...

    def remote(self, transport: Transport, store: Path, port: int | None) -> str:
        """The address a client uses for a store served over a transport."""
        ...

    def served_store(self, root: Path) -> Path:
        """The path of the store below the directory that the server serves."""
        ...

    def server(self, transport: Transport, root: Path) -> FrontSettings | Serve | None:
        """What serves the stores below `root`, present and to come.

        Either settings for `fairtrial.wire`'s front, or the tool's own server; None when the transport needs none.
        """
        ...

    def create_store(self, place: Place) -> tuple[Step, ...]:
        """Commands that make an empty store."""
        ...

    def seed_store(self, place: Place, tree: Path) -> tuple[Step, ...]:
        """Commands that put the files of `tree` into the store's trunk as one commit; they may write into `tree`."""
        ...

    def clone_base(self, place: Place) -> tuple[Step, ...]:
        """Commands that make the clone which warm acquisitions share."""
        ...

    def steps(self, motion: Motion, manner: Manner, place: Place) -> tuple[Step, ...]:
        """Zero or more commands that carry out a motion; none means that the tool has no such step."""
        ...

    def belied(self, motion: Motion, result: ProcessResult) -> str:
        """Why a step that ended with an expected status did fail all the same; "" when it did not.

        For tools whose exit status is not to be trusted; it may read nothing but the step's own output.
        """
        ...

    def claim(self, result: ProcessResult) -> ClientClaim:
        """What the tool claims of a publication, by exit status, text and JSON alone, as its caller would take it."""
        ...

    def reconcile(self, place: Place) -> tuple[Step, ...]:
        """Commands by which an agent finds out whether its branch was published; the last one's output tells."""
        ...

    def reconciled_head(self, place: Place, result: ProcessResult) -> str | None:
        """The published head that the last command of `reconcile` told of; None when it told of none."""
        ...

    def sabotage(self, fault: StoreFault, place: Place) -> Sabotage | None:
        """How the store can be made to fail; None when this tool's server has no such fault."""
        ...

    def published_branch(self, run: RunProbe, place: Place) -> str | None:
        """The branch that publishing moves: `place.branch`, or what the workspace says if the tool named it."""
        ...

    def local_state(self, run: RunProbe, place: Place) -> LocalState:
        """What the workspace says of its own work, offline."""
        ...

    def client_head(self, run: RunProbe, place: Place) -> str | None:
        """The workspace's head as the client knows it, or None when it has none."""
        ...

    def store_head(self, run: RunProbe, place: Place) -> str | None:
        """The branch's head in the server's own store at this moment, or None when there is none.

        Raises:
            HostError: The store could not be looked at.
        """
        ...

    def read_truth(self, run: RunProbe, place: Place, path: str, transport: Transport) -> Truth:
        """Read a published branch back: head and the exact bytes of `path`, from the store and over the transport.

        A source that could not be looked at is a reading that `failed`, never one without a head.
        """
        ...

    def withdraw(self, run: RunProbe, place: Place, branches: Sequence[str]) -> str:
        """Delete published branches from a hosted remote; "" when all are gone, else what remained and why."""
        ...


class Agent(Protocol):
    """A coding agent driven through whole sessions: entry-point group `fairtrial.agents`, one file each.

    All methods but `probe` are pure: they say what a session is made of and what its output says; the lane builds the
    sandbox, runs the command behind the relay, and believes the wire.

    Attributes:
        dialect: The model API that it speaks, by the gateway's name for it; None for an agent without a model.
        tested_version: The version that this file was proven with; None where there is none to name.
        install: The command that installs it.
        skills: How it uses skills, and what proves that.
        skills_directory: Where it looks for its user's skills, below its home; None where it does not look.
        skills_besides: Where else it looks for skills, below its home or in a tree.
        tools: What it has of each kind of tool, and whether it can go without.
        efforts: The words that it takes for `SessionRequest.effort`; empty when it takes none.
        speaks_mcp: Whether it can be given tool servers.
    """

    dialect: ClassVar[str | None]
    tested_version: ClassVar[str | None]
    install: ClassVar[str]
    skills: ClassVar[SkillProof]
    skills_directory: ClassVar[str | None]
    skills_besides: ClassVar[tuple[str, ...]]
    tools: ClassVar[Mapping[Tool, ToolControl]]
    efforts: ClassVar[tuple[str, ...]]
    speaks_mcp: ClassVar[bool]

    def probe(self) -> AgentProbe:
        """Find the program and its version on this host."""
        ...

    def session(self, request: SessionRequest, installation: Installation) -> SessionPlan:
        """What a session is made of; `UsageError` when the agent cannot do what is asked."""
        ...

    def read_report(self, lines: Iterable[bytes]) -> Report:
        """Read the standard output of a session, line by line; it never raises on what a session printed."""
        ...


class Context(Protocol):
    """An index of a task's tree and the tool server that answers from it: entry-point group `fairtrial.contexts`.

    All methods but `probe` are pure: they say which commands build, prove and serve an index. The lane runs each in a
    sandbox of its own without network, in which the tree is read-only at the path that sessions have it at.

    Attributes:
        tested_version: What `probe` says where this file was proven.
        install: The command that installs it.
        licence: What its licence restricts, in one sentence; "" for nothing that matters here.
        tools: Names of the tools that its server offers to arms.
        mutating: Names of its other tools, which can change the tree or the index: no arm is offered them, and calls of
            them are refused.
        settings: Names of files and directories by which a tree sets the context up, or brings an index: it is built
            without them, and a tree that has or tells of one is refused where an arm of the sweep goes without it.
        places: Files that it would write into the tree, which it cannot: put there, by path, before it is built.
    """

    tested_version: ClassVar[str]
    install: ClassVar[str]
    licence: ClassVar[str]
    tools: ClassVar[tuple[str, ...]]
    mutating: ClassVar[tuple[str, ...]]
    settings: ClassVar[tuple[str, ...]]
    places: ClassVar[Mapping[str, bytes]]

    def probe(self) -> ContextProbe:
        """Find its programs and their versions on this host."""
        ...

    def build(self, installation: ContextInstallation) -> ContextCommand:
        """What writes the index below `INDEX` from the tree: regular files only, of one meaning for one tree."""
        ...

    def prove(self, installation: ContextInstallation, markers: Sequence[str]) -> ContextCommand:
        """What asks a finished index for every entity that holds a marker, and prints each: nothing, when it is free.

        A marker within a longer word (letters, digits and `_` of ASCII) is none, as where the tree is looked at. The
        lane also looks for the markers in the bytes of every file; this is for what stands there in another form.
        """
        ...

    def serve(self, installation: ContextInstallation) -> ContextCommand:
        """What speaks MCP on its standard streams; one is started for each client, and all read the same index."""
        ...


class Worker(Protocol):
    """One worker process as the sweep sees it: JSON lines in, JSON lines out, end of input ends it."""

    def fileno(self) -> int:
        """A descriptor that is readable when a line or the end of its output can be read."""
        ...

    def send(self, line: bytes) -> bool:
        """Give it one line; False when it is gone."""
        ...

    def receive(self) -> tuple[bytes, ...] | None:
        """The complete lines that can be read now without waiting; None at the end of its output."""
        ...

    def end(self, grace_s: float) -> int:
        """Close its input, wait, kill what is left; its exit status."""
        ...


class Engine(Protocol):
    """A way to start workers: entry-point group `fairtrial.engines`."""

    def start(self, argv: Sequence[str], n: int, env: Mapping[str, str]) -> tuple[Worker, ...]:
        """Start `n` workers; `HostError` when the host refuses."""
        ...
