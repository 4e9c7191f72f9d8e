"""An interrupt may fall between any two instructions of ours; the child must die with it each time."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from fairtrial.host.process import run

Env = dict[str, str]


class _Interrupter:
    """Raises KeyboardInterrupt before the n-th instruction that our code runs once a child exists."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0
        self.spawned = False

    def trace(self, frame: FrameType, event: str, _arg: object) -> Any:  # noqa: ANN401 - what sys.settrace takes
        if "/fairtrial/host/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        self.spawned |= frame.f_code.co_name == "launch"
        if event == "opcode" and self.spawned:
            self.seen += 1
            if self.seen == self.at:
                raise KeyboardInterrupt
        return self.trace


def children() -> set[str]:
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def interrupted_run(env: Env, at: int) -> _Interrupter:
    interrupter = _Interrupter(at)
    previous = sys.gettrace()
    sys.settrace(interrupter.trace)
    try:
        run(["sleep", "300"], env=env, timeout_s=0.001, grace_s=5)
    finally:
        sys.settrace(previous)
    return interrupter


def test_an_interrupt_at_any_instruction_leaves_no_process(env: Env, open_fds: Callable[[], set[str]]) -> None:
    n_instructions = interrupted_run(env, at=0).seen
    assert n_instructions > 200
    others = children()
    for at in range(1, n_instructions - 20):
        before = open_fds()
        try:
            whole = interrupted_run(env, at)
        except KeyboardInterrupt:
            pass
        else:  # how often the loop turns depends on the clock
            assert 200 < whole.seen < at
        assert children() <= others, at  # a dead child that nobody has reaped is one too
        # Between the call that returns the pidfd and its assignment the interpreter itself loses the number.
        assert len(open_fds() - before) <= 1, at
