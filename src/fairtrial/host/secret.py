"""Keys in the environment: taken out of it, so that nobody reads them in /proc afterwards."""

import ctypes
import os
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError

__all__ = ["hide_memory", "hide_variable", "take_variable"]

_PR_SET_DUMPABLE: Final = 4
# /proc/self/stat, counted from the field after the name: env_start and env_end are fields 50 and 51 of proc(5).
_ENV_START, _ENV_END = 47, 48


def hide_memory() -> None:
    """Keep other processes of the same user from reading this one's memory, and its memory out of core files.

    Raises:
        HostError: The kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0):
        raise HostError(f"prctl {_PR_SET_DUMPABLE}: {os.strerror(ctypes.get_errno())}; run on a common Linux kernel")


def take_variable(name: str) -> str | None:
    """Return a variable's value and erase it, also from what /proc/PID/environ shows; None when it is not set.

    Children started afterwards do not inherit it.
    """
    value = os.environ.pop(name, None)
    if value is None:
        return None
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    # The strings of the environment that the process was started with lie there, whatever became of its variables.
    begun = b"\0" + ctypes.string_at(start, end - start)
    offset = begun.find(b"\0" + os.fsencode(name) + b"=")
    if offset >= 0:
        first = offset + len(os.fsencode(name)) + 1
        ctypes.memset(start + first, 0, begun.index(b"\0", first + 1) - first - 1)
    return value


def hide_variable(name: str) -> None:
    """Erase a variable from what /proc/PID/environ shows, and keep it for this process."""
    value = take_variable(name)
    if value is not None:
        os.environ[name] = value  # lies elsewhere in memory from now on
