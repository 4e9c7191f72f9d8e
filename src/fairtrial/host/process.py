"""Running one process to its end: bounded time, bounded memory, an honest clock, and nothing left behind.

Owns `run`. Its parts: `spawn` starts, `tally` counts output, `group` kills, `memory` judges the kernel's peak.
Long-lived children are `running`'s. No threads and no event loop: one poll over the process's pidfd and its pipes.
"""

import fcntl
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from resource import struct_rusage

from fairtrial.host.group import KILL_WAIT_S, group_is_alive, kill_group_and_reap, signal_group, wait_group_gone
from fairtrial.host.memory import believe_peak_memory, read_own_peak_bytes
from fairtrial.host.running import Running, start
from fairtrial.host.spawn import Plumbing, Spawn, Stdio, explain_spawn_error, find_program
from fairtrial.host.tally import StreamTally
from fairtrial.model.process import ProcessResult, ProcessState, StreamCapture

__all__ = ["GRACE_S", "TAIL_BYTES", "Plumbing", "Running", "run", "start"]

TAIL_BYTES = 64 * 1024
GRACE_S = 5.0
_CHUNK_BYTES = 64 * 1024
_NAP_S = 50e-6
_LONGEST_S = 14 * 86400.0  # poll counts milliseconds in 31 bits


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_s: float,
    cwd: Path | None = None,
    stdin: bytes = b"",
    grace_s: float = GRACE_S,
    tail_bytes: int = TAIL_BYTES,
    capture_bytes: int = 0,
) -> ProcessResult:
    """Run one command in a session of its own and return how it ended; nothing that it does raises.

    Args:
        argv: Program and arguments. A name without a slash is looked up on the absolute directories of `env`'s PATH.
        env: The whole environment of the child.
        timeout_s: After this, TERM to its group; after `grace_s` more, KILL.
        cwd: Its directory; None = ours.
        stdin: What it reads; nothing = /dev/null. Bytes count as delivered once its pipe holds them.
        grace_s: Time between TERM and KILL.
        tail_bytes: Kept from the end of each output stream.
        capture_bytes: Kept from the start of each output stream.

    Raises:
        ValueError: No argument at all, a limit out of range (two weeks at most), or a string no process can be given.
        OSError: We could not open a pipe or watch the child (our own descriptors are used up).
    """
    if not argv:
        raise ValueError("argv is empty")
    if not 0 < timeout_s <= _LONGEST_S or not 0 <= grace_s <= _LONGEST_S or tail_bytes <= 0 or capture_bytes < 0:
        message = f"out of range: {timeout_s=} {grace_s=} {tail_bytes=} {capture_bytes=}"
        raise ValueError(message)
    program = find_program(argv[0], env)
    if program is None:
        return _never_started(argv, f"cannot start {argv[0]}: not found on PATH={env.get('PATH', '')}")
    plumbing = Plumbing.PIPE if stdin else Plumbing.NULL
    with (
        Stdio(stdin=plumbing, stdout=Plumbing.PIPE, stderr=Plumbing.PIPE) as stdio,
        Spawn(argv, program=program, env=env, cwd=cwd, stdio=stdio) as spawn,
    ):
        watch = _Watch(spawn, stdio, stdin=stdin, tail_bytes=tail_bytes, capture_bytes=capture_bytes)
        try:
            error = watch.launch()
            if error:
                return _never_started(argv, explain_spawn_error(error, program=program, cwd=cwd))
            watch.follow(timeout_s=timeout_s, grace_s=grace_s)
        except BaseException:
            # An interrupt, at any instant: the id stands in memory as soon as the child exists.
            if spawn.pid:
                kill_group_and_reap(spawn.pid)
            raise
        finally:
            watch.close()
        return watch.result()


class _Watch:
    """One running child from start to reap: what it wrote, what it was fed, how it ended."""

    def __init__(self, spawn: Spawn, stdio: Stdio, *, stdin: bytes, tail_bytes: int, capture_bytes: int) -> None:
        self._spawn = spawn
        self._stdio = stdio
        self._pidfd = -1
        self._poll = select.poll()
        self._in_fd, out_fd, err_fd = stdio.our_fds
        self._unsent = memoryview(stdin)
        self._n_stdin_bytes = len(stdin)
        self._stdout = StreamTally(tail_bytes=tail_bytes, capture_bytes=capture_bytes)
        self._stderr = StreamTally(tail_bytes=tail_bytes, capture_bytes=capture_bytes)
        self._outputs: dict[int, StreamTally] = {}
        self._started_ns = 0
        self._ended_ns = 0
        self._returncode: int | None = None
        self._usage: struct_rusage | None = None
        self._timed_out = False
        self._forced_kill = False
        self._stuck = False
        self._pipe_held = False
        self._details: list[str] = []
        for fd, tally in ((out_fd, self._stdout), (err_fd, self._stderr)):
            if fd is not None:
                # A child can read its own output pipe through /proc and take what poll just announced: never block.
                os.set_blocking(fd, False)
                self._poll.register(fd, select.POLLIN)
                self._outputs[fd] = tally
        if self._in_fd is not None:
            os.set_blocking(self._in_fd, False)
            self._poll.register(self._in_fd, select.POLLOUT)
            self._feed(self._in_fd)  # what fits the pipe is there before the child is

    def launch(self) -> int:
        """Start the clock and the child; return 0 or an errno.

        The child's ends of its pipes stay open in us until it is reaped: closed at once, `/bin/true` measured 0.15 ms
        longer. The likely cause is that each pipe that hangs up wakes us before the exit itself does.

        A nap comes first: on a busy machine `/bin/true` then measured 0.97 ms, without it 3.3 (hyperfine: 0.92). The
        likely cause is that the scheduler takes the CPU from whoever just used it, as our preparations did.
        """
        time.sleep(_NAP_S)
        self._started_ns = time.perf_counter_ns()
        error = self._spawn.launch()
        if error == 0:
            try:
                self._pidfd = os.pidfd_open(self._spawn.pid)
            except ProcessLookupError:
                self._reap()  # gone already: with SIGCHLD ignored, which we may inherit, the kernel reaps for itself
            else:
                self._poll.register(self._pidfd, select.POLLIN)
        return error

    def follow(self, *, timeout_s: float, grace_s: float) -> None:
        """Feed and drain the child until it and its group are gone."""
        pgid = self._spawn.pid
        if not self._ended_ns and not self._await_exit(timeout_s):
            self._timed_out = True
            self._details.append(f"reached its limit of {timeout_s:g} s")
            signal_group(pgid, signal.SIGTERM)
            grace_ends_ns = time.perf_counter_ns() + int(grace_s * 1e9)
            if self._await_exit(grace_s):
                left_s = (grace_ends_ns - time.perf_counter_ns()) / 1e9
                wait_group_gone(pgid, timeout_s=left_s, pause=self._pump)
            else:
                self._forced_kill = True
                self._details.append(f"ignored TERM for {grace_s:g} s")
                signal_group(pgid, signal.SIGKILL)
                self._await_exit(KILL_WAIT_S)
        if self._ended_ns:
            self._kill_left_behind(pgid)
        self._drain_rest()

    def _await_exit(self, timeout_s: float) -> bool:
        deadline_ns = time.perf_counter_ns() + int(timeout_s * 1e9)
        while True:
            left_ns = deadline_ns - time.perf_counter_ns()
            if self._pump(max(left_ns, 0) / 1e6):
                return True
            if left_ns <= 0:
                return False

    def _pump(self, wait_ms: float) -> bool:
        """Move what can be moved within `wait_ms`; return whether the child has ended, reaped at once when it has."""
        ready = self._poll.poll(wait_ms)
        # The clock runs, and after a sleep the caches are cold: nothing more than this may stand before the reaping.
        # The pidfd was registered last, so it is reported last.
        if ready and ready[-1][0] == self._pidfd:
            self._reap()
            return True
        for fd, _ in ready:
            if fd == self._in_fd:
                self._feed(fd)
            else:
                self._read(fd, _CHUNK_BYTES)
        return False

    def _reap(self) -> None:
        try:
            _, status, self._usage = os.wait4(self._spawn.pid, 0)
            self._ended_ns = time.perf_counter_ns()
            self._returncode = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            self._ended_ns = time.perf_counter_ns()
            self._details.append("its exit status was taken by someone else (is SIGCHLD ignored?)")
        if self._pidfd >= 0:
            self._poll.unregister(self._pidfd)

    def _feed(self, fd: int) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(fd, self._unsent) :]
        except BlockingIOError:
            return
        self._drop(fd)

    def _read(self, fd: int, limit_bytes: int) -> int | None:
        """Read once; return the number of bytes, 0 at the end, None when there is nothing just now."""
        try:
            data = os.read(fd, limit_bytes)
        except BlockingIOError:
            return None
        self._outputs[fd].take(data)
        return len(data)

    def _drop(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._outputs.pop(fd, None)
        self._stdio.close_fd(fd)

    def _kill_left_behind(self, pgid: int) -> None:
        if not group_is_alive(pgid):
            return
        self._forced_kill = True
        self._details.append("left processes of its group alive, which were killed")
        signal_group(pgid, signal.SIGKILL)
        if not wait_group_gone(pgid, timeout_s=KILL_WAIT_S):
            self._stuck = True
            self._details.append(f"some were still alive {KILL_WAIT_S:g} s after KILL")

    def _drain_rest(self) -> None:
        """Take what is in the pipes now. Whoever still holds one has left the group, and could write for ever."""
        self._stdio.close_child_ends()
        for fd in tuple(self._outputs):
            hung_up = any(event & select.POLLHUP for ready, event in self._poll.poll(0) if ready == fd)
            self._pipe_held |= not hung_up
            left_bytes = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
            while left_bytes > 0 and (n_bytes := self._read(fd, left_bytes)):
                left_bytes -= n_bytes
            self._drop(fd)

    def close(self) -> None:
        """Close what watches the child; its pipes are the caller's."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def result(self) -> ProcessResult:
        """Return what is known now that it is over."""
        if self._unsent:
            n_sent = self._n_stdin_bytes - len(self._unsent)
            self._details.append(f"took {n_sent} of {self._n_stdin_bytes} bytes of standard input")
        peak_bytes: int | None = None
        peak_reason: str | None = "the child was never reaped"
        if self._usage is not None:
            peak_bytes, peak_reason = believe_peak_memory(
                self._usage.ru_maxrss * 1024, floor_bytes=read_own_peak_bytes()
            )
        below = self._usage.ru_maxrss * 1024 if self._usage is not None and peak_bytes is None else None
        return ProcessResult(
            argv=self._spawn.argv,
            state=self._state(),
            returncode=self._returncode,
            elapsed_ms=(self._ended_ns - self._started_ns) / 1e6 if self._ended_ns else None,
            cpu_user_s=None if self._usage is None else self._usage.ru_utime,
            cpu_system_s=None if self._usage is None else self._usage.ru_stime,
            peak_memory_bytes=peak_bytes,
            peak_memory_reason=peak_reason,
            peak_memory_below_bytes=below,
            timed_out=self._timed_out,
            forced_kill=self._forced_kill,
            pipe_held=self._pipe_held,
            stdout=self._stdout.capture(),
            stderr=self._stderr.capture(),
            detail="; ".join(self._details),
        )

    def _state(self) -> ProcessState:
        if self._usage is None:
            return ProcessState.REAP_FAILURE
        if self._stuck:
            return ProcessState.CLEANUP_FAILURE
        if self._forced_kill:
            return ProcessState.FORCED_KILL
        if self._timed_out:
            return ProcessState.TIMEOUT
        return ProcessState.INPUT_FAILURE if self._unsent else ProcessState.EXITED


def _never_started(argv: Sequence[str], detail: str) -> ProcessResult:
    nothing = StreamCapture(n_bytes=0, n_characters=0, head=b"", head_truncated=False, tail=b"", tail_truncated=False)
    return ProcessResult(
        argv=tuple(argv),
        state=ProcessState.SPAWN_FAILURE,
        returncode=None,
        elapsed_ms=None,
        cpu_user_s=None,
        cpu_system_s=None,
        peak_memory_bytes=None,
        peak_memory_reason="the child never started",
        timed_out=False,
        forced_kill=False,
        pipe_held=False,
        stdout=nothing,
        stderr=nothing,
        detail=detail,
    )
