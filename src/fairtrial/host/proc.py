"""What /proc tells about processes, and a kill that cannot hit a recycled process id."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessStat", "kill_if", "list_pids", "proc_is_ours", "read_stat", "signal_if"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """One line of /proc/<pid>/stat, cut to what is used.

    Attributes:
        state: The kernel's state letter; Z and X are dead.
        ppid: Parent process id.
        pgid: Process group id.
    """

    state: str
    ppid: int
    pgid: int

    @property
    def is_alive(self) -> bool:
        """It can still run code."""
        return self.state not in {"Z", "X"}


def proc_is_ours() -> bool:
    """Tell whether /proc shows the process ids of our own PID namespace.

    A worker in a fresh PID namespace still sees its parent's /proc, where every number means another process.
    """
    try:
        return Path("/proc/self").readlink() == Path(str(os.getpid()))
    except OSError:
        return False


def list_pids() -> Iterator[int]:
    """Yield the ids of all visible processes."""
    for entry in os.listdir("/proc"):  # noqa: PTH208 - one Path for each of a thousand entries is measurable
        if entry.isdecimal():
            yield int(entry)


def read_stat(pid: int) -> ProcessStat | None:
    """Read what the kernel says of one process; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command stands in parentheses and may itself hold spaces and parentheses.
    state, ppid, pgid = text.rpartition(")")[2].split()[:3]
    return ProcessStat(state=state, ppid=int(ppid), pgid=int(pgid))


def kill_if(pid: int, still: Callable[[int], bool]) -> bool:
    """KILL one process as `signal_if` does."""
    return signal_if(pid, signal.SIGKILL, still)


def signal_if(pid: int, signum: int, still: Callable[[int], bool]) -> bool:
    """Signal one process if `still(pid)` holds after its id was pinned; return whether it was sent.

    Between a look at /proc and a kill the id may come to mean another process. A pidfd keeps meaning the process it
    was opened on, so what is true after opening is true of what the signal reaches.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not still(pid):
            return False
        signal.pidfd_send_signal(pidfd, signum)
    except (ProcessLookupError, PermissionError):
        return False  # it ended, or took on another uid
    finally:
        os.close(pidfd)
    return True
