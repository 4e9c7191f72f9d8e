"""What the tests of `host` share: conditions to wait on, and a count of what must not leak."""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairtrial.host import process
from fairtrial.host.process import run

SOURCE = Path(process.__file__).parents[2]
Eventually = Callable[[Callable[[], bool]], None]


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
def shared_directory() -> Iterator[Path]:
    """A directory that every user can reach and write; pytest's own ones are closed to others."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


@dataclass(frozen=True)
class User:
    """Who runs the processes of a test.

    Attributes:
        prefix: Put before a command line, makes it run as that user.
        python: An interpreter that the user can reach: a venv below /root is none.
    """

    prefix: tuple[str, ...]
    python: str


@pytest.fixture(params=["as we are", "as nobody"])
def user(request: pytest.FixtureRequest) -> User:
    """Run what matters to users both as the caller and, when the caller is root, as an unprivileged user."""
    if request.param == "as we are":
        return User(prefix=(), python=sys.executable)
    if os.getuid() != 0:
        pytest.skip("already an unprivileged user")
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    for python in (sys.executable, "/usr/bin/python3"):
        # Twice, since setpriv itself can still reach what the user cannot.
        probe = [*prefix, "/usr/bin/env", python, "-c", "import fairtrial.host.process"]
        if run(probe, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCE)}, timeout_s=30).ok:
            return User(prefix=prefix, python=python)
    pytest.skip("no interpreter that an unprivileged user can run")
