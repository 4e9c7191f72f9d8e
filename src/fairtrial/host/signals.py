"""TERM, INT and HUP as a request that the sweep reads between two events; workers never see them."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["StopRequest", "stop_requests"]

STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Whether somebody asked the program to stop.

    Attributes:
        signal_number: The first signal that asked, or None.
    """

    def __init__(self, wake_fd: int) -> None:
        self.signal_number: int | None = None
        self._wake_fd = wake_fd

    def fileno(self) -> int:
        """Readable from the first request on."""
        return self._wake_fd


@contextmanager
def stop_requests() -> Generator[StopRequest]:
    """Turn the stopping signals into a `StopRequest` while the block runs; a second one ends the program at once."""
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    request = StopRequest(read_fd)

    def note(number: int, _frame: FrameType | None) -> None:
        if request.signal_number is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        request.signal_number = number
        os.write(write_fd, b"!")

    before = {number: signal.signal(number, note) for number in STOPPING}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read_fd)
        os.close(write_fd)
