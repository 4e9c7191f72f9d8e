"""Standard output and standard error of the program: what becomes of a result that cannot be written."""

import io
import os
import sys
from typing import Final

from typing_extensions import override

from fairtrial.errors import HostError

__all__ = ["ClosedPipeError", "open_streams"]


HIGHEST_STANDARD_FD: Final = 2


class ClosedPipeError(Exception):
    """Whoever read our standard output has left. It is no `OSError`: click and rich would end the program with 1."""


class _Output(io.TextIOWrapper):
    """Standard output, of which nothing may be lost in silence."""

    @override
    def write(self, text: str, /) -> int:
        """Write, or say why not."""
        try:
            return super().write(text)
        except OSError as problem:
            raise self._give_up(problem) from None

    @override
    def flush(self) -> None:
        """Flush, or say why not."""
        try:
            super().flush()
        except OSError as problem:
            raise self._give_up(problem) from None

    def _give_up(self, problem: OSError) -> Exception:
        _discard(1)  # what is still buffered would fail again at the end
        if isinstance(problem, BrokenPipeError):
            return ClosedPipeError()
        return HostError(
            f"standard output: cannot be written ({problem.strerror}); make room there, or send it elsewhere"
        )


class _Messages(io.TextIOWrapper):
    """Standard error. Nobody can be told that it fails, so nothing may depend on it: work goes on without."""

    @override
    def write(self, text: str, /) -> int:
        """Write, if anybody can still read it."""
        try:
            return super().write(text)
        except OSError:
            _discard(2)
            return len(text)

    @override
    def flush(self) -> None:
        """Flush, if anybody can still read it."""
        try:
            super().flush()
        except OSError:
            _discard(2)


def open_streams() -> None:
    """Put both in the place of `sys.stdout` and `sys.stderr`.

    A number that the caller closed is given to /dev/null: else the next file that we open, a journal or a lock, would
    have it, and get what is meant for a reader.

    Raises:
        HostError: Standard output is closed.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= HIGHEST_STANDARD_FD:
        pass
    os.close(fd)
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    else:
        sys.stderr = _Messages(sys.stderr.buffer, sys.stderr.encoding, sys.stderr.errors, line_buffering=True)
    if sys.stdout is None:
        raise HostError("standard output is closed; open it, or send it to /dev/null")
    sys.stdout = _Output(sys.stdout.buffer, sys.stdout.encoding, sys.stdout.errors, line_buffering=os.isatty(1))


def _discard(fd: int) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, fd)
    os.close(nothing)
