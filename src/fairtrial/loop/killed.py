"""A client that is killed at a chosen moment, as by a machine that dies or an agent program that gives up."""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from fairtrial.host.process import start
from fairtrial.model.loop import Step
from fairtrial.model.process import ProcessResult, ProcessState, StreamCapture

__all__ = ["run_until_killed"]

LIMIT_S: Final = 60.0
POLL_S: Final = 0.02
TAIL_BYTES: Final = 64 * 1024
UNMEASURED: Final = "a client that is killed is not accounted for"


def run_until_killed(step: Step, environment: Mapping[str, str], due: Callable[[], bool]) -> ProcessResult:
    """Run a command until `due`, then send SIGKILL to its group; it may also end by itself before, or at 60 s.

    Whether it was killed is told by the result's state and exit status, not assumed.

    Raises:
        HostError: It cannot be started.
    """
    with tempfile.TemporaryDirectory(dir=step.cwd.parent, prefix="killed-") as name:
        out, err = Path(name) / "out", Path(name) / "err"
        argv = ("/bin/sh", "-c", 'out=$1 err=$2; shift 2; exec "$@" >"$out" 2>"$err"', "sh", str(out), str(err))
        begun_s = time.perf_counter()
        with start((*argv, *step.argv), env=environment, cwd=step.cwd) as running:
            returncode = _await(running.wait, due)
            killed = returncode is None
            if returncode is None:
                returncode = running.kill()
            elapsed_ms = (time.perf_counter() - begun_s) * 1000
        return ProcessResult(
            argv=step.argv,
            state=ProcessState.FORCED_KILL if killed else ProcessState.EXITED,
            returncode=returncode,
            elapsed_ms=elapsed_ms,
            cpu_user_s=None,
            cpu_system_s=None,
            peak_memory_bytes=None,
            peak_memory_reason=UNMEASURED,
            timed_out=False,
            forced_kill=killed,
            pipe_held=False,
            stdout=_capture(out),
            stderr=_capture(err),
            detail="killed on purpose" if killed else "it ended before it could be killed",
        )


def _await(wait: Callable[[float], int | None], due: Callable[[], bool]) -> int | None:
    """Wait for the command's end or for the moment; its exit status, or None when the moment came first."""
    deadline_s = time.monotonic() + LIMIT_S
    while (returncode := wait(POLL_S)) is None:
        if due() or time.monotonic() > deadline_s:
            return None
    return returncode


def _capture(path: Path) -> StreamCapture:
    data = path.read_bytes() if path.exists() else b""
    return StreamCapture(
        n_bytes=len(data),
        n_characters=len(data.decode("utf-8", "replace")),
        head=b"",
        head_truncated=bool(data),
        tail=data[-TAIL_BYTES:],
        tail_truncated=len(data) > TAIL_BYTES,
    )
