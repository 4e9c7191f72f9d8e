"""Commands of the agent that do not run one after the other: one that is killed on purpose, several at once."""

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from fairtrial.host.process import Running, start
from fairtrial.host.running import wait_any
from fairtrial.host.tally import StreamTally
from fairtrial.model.loop import Step
from fairtrial.model.process import ProcessResult, ProcessState, StreamCapture

__all__ = ["Spawned", "run_at_once", "run_until_killed"]

LIMIT_S: Final = 120.0
POLL_S: Final = 0.02
TAIL_BYTES: Final = 64 * 1024
UNMEASURED: Final = "only a command that runs alone is accounted for"


class Spawned:
    """One command that runs while we do something else; its output goes to files."""

    def __init__(self, step: Step, environment: Mapping[str, str]) -> None:
        """Start it.

        Raises:
            HostError: It cannot be started.
        """
        self.step = step
        self._files = tempfile.TemporaryDirectory(dir=step.cwd.parent, prefix="spawned-")
        self._out, self._err = Path(self._files.name) / "out", Path(self._files.name) / "err"
        script = 'out=$1 err=$2; shift 2; exec "$@" >"$out" 2>"$err"'
        argv = ("/bin/sh", "-c", script, "sh", str(self._out), str(self._err), *step.argv)
        self._begun_s = time.perf_counter()
        self.running: Running = start(argv, env=environment, cwd=step.cwd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.running.kill()
        finally:
            self.running.close()
            self._files.cleanup()

    @property
    def age_s(self) -> float:
        """How long ago it was started."""
        return time.perf_counter() - self._begun_s

    def result(self, state: ProcessState, returncode: int, detail: str = "") -> ProcessResult:
        """What it was, now that it has ended."""
        return ProcessResult(
            argv=self.step.argv,
            state=state,
            returncode=returncode,
            elapsed_ms=self.age_s * 1000,
            cpu_user_s=None,
            cpu_system_s=None,
            peak_memory_bytes=None,
            peak_memory_reason=UNMEASURED,
            timed_out=state is ProcessState.TIMEOUT,
            forced_kill=state is ProcessState.FORCED_KILL,
            pipe_held=False,
            stdout=_capture(self._out),
            stderr=_capture(self._err),
            detail=detail,
        )


def run_until_killed(
    step: Step,
    environment: Mapping[str, str],
    due: Callable[[], bool],
    state: ProcessState = ProcessState.FORCED_KILL,
) -> ProcessResult:
    """Run a command until `due`, then send SIGKILL to its group; it may also end by itself before, or at 120 s.

    Whether it was killed is told by the result's state and exit status, not assumed.

    Args:
        step: The command.
        environment: Its whole environment.
        due: Whether its time has come.
        state: What being killed means: on purpose, or as a tool that hangs.

    Raises:
        HostError: It cannot be started.
    """
    with Spawned(step, environment) as spawned:
        while (returncode := spawned.running.wait(POLL_S)) is None:
            if due() or spawned.age_s > LIMIT_S:
                return spawned.result(state, spawned.running.kill(), "killed on purpose")
        return spawned.result(ProcessState.EXITED, returncode, "it ended before it could be killed")


def run_at_once(
    tasks: Mapping[str, Sequence[Step]], environment: Mapping[str, str], *, limit_s: float
) -> Iterator[tuple[str, int, ProcessResult]]:
    """Run several tasks at once, each its commands one after the other; a task ends at its first unexpected status.

    Args:
        tasks: The commands of each task, by its name.
        environment: The whole environment of all of them.
        limit_s: How long one command may take.

    Yields:
        Task, index of the command in it, and how it ended; as they end.

    Raises:
        HostError: One cannot be started.
    """
    waiting = {name: deque(enumerate(steps)) for name, steps in tasks.items()}
    with ExitStack() as stack:
        running: dict[str, tuple[int, Spawned]] = {}
        for name in tasks:
            _start_next(name, waiting, running, environment, stack)
        while running:
            ended = wait_any([spawned.running for _, spawned in running.values()], POLL_S)
            for name, (index, spawned) in list(running.items()):
                result = _ending(spawned, limit_s, over=spawned.running in ended)
                if result is None:
                    continue
                del running[name]
                if result.returncode in spawned.step.expected and not result.timed_out:
                    _start_next(name, waiting, running, environment, stack)
                yield name, index, result


def _start_next(
    name: str,
    waiting: Mapping[str, deque[tuple[int, Step]]],
    running: dict[str, tuple[int, Spawned]],
    environment: Mapping[str, str],
    stack: ExitStack,
) -> None:
    if waiting[name]:
        index, step = waiting[name].popleft()
        running[name] = index, stack.enter_context(Spawned(step, environment))


def _ending(spawned: Spawned, limit_s: float, *, over: bool) -> ProcessResult | None:
    """How a command ended; None while it runs."""
    if over:
        returncode = spawned.running.poll()
        return None if returncode is None else spawned.result(ProcessState.EXITED, returncode)
    if spawned.age_s > limit_s:
        return spawned.result(ProcessState.TIMEOUT, spawned.running.kill(), f"reached its limit of {limit_s:g} s")
    return None


def _capture(path: Path) -> StreamCapture:
    """What it wrote, in bounded memory, however much that is."""
    tally = StreamTally(tail_bytes=TAIL_BYTES, capture_bytes=0)
    if path.exists():
        with path.open("rb") as file:
            while data := file.read(TAIL_BYTES):
                tally.take(data)
    return tally.capture()
