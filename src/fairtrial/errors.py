"""Every error a user can meet, one class per thing they can do next.

How a trial ended is data (`fairtrial.evidence.endings`), never an exception. Any exception that is not a
`FairtrialError` is our own bug and ends the program with exit code 70.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pathlib import Path  # every program of ours starts with this module: it imports nothing that it need not

__all__ = ["ConfigError", "FairtrialError", "HostError", "IntegrityError", "NotEnoughEvidenceError", "UsageError"]


class FairtrialError(Exception):
    """Base of the errors that are explained to the user in one line.

    Attributes:
        exit_code: The process exit code that this error ends the command with.
    """

    exit_code: ClassVar[int] = 70


class UsageError(FairtrialError):
    """The request is wrong: change the command line or the file it names."""

    exit_code: ClassVar[int] = 2


class ConfigError(UsageError):
    """A configuration file is wrong at a known place.

    Attributes:
        path: The file.
        line: 1-based line, or None when the file could not be parsed at all.
        column: 1-based column, or None likewise.
        key: The dotted key concerned, or None.
    """

    def __init__(
        self, message: str, *, path: Path, line: int | None = None, column: int | None = None, key: str | None = None
    ) -> None:
        where = str(path) if line is None else f"{path}:{line}" if column is None else f"{path}:{line}:{column}"
        super().__init__(f"{where}: {message}")
        self.path = path
        self.line = line
        self.column = column
        self.key = key


class HostError(FairtrialError):
    """The machine cannot do it: change the machine (install, free, mount, unlock)."""

    exit_code: ClassVar[int] = 3


class IntegrityError(FairtrialError):
    """Evidence is not what was written: believe nothing derived from it."""

    exit_code: ClassVar[int] = 4


class NotEnoughEvidenceError(FairtrialError):
    """The question cannot be answered from what was measured: run more trials."""

    exit_code: ClassVar[int] = 5
