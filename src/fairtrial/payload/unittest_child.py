"""unittest with our result class: the child of `test_runner.py`.

    python3 -I unittest_child.py FILES ARGUMENT...

FILES is a JSON list of the oracle's own files. Runs on the Python that the tests need, 3.8 or newer, and is imported by
nobody.
"""

# `typing.override` is younger than the Pythons that this runs on.
# mypy: disable-error-code="explicit-override"

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
import unittest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    Problem = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]

__all__ = ["main", "make_result_class", "open_report"]

KEY_BYTES = 32
REPORT = "FAIRTRIAL_REPORT_FD"


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


def make_result_class(say: Callable[[str], None], files: list[str]) -> type[unittest.TextTestResult]:
    """Make the class of results that sends how each test of the oracle's own files ended."""
    own = frozenset(os.path.realpath(path) for path in files)

    class Result(unittest.TextTestResult):
        """One run; a test's ending is the worst that is said of it."""

        ending: str | None = None

        def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
            super().startTest(test)
            self.ending = None

        def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - likewise
            super().addSuccess(test)
            self.ending = self.ending or "passed"

        def addError(self, test: unittest.TestCase, err: Problem) -> None:  # noqa: N802 - likewise
            super().addError(test, err)
            self.ending = "failed"

        def addFailure(self, test: unittest.TestCase, err: Problem) -> None:  # noqa: N802 - likewise
            super().addFailure(test, err)
            self.ending = "failed"

        def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Problem | None) -> None:  # noqa: N802 - likewise
            super().addSubTest(test, subtest, err)
            if err is not None:
                self.ending = "failed"

        def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802 - likewise
            super().addSkip(test, reason)
            self.ending = self.ending or "skipped"

        def addExpectedFailure(self, test: unittest.TestCase, err: Problem) -> None:  # noqa: N802 - likewise
            super().addExpectedFailure(test, err)
            self.ending = self.ending or "skipped"

        def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - likewise
            super().addUnexpectedSuccess(test)
            self.ending = "failed"

        def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - likewise
            super().stopTest(test)
            module = sys.modules.get(type(test).__module__)
            if os.path.realpath(getattr(module, "__file__", None) or "/") in own:
                say(self.ending or "failed")

    return Result


def main() -> int:
    """Run unittest."""
    say = open_report()
    files, arguments = json.loads(sys.argv[1]), sys.argv[2:]
    variable = os.environ.get("PYTHONPATH", "")
    sys.path[:0] = [os.getcwd(), *filter(None, variable.split(os.pathsep))]  # noqa: PTH109 - text is wanted
    runner = unittest.TextTestRunner(resultclass=make_result_class(say, files))  # pyright: ignore[reportArgumentType] - typeshed
    program = unittest.main(module=None, argv=["unittest", *arguments], testRunner=runner, exit=False)
    say("end")
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
