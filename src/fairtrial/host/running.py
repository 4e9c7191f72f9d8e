"""Long-lived children: servers and workers that outlive one call."""

import os
import select
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fairtrial.errors import HostError
from fairtrial.host.group import KILL_WAIT_S, kill_group_and_reap, signal_group, wait_group_gone
from fairtrial.host.spawn import Plumbing, Spawn, Stdio, explain_spawn_error, find_program

__all__ = ["Running", "start", "wait_any"]


class Running:
    """A child that was started and may still run; leaving its context kills it.

    Attributes:
        argv: What was started.
        pid: Its process id, process group and session.
        pidfd: Becomes readable when it ends; -1 once closed.
        stdin_fd: Our end of its standard input where that is a pipe, else None. Close it by `close_stdin`.
        stdout_fd: Our end of its standard output, likewise.
        stderr_fd: Our end of its standard error, likewise.
    """

    __slots__ = ("_returncode", "_stdio", "argv", "pid", "pidfd", "stderr_fd", "stdin_fd", "stdout_fd")

    def __init__(self, *, argv: Sequence[str], pid: int, pidfd: int, stdio: Stdio) -> None:
        self.argv = tuple(argv)
        self.pid = pid
        self.pidfd = pidfd
        self.stdin_fd, self.stdout_fd, self.stderr_fd = stdio.our_fds
        self._stdio = stdio
        self._returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit status (minus the signal number for a signal), None while it runs.

        Once it has ended, what it left of its group is killed at once: later its number may mean another group.

        Raises:
            HostError: Something of its group survives KILL.
        """
        if self._returncode is None:
            try:
                reaped, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._returncode = -signal.SIGKILL  # only `life.kill_strays` reaps what others started, by KILL
            else:
                if reaped:
                    self._returncode = os.waitstatus_to_exitcode(status)
                    signal_group(self.pid, signal.SIGKILL)
                    if not wait_group_gone(self.pid, timeout_s=KILL_WAIT_S):
                        raise HostError(self._explain_survivor())
        return self._returncode

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return and raise as `poll` does."""
        returncode = self.poll()
        if returncode is None:
            watcher = select.poll()
            watcher.register(self.pidfd, select.POLLIN)
            watcher.poll(max(timeout_s, 0) * 1000)
            returncode = self.poll()
        return returncode

    def terminate(self, grace_s: float) -> int:
        """TERM to its group, `grace_s` to comply, then KILL; return its exit status.

        Raises:
            HostError: Something of its group survives KILL.
        """
        if self.poll() is None:
            signal_group(self.pid, signal.SIGTERM)
            self.wait(grace_s)
        return self.kill()

    def kill(self) -> int:
        """KILL its group, if it has not ended already; return its exit status once nothing of the group is left.

        Raises:
            HostError: Something of its group survives KILL.
        """
        if self.poll() is None:
            signal_group(self.pid, signal.SIGKILL)
        returncode = self.wait(KILL_WAIT_S)
        if returncode is None:
            raise HostError(self._explain_survivor())
        return returncode

    def _explain_survivor(self) -> str:
        return f"{self.argv[0]} (group {self.pid}): alive {KILL_WAIT_S:g} s after KILL; look for a dead disk or mount"

    def close_stdin(self) -> None:
        """Close our end of its standard input: it reads the end of its input."""
        if self.stdin_fd is not None:
            self._stdio.close_fd(self.stdin_fd)
            self.stdin_fd = None

    def close(self) -> None:
        """Close every descriptor we hold for it, without touching the child itself."""
        self._stdio.close()
        self.stdin_fd = self.stdout_fd = self.stderr_fd = None
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.kill()
        finally:
            self.close()


def wait_any(children: Sequence[Running], timeout_s: float) -> tuple[Running, ...]:
    """Wait until one of them has ended, at most so long; those that have. Each must still be open."""
    watcher = select.poll()
    for child in children:
        watcher.register(child.pidfd, select.POLLIN)
    ready = {fd for fd, _ in watcher.poll(max(timeout_s, 0) * 1000)}
    return tuple(child for child in children if child.pidfd in ready)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: Plumbing = Plumbing.NULL,
    stdout: Plumbing = Plumbing.NULL,
    stderr: Plumbing = Plumbing.NULL,
    pass_fds: Sequence[int] = (),
) -> Running:
    """Start a child in a session of its own and return it at once; `env` is its whole environment.

    It gets copies of `pass_fds` as its descriptors 3, 4, ... in this order.

    Raises:
        HostError: It could not be started.
        ValueError: No argument at all, or a string that no process can be given.
    """
    if not argv:
        raise ValueError("argv is empty")
    program = find_program(argv[0], env)
    if program is None:
        message = f"cannot start {argv[0]}: not found on PATH={env.get('PATH', '')}; install it or correct PATH"
        raise HostError(message)
    stdio = Stdio(stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds)
    try:
        with Spawn(argv, program=program, env=env, cwd=cwd, stdio=stdio) as spawn:
            try:
                error = spawn.launch()
                if error == 0:
                    stdio.close_child_ends()
                    return Running(argv=argv, pid=spawn.pid, pidfd=os.pidfd_open(spawn.pid), stdio=stdio)
            except BaseException:
                if spawn.pid:
                    kill_group_and_reap(spawn.pid)
                raise
    except BaseException:
        stdio.close()
        raise
    stdio.close()
    raise HostError(explain_spawn_error(error, program=program, cwd=cwd))
