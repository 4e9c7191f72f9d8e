"""What one finished process was: its ending, its output, its cost."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ProcessResult", "ProcessState", "StreamCapture"]


class ProcessState(StrEnum):
    """How a managed process ended (`spec`: process control)."""

    EXITED = "exited"
    INPUT_FAILURE = "input-failure"
    TIMEOUT = "timeout"
    FORCED_KILL = "forced-kill"
    SPAWN_FAILURE = "spawn-failure"
    REAP_FAILURE = "reap-failure"
    CLEANUP_FAILURE = "cleanup-failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCapture:
    """What is kept of one output stream.

    Attributes:
        n_bytes: Every byte the stream carried, kept or not.
        n_characters: Characters of the whole stream decoded as UTF-8, one for each undecodable byte sequence.
        head: The first bytes, up to the caller's capture limit (empty when no capture was asked for).
        head_truncated: The stream went on after `head`.
        tail: The last bytes, up to the tail limit (64 KiB by default).
        tail_truncated: The stream began before `tail`.
    """

    n_bytes: int
    n_characters: int
    head: bytes
    head_truncated: bool
    tail: bytes
    tail_truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """One finished process.

    Attributes:
        argv: What was started.
        state: How it ended.
        returncode: Exit status, or minus the signal number; None when it never started or was never reaped.
        elapsed_ms: Monotonic wall time from just before spawn to just after reap, in milliseconds; None when never
            started.
        cpu_user_s: User CPU seconds of the process and the descendants it waited for; None when never reaped.
        cpu_system_s: System CPU seconds, likewise.
        peak_memory_bytes: Peak resident memory; None when the kernel's figure cannot be told from the harness's own.
        peak_memory_reason: Why `peak_memory_bytes` is None, else None.
        peak_memory_below_bytes: What it lies below where only that is known, else None.
        timed_out: The time limit was reached.
        forced_kill: KILL was needed: it ignored TERM, or left group members behind.
        pipe_held: A descendant outside the group still held an output pipe when the process ended.
        stdout: Standard output.
        stderr: Standard error.
        detail: One line of explanation where the state alone does not tell, else "".
    """

    argv: tuple[str, ...]
    state: ProcessState
    returncode: int | None
    elapsed_ms: float | None
    cpu_user_s: float | None
    cpu_system_s: float | None
    peak_memory_bytes: int | None
    peak_memory_reason: str | None
    timed_out: bool
    forced_kill: bool
    pipe_held: bool
    stdout: StreamCapture
    stderr: StreamCapture
    detail: str
    peak_memory_below_bytes: int | None = None

    @property
    def ok(self) -> bool:
        """It ended by itself with exit status 0."""
        return self.state is ProcessState.EXITED and self.returncode == 0
