"""What the tests of `host` share: conditions to wait on, and a count of what must not leak."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Eventually = Callable[[Callable[[], bool]], None]


@pytest.fixture
def eventually() -> Eventually:
    """Wait until a condition holds; fail when it does not within ten seconds."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 10
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
