"""What a sandbox is asked to be, and what became of the command that ran in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from fairtrial.model.process import StreamCapture

__all__ = [
    "AGENT_HOME",
    "WORKSPACE",
    "Access",
    "Bind",
    "Capture",
    "Containment",
    "File",
    "Limit",
    "Limits",
    "Network",
    "SandboxResult",
    "SandboxSpec",
    "SandboxState",
    "Tmpfs",
]

WORKSPACE: Final = "/workspace"
"""Where the tree under test is mounted."""
AGENT_HOME: Final = "/home/agent"
"""The home directory inside: empty and in memory, unless something is mounted over it."""

MIB: Final = 1 << 20


class Containment(StrEnum):
    """What keeps trials in; rows have it as `sandbox_backend`."""

    BUBBLEWRAP = "bubblewrap"
    NONE = "none"
    """Nothing: plain processes of the host, asked for by `--unsafe-no-sandbox`. Such rows never promote."""


class Access(StrEnum):
    """What may be done with what is mounted."""

    READ_ONLY = "read-only"
    READ_WRITE = "read-write"


class Network(StrEnum):
    """What a sandbox can reach."""

    NONE = "none"
    """Its own loopback, and the unix sockets that are bound in."""
    HOST = "host"
    """Everything the host reaches; for set-up commands only, and recorded."""


class Capture(StrEnum):
    """What the standard output is connected to."""

    PIPE = "pipe"
    SOCKET = "socket"
    """A socket pair: no other process inside can open it through /proc, so nobody can write into it or read from it."""


class Limit(StrEnum):
    """What a sandbox can run out of."""

    PROCESSES = "processes"
    MEMORY = "memory"
    CPU = "cpu"
    DISK = "disk"
    INODES = "inodes"
    FILES = "files"
    OUTPUT = "output"
    WALL = "wall"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one sandbox may use; its layer's size (disk, inodes) is fixed when the layer is mounted.

    Attributes:
        processes: Processes and threads alive at once.
        memory_bytes: Memory of all its processes together; what it writes to memory file systems counts where a
            memory cgroup enforces it.
        cpu_s: CPU seconds of all its processes together; None = as many as `wall_s` allows.
        files: Open descriptors of one process.
        output_bytes: Standard output and standard error together.
        wall_s: Seconds from start to TERM.
        grace_s: Seconds from TERM to KILL.
    """

    processes: int = 512
    memory_bytes: int = 4096 * MIB
    cpu_s: float | None = None
    files: int = 4096
    output_bytes: int = 512 * MIB
    wall_s: float = 3600.0
    grace_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A file, directory or unix socket of the host that is mounted inside.

    Attributes:
        source: Absolute path on the host, without a symbolic link in it.
        target: Absolute path inside.
        access: Whether it can be written. A socket can be connected to either way.
        scratch: Names of directories in it that can be written all the same: empty ones in memory lie over them.
    """

    source: Path
    target: str
    access: Access = Access.READ_ONLY
    scratch: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that exists inside only, and cannot be written.

    Attributes:
        target: Absolute path inside.
        content: Its bytes; they never stand in an argv.
        mode: Its permissions.
    """

    target: str
    content: bytes
    mode: int = 0o444


@dataclass(frozen=True, slots=True, kw_only=True)
class Tmpfs:
    """An empty directory in memory.

    Attributes:
        target: Absolute path inside.
        size_bytes: What fits; never more than the sandbox's `Limits.memory_bytes`.
        access: READ_ONLY makes a mask: nothing can be put there.
    """

    target: str
    size_bytes: int
    access: Access = Access.READ_WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """One command and the world it gets; nothing that is not named here exists inside.

    /usr (read-only), /proc, a minimal /dev and a generated /etc are always there. Mounts are made in the order tmpfs,
    binds, files, each in the order given, so that a later one may lie inside an earlier one.

    Attributes:
        argv: Program and arguments, visible to everything inside: no secret, no prompt.
        env: The whole environment.
        cwd: Its directory, inside.
        binds: What is mounted of the host: workspace, toolchains, dependencies, sockets.
        tmpfs: Directories in memory.
        files: Generated files.
        stdin: What it reads; nothing = /dev/null.
        pass_fds: Descriptors of ours that it gets as 3, 4, ... in this order.
        capture: How its standard output is taken.
        network: What it can reach.
        limits: What it may use.
        uid: Its user id inside; outside it is the slot's.
        gid: Its group id inside, likewise.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str = WORKSPACE
    binds: tuple[Bind, ...] = ()
    tmpfs: tuple[Tmpfs, ...] = (
        Tmpfs(target="/tmp", size_bytes=1024 * MIB),  # noqa: S108 - inside
        Tmpfs(target="/dev/shm", size_bytes=64 * MIB),  # noqa: S108 - inside
        Tmpfs(target="/run", size_bytes=16 * MIB),
        Tmpfs(target=AGENT_HOME, size_bytes=1024 * MIB),
    )
    files: tuple[File, ...] = ()
    stdin: bytes = b""
    pass_fds: tuple[int, ...] = ()
    capture: Capture = Capture.PIPE
    network: Network = Network.NONE
    limits: Limits = field(default_factory=Limits)
    uid: int = 1000
    gid: int = 1000


class SandboxState(StrEnum):
    """How a sandbox ended."""

    EXITED = "exited"
    """Its command ended by itself."""
    TIMEOUT = "timeout"
    """Its time was over and its command ended within the grace."""
    FORCED_KILL = "forced-kill"
    """Its time was over and it had to be killed."""
    LIMIT = "limit"
    """It reached another limit, which `SandboxResult.limit` names, and was killed."""
    BROKEN = "broken"
    """It ended without an exit status of its command: something inside destroyed it."""
    STOPPED = "stopped"
    """Our caller ended it."""
    START_FAILURE = "start-failure"
    """The host could not build it; nothing of the command ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxResult:
    """One finished sandbox; nothing of it is alive.

    Attributes:
        state: How it ended.
        returncode: Exit status of the command, 128 + number for a signal; None when there is none.
        limit: What it ran into, WALL included, else None.
        elapsed_ms: Wall time from start to the end of its last process.
        cpu_s: CPU seconds of all its processes at the last look, a lower bound; None when it ended before the first.
        peak_memory_bytes: Most memory in use at once; None when it ended before anything measured it.
        stdout: Standard output.
        stderr: Standard error.
        enforced: The mechanism behind each limit that was set.
        detail: One line where the state alone does not tell, else "".
    """

    state: SandboxState
    returncode: int | None
    limit: Limit | None
    elapsed_ms: float
    cpu_s: float | None
    peak_memory_bytes: int | None
    stdout: StreamCapture
    stderr: StreamCapture
    enforced: Mapping[Limit, str]
    detail: str

    @property
    def ok(self) -> bool:
        """The command ended by itself with exit status 0."""
        return self.state is SandboxState.EXITED and self.returncode == 0
