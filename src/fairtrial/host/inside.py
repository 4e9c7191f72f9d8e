"""What is alive in a sandbox and what it uses, seen from outside through the sandbox's own /proc.

The sandbox cannot mount anything, so its /proc is the kernel's and shows exactly its processes. Figures are samples:
what begins and ends between two of them is not seen.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.host.proc import read_stat

__all__ = ["Inside", "Sample", "children_of", "is_first_inside"]

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look.

    Attributes:
        tasks: Processes and threads.
        resident_bytes: Resident memory of all, with what they share counted once for each: never less than they use.
        cpu_s: CPU seconds of those alive and of all that they reaped.
        most_fd_slots: Largest descriptor table: never less than the most descriptors that one of them has open.
    """

    tasks: int
    resident_bytes: int
    cpu_s: float
    most_fd_slots: int


class Inside:
    """The /proc of one running sandbox."""

    def __init__(self, pid: int) -> None:
        """Name the sandbox by its first process."""
        self._path = Path(f"/proc/{pid}/root/proc")
        self._fd = -1

    def is_ready(self) -> bool:
        """Tell whether the sandbox has mounted its own /proc by now; before, the path still leads to the host's."""
        if self._fd >= 0:
            return True
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.stat("1/stat", dir_fd=fd)
            foreign = os.fstat(fd).st_dev != Path("/proc").stat().st_dev
        except OSError:
            foreign = False
        if not foreign:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def sample(self) -> Sample:
        """Look once; processes that end meanwhile are left out."""
        tasks = resident_pages = ticks = most_fd_slots = 0
        for pid in self._pids():
            stat = self._read(pid, "stat")
            status = self._read(pid, "status")
            if stat is None or status is None:
                continue
            fields = stat.rpartition(b")")[2].split()
            if fields[0] in {b"Z", b"X"}:
                continue
            # Numbers as in proc(5), less the three that stand before: 14 to 17 are CPU, 20 threads, 24 pages.
            ticks += sum(int(field) for field in fields[11:15])
            tasks += int(fields[17])
            resident_pages += int(fields[21])
            slots = status.partition(b"FDSize:")[2].split(maxsplit=1)
            most_fd_slots = max(most_fd_slots, int(slots[0]) if slots else 0)
        return Sample(
            tasks=tasks,
            resident_bytes=resident_pages * _PAGE_BYTES,
            cpu_s=ticks / _TICKS_PER_S,
            most_fd_slots=most_fd_slots,
        )

    def proportional_bytes(self) -> int:
        """Sum the memory of all processes, each shared page counted once; slow where they are many."""
        total = 0
        for pid in self._pids():
            rollup = self._read(pid, "smaps_rollup")
            words = (rollup or b"").partition(b"Pss:")[2].split(maxsplit=1)
            total += int(words[0]) * 1024 if words else 0
        return total

    def most_open_fds(self) -> int:
        """Count the open descriptors of the process that has most."""
        most = 0
        for pid in self._pids():
            try:
                fd = os.open(f"{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
            except OSError:
                continue
            try:
                most = max(most, len(os.listdir(fd)))  # noqa: PTH208 - likewise
            except OSError:
                continue
            finally:
                os.close(fd)
        return most

    def _pids(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._fd) if name.isdecimal()]  # noqa: PTH208 - a descriptor has no Path
        except OSError:
            return []  # its namespace is gone

    def _read(self, pid: str, name: str) -> bytes | None:
        try:
            fd = os.open(f"{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError:
            return None
        try:
            return os.read(fd, 8192)
        except OSError:
            return None
        finally:
            os.close(fd)

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_first_inside(pid: int) -> bool:
    """Tell whether a process is the first one of a PID namespace below ours."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
    return len(numbers) > 1 and numbers[-1] == "1"


def children_of(pid: int) -> tuple[int, ...]:
    """Return the living children of a process."""
    try:
        names = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return ()
    found = [int(name) for name in names]
    return tuple(child for child in found if (stat := read_stat(child)) is not None and stat.is_alive)
