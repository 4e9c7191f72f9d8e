"""pytest with our reporter in it: the child of `test_runner.py`.

    python3 -I pytest_child.py FILES ARGUMENT...

FILES is a JSON list of the oracle's own files. The key is read, and pytest imported, while nothing of the workspace
can be imported yet. Runs on the Python that the tests need, 3.8 or newer, and is imported by nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pluggy import Result

__all__ = ["Reporter", "main", "open_report"]

KEY_BYTES = 32
REPORT = "FAIRTRIAL_REPORT_FD"
PHASES = {"setup", "call", "teardown"}


def open_report() -> Callable[[str], None]:
    """Return a function that sends one line with its code; the key is nowhere else."""
    fd = int(os.environ.pop(REPORT))
    os.set_inheritable(fd, False)  # noqa: FBT003 - it has no keyword
    key = b""
    while len(key) < KEY_BYTES:
        key += os.read(fd, KEY_BYTES - len(key))
    n_lines = 0

    def say(text: str) -> None:
        nonlocal n_lines
        code = hmac.new(key, f"{n_lines} {text}".encode(), hashlib.sha256).hexdigest()
        n_lines += 1
        os.write(fd, f"{code} {text}\n".encode())

    return say


class Reporter:
    """Sends how each test of the oracle's own files ended: the worse of what happened and what pytest made of it.

    Attributes:
        say: Sends a line.
        own: The oracle's own files.
        passed: Phases of the test at hand that ran to their end without an exception.
        said: What pytest made of them.
    """

    def __init__(self, say: Callable[[str], None], files: list[str]) -> None:
        self.say = say
        self.own = frozenset(os.path.realpath(path) for path in files)
        self.passed: set[str] = set()
        self.said: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        """Let the workspace be imported from, as `python -m pytest` does, now that all plugins are loaded."""
        variable = os.environ.get("PYTHONPATH", "")
        sys.path[:0] = [os.getcwd(), *filter(None, variable.split(os.pathsep))]  # noqa: PTH109 - text is wanted

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, Result[object], None]:
        """See what really happened."""
        self.note("setup", (yield))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, Result[object], None]:
        """See what really happened."""
        self.note("call", (yield))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, Result[object], None]:
        """See what really happened."""
        self.note("teardown", (yield))

    def note(self, phase: str, outcome: Result[object]) -> None:
        """Note how a phase went."""
        if outcome.excinfo is None:
            self.passed.add(phase)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what pytest made of it."""
        self.said.add(report.outcome)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, None]:
        """Send how one test ended."""
        self.passed, self.said = set(), set()
        yield
        if os.path.realpath(str(getattr(item, "path", None) or item.fspath)) in self.own:
            self.say(self.ending())

    def ending(self) -> str:
        """Judge the test at hand."""
        if "failed" in self.said:
            return "failed"
        if "skipped" in self.said:
            return "skipped"
        return "passed" if self.passed == PHASES else "failed"


def main() -> int:
    """Run pytest."""
    say = open_report()
    files, arguments = json.loads(sys.argv[1]), sys.argv[2:]
    if importlib.util.find_spec("xdist"):
        arguments.append("-n0")  # whatever the settings ask for: only what runs in this process is reported
    code = pytest.main(arguments, plugins=[Reporter(say, files)])
    say("end")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
