"""What the tests of `host` share: conditions to wait on, and a count of what must not leak."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.host.process import run
from fairtrial.model.process import ProcessResult

Eventually = Callable[[Callable[[], bool]], None]
RunUntilReady = Callable[..., ProcessResult]


@pytest.fixture
def eventually() -> Eventually:
    """Wait until a condition holds; fail when it does not within a minute."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline_s, "the condition never came true"
            threading.Event().wait(0.005)

    return wait


@pytest.fixture
def open_fds() -> Callable[[], set[str]]:
    """List this process's open descriptors."""
    return lambda: set(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A built environment, as every caller of `run` has one."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C"}


@pytest.fixture
def run_until_ready(env: dict[str, str]) -> RunUntilReady:
    """`run` a command that says `ready` first; when its limit came before that, once more with a larger one.

    How long a program needs until its trap is set is the machine's business; what happens after that is ours.
    """

    def attempt(argv: list[str], *, grace_s: float, env: dict[str, str] = env) -> ProcessResult:
        for timeout_s in (0.2, 4, 40):
            result = run(argv, env=env, timeout_s=timeout_s, grace_s=grace_s, capture_bytes=6)
            if result.stdout.head == b"ready\n":
                return result
        pytest.fail(f"it was never ready: {result}")

    return attempt
