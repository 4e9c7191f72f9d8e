"""The agent lane's vocabulary: what a task asks, what an arm is, and what one trial is told. All of it serializable."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fairtrial.model.agent import Tool

__all__ = [
    "MAX_STEP_S",
    "REVIEW_RUNNER",
    "Arm",
    "Asset",
    "BenchTrial",
    "Blob",
    "Budget",
    "Cheat",
    "Into",
    "IsolationMode",
    "Oracle",
    "OracleFile",
    "Phase",
    "PhaseKind",
    "PluginFiles",
    "SkillFiles",
    "Task",
    "TaskLimits",
]

MAX_STEP_S: Final = 7 * 24 * 3600
"""What a session, a judge or a wait may last at most: in milliseconds it fits into 31 bits, as the kernel counts."""

REVIEW_RUNNER: Final = "review"
"""The runner that starts nothing: it scores a review by the oracle's labels."""


class Into(StrEnum):
    """Where an oracle's file is put when it judges."""

    ORACLE_ROOT = "oracle-root"
    """Beside the workspace, in the directory that $FAIRTRIAL_ORACLE_ROOT names."""
    WORKSPACE = "workspace"
    """Over the workspace at its path, as an upstream project keeps its tests."""


class IsolationMode(StrEnum):
    """Where the code under test runs when the oracle judges it."""

    SHARED = "shared"
    PROCESS = "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Bytes that were captured before anything ran.

    Attributes:
        name: What they are called where they are used: a path below some root, or the file's own name.
        sha256: Their digest; also their name in the sweep's store of captured bytes.
        n_bytes: Their length.
    """

    name: str
    sha256: str
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleFile:
    """One captured file of an oracle.

    Attributes:
        blob: Its bytes, named by its target.
        into: Where it is put.
    """

    blob: Blob
    into: Into


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """The hidden truth of a task.

    Attributes:
        command: Shell command, or the arguments of `runner`.
        runner: Shipped runner that starts the tests and counts its report; None for a command of its own.
        expect_tests: Tests that must have run; None where the command itself proves that it finished.
        files: What it needs.
        digest: Over command, then target and bytes of each file.
        command_digest: Of the command.
        manifest_digest: Over target, digest and size of each file.
    """

    command: str
    runner: str | None
    expect_tests: int | None
    files: tuple[OracleFile, ...]
    digest: str
    command_digest: str
    manifest_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file or directory of the source repository's work tree, captured and frozen.

    Attributes:
        source: Path below the repository, as it stood on the host.
        target: Path below the workspace.
        digest: Of its content: names, executable bits and bytes, without its own name.
    """

    source: str
    target: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """What one session, check or oracle of a task may use.

    Attributes:
        processes: Processes and threads alive at once.
        memory_mib: Memory of all its processes together.
        cpu_s: CPU seconds; None for as many as its wall time allows.
        files: Open descriptors of one process.
        output_mib: Standard output and standard error together.
        disk_mib: What may be written to the workspace.
        inodes: Files that may be made in the workspace.
    """

    processes: int = 512
    memory_mib: int = 4096
    cpu_s: float | None = None
    files: int = 4096
    output_mib: int = 512
    disk_mib: int = 2048
    inodes: int = 1_000_000

    def __post_init__(self) -> None:
        for name in ("processes", "memory_mib", "files", "output_mib", "disk_mib", "inodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1")
        if self.cpu_s is not None and self.cpu_s <= 0:
            raise ValueError("cpu_s is more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cheat:
    """A way to look resolved that the oracle must see through.

    Attributes:
        name: What reports call it.
        patch: A patch to apply; or
        script: a shell script to run in the workspace.
    """

    name: str
    patch: Blob | None = None
    script: Blob | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task as bound: every input resolved and pinned.

    Attributes:
        id: Unique name.
        task_class: What kind of work it is.
        repository: Absolute path of the repository's top level.
        ref: What the task file names.
        commit: What that was resolved to.
        prompt: What every arm is told, verbatim.
        setup: Shell command that prepares the tree before any arm, or None.
        setup_network: It may use the host's network.
        verify: The authored check.
        hidden: Paths that no trial may see.
        toolchains: Absolute host paths that are mounted read-only at the same place.
        toolchain_digests: What each of them held when the task was bound.
        copies: Paths of the repository's work tree that are put into the tree.
        dependencies: Directories that are mounted read-only.
        limits: What it may use.
        isolation: Where the candidate runs while the oracle judges.
        oracle: The hidden truth.
        reference: The known-good patch, or the script that writes the known-good review; None without one.
        cheats: What must fail.
        expensive: It runs only when asked for.
        prompt_digest: Of the prompt.
        setup_digest: Of the set-up command ("" when there is none).
        verify_digest: Of the authored check.
    """

    id: str
    task_class: str
    repository: str
    ref: str
    commit: str
    prompt: str
    setup: str | None
    setup_network: bool
    verify: str
    hidden: tuple[str, ...]
    toolchains: tuple[str, ...]
    toolchain_digests: tuple[str, ...]
    copies: tuple[Asset, ...]
    dependencies: tuple[Asset, ...]
    limits: TaskLimits
    isolation: IsolationMode
    oracle: Oracle
    reference: Blob | None
    cheats: tuple[Cheat, ...]
    expensive: bool
    prompt_digest: str
    setup_digest: str
    verify_digest: str

    @property
    def is_review(self) -> bool:
        """A change is to be reviewed, and what is judged is the review."""
        return self.oracle.runner == REVIEW_RUNNER


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFiles:
    """A skill that is placed for an arm.

    Attributes:
        name: Its name, as the model calls it.
        files: Its files, by path below its directory.
        digest: Over path and bytes of each.
    """

    name: str
    files: tuple[Blob, ...]
    digest: str


class PhaseKind(StrEnum):
    """What a session is there for."""

    IMPLEMENT = "implement"
    """It changes the tree, or writes a file into it."""
    REVIEW = "review"
    """It reads the tree, which it cannot write, and leaves a review in a directory of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFiles:
    """A plugin of the agent, captured and frozen for an arm.

    Attributes:
        name: What its manifest calls it.
        version: Its exact version.
        manifest_schema_version: Of what `manifest_digest` is over.
        manifest_digest: Over path, digest, size and executable bit of each file.
        file_count: Its files.
        total_bytes: Of all of them.
        offers: What it has to offer a model, as Claude Code calls it: `<plugin>:<skill, command or agent>`, in order.
        dropped: Paths that were left out: no part of it that is taken, or names of tests, documents, secrets or
            repositories.
    """

    name: str
    version: str
    manifest_schema_version: int
    manifest_digest: str
    file_count: int
    total_bytes: int
    offers: tuple[str, ...]
    dropped: tuple[str, ...]

    def has_skill(self, name: str) -> bool:
        """Whether a skill of this name is one of its own."""
        return f"{self.name}:{name}" in self.offers


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One session of an arm.

    Attributes:
        name: Its name; other phases' prompts may refer to what it produces by it.
        prompt: Template: `{task}`, `{skill}` and `{<phase>}` are replaced, nothing else.
        skill: Name of the skill that must be proven to have run, or None.
        tools: Kinds of tools granted; None for all that the agent has, but for the web.
        produces: Glob of the one file that it may change, or None when it may change anything.
        timeout_s: Seconds; None for the sweep's.
        kind: What it is there for.
    """

    name: str
    prompt: str
    skill: str | None = None
    tools: frozenset[Tool] | None = None
    produces: str | None = None
    timeout_s: float | None = None
    kind: PhaseKind = PhaseKind.IMPLEMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one trial may spend over all its sessions; None for no limit.

    Attributes:
        tokens: Tokens of all four buckets.
        cost_usd: List price in US dollars.
        requests: Requests that go out.
        seconds: Wall clock of its sessions, without what the gateway held back for the provider's sake.
    """

    tokens: int | None = None
    cost_usd: float | None = None
    requests: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "cost_usd", "requests", "seconds"):
            if (value := getattr(self, name)) is not None and value <= 0:
                message = f"{name} is more than 0"
                raise ValueError(message)


NO_BUDGET: Final = Budget()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One treatment.

    Attributes:
        name: Its name in rows.
        phases: Its sessions in order; each runs only when those before it were good.
        agent: Name of the agent plugin.
        model: The model.
        effort: How hard it shall think, in the agent's word, or None.
        skills: What is placed for it.
        grants: Hosted tools that its requests may use, by name.
        budget: What each of its trials may spend.
        unnamed_models: What becomes of a request for another model: `refuse`, or `record` and pass on.
        include_usage: A streamed Chat Completions request is made to ask for its usage.
        context: Name of the context whose tools its sessions have, or None.
        overlay: Files of a candidate that are put over the tree, by path; none for an arm in use.
        overlay_digest: Of the whole candidate; None for an arm in use.
        plugin: The agent's plugin that it works with, or None.
        digest: Over all the others.
    """

    name: str
    phases: tuple[Phase, ...]
    agent: str
    model: str
    effort: str | None
    skills: tuple[SkillFiles, ...]
    grants: tuple[str, ...]
    digest: str
    budget: Budget = NO_BUDGET
    unnamed_models: str = "refuse"
    include_usage: bool = False
    context: str | None = None
    overlay: tuple[Blob, ...] = ()
    overlay_digest: str | None = None
    plugin: PluginFiles | None = None

    @property
    def reviews(self) -> bool:
        """It reviews a change; otherwise it makes one."""
        return any(phase.kind is PhaseKind.REVIEW for phase in self.phases)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTrial:
    """One arm on one task once.

    Attributes:
        task: The task.
        arm: The arm.
        run: 0-based.
        block: The block it belongs to.
        position_in_block: 0-based place in the block's order.
        block_order: Names of the block's arms in the order they run.
        timeout_s: Seconds that a session, the authored check and the oracle may take, each.
        patch: What the agent `reference` applies, or None.
        cheat: The script that stands for the agent, for a cheat that is one; or None.
    """

    task: Task
    arm: Arm
    run: int
    block: str
    position_in_block: int
    block_order: tuple[str, ...]
    timeout_s: float
    patch: Blob | None = None
    cheat: Blob | None = None
