"""Running one command in a sandbox to its end: started, fed, drained, watched, and nothing of it left.

Owns the life of the processes. What the sandbox looks like from inside is `bwrap`'s, who it runs as is `slot`'s, what
it may use is `limits`'s. A killed sandbox is over when its *inner* first process is: the kernel lets that one end last.
"""

import json
import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from types import TracebackType
from typing import BinaryIO, Final, Self

from fairtrial.errors import HostError
from fairtrial.host.files import remove_tree
from fairtrial.host.group import KILL_WAIT_S, signal_group
from fairtrial.host.inside import Inside, children_of, is_first_inside
from fairtrial.host.launch import Launched, launch
from fairtrial.host.limits import Enforcement, Space, Watch
from fairtrial.host.plain import launch_plain
from fairtrial.host.proc import read_stat, signal_if
from fairtrial.host.slot import Slot
from fairtrial.host.tally import StreamTally
from fairtrial.model.sandbox import Containment, Limit, SandboxResult, SandboxSpec, SandboxState

__all__ = ["Sandbox", "blame", "run_sandbox", "start_sandbox"]

TAIL_BYTES: Final = 64 * 1024
_REAP_WAIT_S: Final = 2.0
_CHUNK_BYTES: Final = 64 * 1024


def run_sandbox(
    spec: SandboxSpec,
    *,
    slot: Slot,
    enforcement: Enforcement,
    space: Space | None = None,
    sink: BinaryIO | None = None,
    capture_bytes: int = 0,
    beside: Sequence["Sandbox"] = (),
) -> SandboxResult:
    """Run a command in a sandbox to its end; nothing that it does raises.

    Args:
        spec: The sandbox.
        slot: Under which ids.
        enforcement: How limits are enforced here.
        space: What it writes to, watched for being full.
        sink: Gets the standard output as it comes.
        capture_bytes: Kept in the result from the start of each output stream.
        beside: Running sandboxes that are looked after meanwhile.

    Raises:
        HostError: A program that makes sandboxes is missing, or something of it survives KILL.
        OSError: The sink cannot be written, or we ran out of descriptors.
        UsageError: The description makes no sense.
    """
    with start_sandbox(
        spec, slot=slot, enforcement=enforcement, space=space, sink=sink, capture_bytes=capture_bytes
    ) as sandbox:
        result = sandbox.wait(beside)
    return blame(result, spec, slot=slot, enforcement=enforcement)


def blame(result: SandboxResult, spec: SandboxSpec, *, slot: Slot, enforcement: Enforcement) -> SandboxResult:
    """Tell whose fault it was that a sandbox did not start: BROKEN is that of what a trial left in its tree."""
    if result.state is SandboxState.START_FAILURE and _starts_without_our_trees(spec, slot, enforcement):
        return replace(result, state=SandboxState.BROKEN, detail=f"its own tree cannot be used: {result.detail}")
    return result


def _starts_without_our_trees(spec: SandboxSpec, slot: Slot, enforcement: Enforcement) -> bool:
    """Tell whether the same sandbox starts with empty directories in place of what trials can write.

    If it does, the host is able, and what an earlier session left in its tree (a closed root, a link where something
    is to be mounted) is what kept it from starting; or it had started, and was destroyed.
    """
    empty = Path(mkdtemp(dir=slot.root))
    try:
        slot.give(empty)
        ours = [bind.source.is_relative_to(slot.root) and bind.source.is_dir() for bind in spec.binds]
        marked = list(zip(spec.binds, ours, strict=True))
        binds = tuple(replace(bind, source=empty) if is_ours else bind for bind, is_ours in marked)
        cwd_is_ours = any(is_ours and PurePosixPath(spec.cwd).is_relative_to(bind.target) for bind, is_ours in marked)
        cwd = "/" if cwd_is_ours else spec.cwd
        control = replace(spec, argv=("/usr/bin/true",), cwd=cwd, binds=binds, stdin=b"", pass_fds=())
        with start_sandbox(control, slot=slot, enforcement=enforcement) as sandbox:
            return sandbox.wait().state is not SandboxState.START_FAILURE
    finally:
        remove_tree(empty)


def start_sandbox(
    spec: SandboxSpec,
    *,
    slot: Slot,
    enforcement: Enforcement,
    space: Space | None = None,
    sink: BinaryIO | None = None,
    capture_bytes: int = 0,
) -> "Sandbox":
    """Start a sandbox and return it at once; leaving its `with` block kills it. Arguments and errors: `run_sandbox`."""
    if enforcement.containment is Containment.NONE:
        launched = launch_plain(spec, slot=slot)
    else:
        launched = launch(spec, slot=slot, enforcement=enforcement)
    return Sandbox(spec, launched, enforcement=enforcement, space=space, sink=sink, capture_bytes=capture_bytes)


@dataclass(slots=True, kw_only=True)
class _Report:
    """What Bubblewrap has said so far.

    Attributes:
        inner_pid: First process inside, by our numbers; None until it exists.
        exit_code: Exit status of the command; None until it is known.
    """

    inner_pid: int | None = None
    exit_code: int | None = None


class Sandbox:
    """One running sandbox. Use as a context manager: it is killed on the way out, its descriptors are closed."""

    def __init__(
        self,
        spec: SandboxSpec,
        launched: Launched,
        *,
        enforcement: Enforcement,
        space: Space | None,
        sink: BinaryIO | None,
        capture_bytes: int,
    ) -> None:
        self._limits = spec.limits
        self._running = launched.running
        self._started_ns = launched.started_ns
        self._status_fd = launched.status_fd
        self._held = launched.held
        self._group = launched.group
        self._enforcement = enforcement
        self._space = space
        self._sink = sink
        self._stdout = StreamTally(tail_bytes=TAIL_BYTES, capture_bytes=capture_bytes)
        self._stderr = StreamTally(tail_bytes=TAIL_BYTES, capture_bytes=capture_bytes)
        self._n_output_bytes = 0
        self._unsent = memoryview(spec.stdin)
        self._said = b""
        self._report = _Report()
        self._inner_fd = -1
        self._inside: Inside | None = None
        self._watch: Watch | None = None
        self._limit: Limit | None = None
        self._stopped = False
        self._forced = False
        self._term_at_s: float | None = None
        self._look_at_s = time.monotonic()
        self._deadline_s = time.monotonic() + spec.limits.wall_s
        self._result: SandboxResult | None = None
        self._poll = select.poll()
        self._streams = self._register()

    def _register(self) -> dict[int, StreamTally]:
        streams: dict[int, StreamTally] = {}
        for fd, tally in ((self._running.stdout_fd, self._stdout), (self._running.stderr_fd, self._stderr)):
            if fd is not None:
                os.set_blocking(fd, False)
                self._poll.register(fd, select.POLLIN)
                streams[fd] = tally
        if self._running.stdin_fd is not None:
            os.set_blocking(self._running.stdin_fd, False)
            self._poll.register(self._running.stdin_fd, select.POLLOUT)
        os.set_blocking(self._status_fd, False)
        self._poll.register(self._status_fd, select.POLLIN)
        self._poll.register(self._running.pidfd, select.POLLIN)
        return streams

    @property
    def result(self) -> SandboxResult | None:
        """How it ended; None while it runs."""
        return self._result

    def wait(self, beside: Sequence["Sandbox"] = ()) -> SandboxResult:
        """Follow it to its end, and the others meanwhile."""
        while self._result is None:
            self.pump(0.0 if any(other.pump(0) for other in beside) else 0.25)
        return self._result

    def stop(self) -> SandboxResult:
        """End it at once, whatever it is doing."""
        if self._result is None:
            self._stopped = True
            self._end()
        assert self._result is not None  # noqa: S101 - `_end` sets it
        return self._result

    def pump(self, wait_s: float) -> bool:
        """Move what can be moved within a time, look after it; return whether something happened."""
        if self._result is not None:
            return False
        now_s = time.monotonic()
        next_s = min(self._look_at_s, self._kill_at_s if self._term_at_s is not None else self._deadline_s)
        ready = self._poll.poll(max(min(wait_s, next_s - now_s), 0) * 1000)
        ended = False
        for fd, _ in ready:
            if fd == self._running.pidfd:
                ended = True
            elif fd == self._status_fd:
                self._listen()
            elif fd == self._running.stdin_fd:
                self._feed(fd)
            else:
                self._take(fd)
        if ended:
            self._end()
        else:
            self._look_after()
        return bool(ready)

    @property
    def _kill_at_s(self) -> float:
        return (self._term_at_s or 0.0) + self._limits.grace_s

    def _look_after(self) -> None:
        now_s = time.monotonic()
        if self._n_output_bytes > self._limits.output_bytes:
            self._hit(Limit.OUTPUT)
        elif self._term_at_s is not None:
            if now_s >= self._kill_at_s:
                self._forced = True
                self._end()
        elif now_s >= self._deadline_s:
            self._limit = Limit.WALL
            self._term_at_s = now_s
            self._ask_to_end()
        elif now_s >= self._look_at_s:
            limit = None if self._watch is None else self._watch.look()
            if limit is not None:
                self._hit(limit)
            self._look_at_s = now_s + (0.02 if self._watch is None else self._watch.pause_s)

    def _hit(self, limit: Limit) -> None:
        self._limit = limit
        self._end()

    def _ask_to_end(self) -> None:
        """TERM to what the sandbox's first process has started: the supervisor, or the command itself.

        Bubblewrap's own processes would not pass it on.
        """
        if self._enforcement.containment is Containment.NONE:
            signal_group(self._running.pid, signal.SIGTERM)
            return
        init = self._report.inner_pid
        for pid in () if init is None else children_of(init):
            signal_if(pid, signal.SIGTERM, lambda pinned: (stat := read_stat(pinned)) is not None and stat.ppid == init)

    def _listen(self) -> None:
        """Read Bubblewrap's reports: JSON objects, one after the other."""
        try:
            data = os.read(self._status_fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._poll.unregister(self._status_fd)
            return
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            said: dict[str, object] = json.loads(line) if line.strip() else {}
            if isinstance(inner_pid := said.get("child-pid"), int):
                self._meet(inner_pid)
            if isinstance(exit_code := said.get("exit-code"), int):
                self._report.exit_code = exit_code

    def _meet(self, inner_pid: int) -> None:
        """Hold on to the sandbox's first process, by a descriptor that cannot come to mean another one."""
        self._report.inner_pid = inner_pid
        try:
            self._inner_fd = os.pidfd_open(inner_pid)
        except ProcessLookupError:
            return
        if not is_first_inside(inner_pid):  # it has ended, and its number means another process by now
            os.close(self._inner_fd)
            self._inner_fd = -1
            return
        self._inside = Inside(inner_pid)
        self._watch = Watch(self._limits, self._inside, group=self._group, space=self._space)

    def _feed(self, fd: int) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(fd, self._unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass  # it closed its input: what it did not read is its own affair
        self._poll.unregister(fd)
        self._running.close_stdin()

    def _take(self, fd: int) -> bool:
        """Read once from an output stream; return whether there may be more."""
        try:
            data = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""  # of a socket whose other end was closed with input unread
        if not data:
            self._poll.unregister(fd)
            del self._streams[fd]
            return False
        room = max(self._limits.output_bytes - self._n_output_bytes, 0)
        self._n_output_bytes += len(data)
        kept = data[:room]
        self._streams[fd].take(data)
        if kept and self._sink is not None and fd == self._running.stdout_fd:
            self._sink.write(kept)
        return True

    def _end(self) -> None:
        """Kill what is left, wait until the kernel has ended it, take the last output, and say how it was."""
        if self._report.inner_pid is None or self._report.exit_code is None:
            self._await_report()
        if self._limit in {None, Limit.WALL} and self._watch is not None and not self._stopped:
            self._limit = self._watch.look_outside() or self._limit
        self._kill_inner()
        self._running.wait(_REAP_WAIT_S)  # the outer process reaps the inner one and ends; killed first it would not
        self._running.kill()
        if self._report.inner_pid is not None:
            _reap(self._report.inner_pid)
        self._await_report()
        for fd in tuple(self._streams):
            while self._n_output_bytes <= self._limits.output_bytes and self._take(fd):
                pass
        ended_ns = time.perf_counter_ns()
        if self._n_output_bytes > self._limits.output_bytes and self._limit is None:
            self._limit = Limit.OUTPUT
        peak = None if self._watch is None else self._watch.peak_bytes
        if self._group is not None:
            peak = self._group.peak_bytes()
        self._result = SandboxResult(
            state=self._state(),
            returncode=self._report.exit_code if self._limit in {None, Limit.WALL} and not self._forced else None,
            limit=self._limit,
            elapsed_ms=(ended_ns - self._started_ns) / 1e6,
            cpu_s=None if self._watch is None else self._watch.cpu_s,
            peak_memory_bytes=peak,
            stdout=self._stdout.capture(),
            stderr=self._stderr.capture(),
            enforced=self._enforcement.mechanisms,
            detail=self._detail(),
        )

    def _await_report(self) -> None:
        """Take what Bubblewrap has written by now."""
        before = -1
        while before != len(self._said) and self._poll_status():
            before = -1
            self._listen()

    def _poll_status(self) -> bool:
        poll = select.poll()
        poll.register(self._status_fd, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll(0))

    def _kill_inner(self) -> None:
        if self._enforcement.containment is Containment.NONE:
            signal_group(self._running.pid, signal.SIGKILL)  # nobody has reaped it yet, so the number is still its own
        if self._inner_fd < 0:
            return
        try:
            signal.pidfd_send_signal(self._inner_fd, signal.SIGKILL)
        except ProcessLookupError:
            return
        poll = select.poll()
        poll.register(self._inner_fd, select.POLLIN)
        if not poll.poll(KILL_WAIT_S * 1000):
            raise HostError(f"a sandbox is alive {KILL_WAIT_S:g} s after KILL; look for a dead disk or mount")

    def _state(self) -> SandboxState:
        if self._stopped:
            return SandboxState.STOPPED
        if self._limit is Limit.WALL:
            return SandboxState.FORCED_KILL if self._forced else SandboxState.TIMEOUT
        if self._limit is not None:
            return SandboxState.LIMIT
        if self._report.exit_code is not None:
            return SandboxState.EXITED
        return SandboxState.START_FAILURE  # `blame` finds out whose fault it was

    def _detail(self) -> str:
        if self._limit is Limit.WALL:
            return f"reached its limit of {self._limits.wall_s:g} s" + (
                f"; ignored TERM for {self._limits.grace_s:g} s" if self._forced else ""
            )
        if self._state() is SandboxState.START_FAILURE:
            return self._stderr.capture().tail.decode(errors="replace").strip().partition("\n")[0]
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._result is None:
                self._kill_inner()
                self._running.kill()
        finally:
            self._running.close()
            if self._inner_fd >= 0:
                os.close(self._inner_fd)
            if self._inside is not None:
                self._inside.close()
            self._held.close()


def _reap(pid: int) -> None:
    """Reap the inner process if it has become ours: it does when Bubblewrap's outer one was killed first."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
