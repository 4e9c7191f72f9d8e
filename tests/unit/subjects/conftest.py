"""Places and results that were never on any disk: what a subject says of them is pure."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.model.loop import Place, Transport
from fairtrial.model.process import ProcessResult, ProcessState, StreamCapture
from fairtrial.protocols import Subject

ROOT = Path("/t")


@pytest.fixture
def make_place() -> Callable[[Subject, Transport], Place]:
    def make(subject: Subject, transport: Transport) -> Place:
        store = subject.served_store(ROOT / "served")
        return Place(
            root=ROOT,
            store=store,
            base=ROOT / "base",
            workspace=ROOT / "task",
            remote=subject.remote(transport, store, 20_001),
            trunk="main",
            branch="work/task-0",
            message="Note it",
        )

    return make


def stream(data: bytes) -> StreamCapture:
    return StreamCapture(
        n_bytes=len(data),
        n_characters=len(data.decode()),
        head=data,
        head_truncated=False,
        tail=data,
        tail_truncated=False,
    )


@pytest.fixture
def make_result() -> Callable[..., ProcessResult]:
    def make(
        returncode: int | None = 0,
        stdout: str = "",
        stderr: str = "",
        state: ProcessState = ProcessState.EXITED,
        timed_out: bool = False,
    ) -> ProcessResult:
        return ProcessResult(
            argv=("tool", "push"),
            state=state,
            returncode=returncode,
            elapsed_ms=1.0,
            cpu_user_s=0.0,
            cpu_system_s=0.0,
            peak_memory_bytes=1,
            peak_memory_reason=None,
            timed_out=timed_out,
            forced_kill=False,
            pipe_held=False,
            stdout=stream(stdout.encode()),
            stderr=stream(stderr.encode()),
            detail="",
        )

    return make
