"""Memory control groups, version 1 and 2: made for one sandbox, below the group that we are in."""

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.clock import utc_now
from fairtrial.host.group import KILL_WAIT_S, pause_ms

__all__ = ["MemoryGroup", "MemoryGroups", "find_memory_groups"]

_PREFIX: Final = "ft-"
_YOUNG_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """Names of the files of one version."""

    join: str
    limit: str
    swap: tuple[str, str] | None
    peak: str
    events: str


# A lone thread that moves itself through `tasks` waits for nobody: 0.3 ms measured, against 7 through `cgroup.procs`.
_V1: Final = _Files(
    join="tasks",
    limit="memory.limit_in_bytes",
    swap=None,
    peak="memory.max_usage_in_bytes",
    events="memory.oom_control",
)
_V2: Final = _Files(
    join="cgroup.procs", limit="memory.max", swap=("memory.swap.max", "0"), peak="memory.peak", events="memory.events"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroups:
    """A place where groups can be made.

    Attributes:
        parent: The directory of our own group.
        version: 1 or 2.
    """

    parent: Path
    version: int

    def make(self, limit_bytes: int) -> "MemoryGroup":
        """Make a group with a limit.

        Raises:
            HostError: The kernel refused.
        """
        files = _V1 if self.version == 1 else _V2
        path = self.parent / f"{_PREFIX}{secrets.token_hex(6)}"
        try:
            path.mkdir()
            try:
                (path / files.limit).write_text(str(limit_bytes))
                if files.swap:
                    with contextlib.suppress(FileNotFoundError):  # kernels without swap accounting
                        (path / files.swap[0]).write_text(files.swap[1])
            except OSError:
                path.rmdir()
                raise
        except OSError as problem:
            raise HostError(f"memory cgroup {path}: {problem.strerror}; make {self.parent} writable") from problem
        return MemoryGroup(path, files)


class MemoryGroup:
    """One group and what it measured.

    Attributes:
        path: Its directory.
        join: The file that a process of one thread writes 0 to in order to join.
    """

    def __init__(self, path: Path, files: _Files) -> None:
        self.path = path
        self.join = path / files.join
        self._files = files

    def n_killed(self) -> int:
        """How many processes the kernel killed for want of memory."""
        words = (self.path / self._files.events).read_text().split()
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0

    def peak_bytes(self) -> int | None:
        """Most memory in use at once; None where the kernel does not say."""
        try:
            return int((self.path / self._files.peak).read_text())
        except FileNotFoundError:
            return None

    def remove(self) -> None:
        """Remove the group once its last process is gone.

        Raises:
            HostError: It stays in use.
        """
        for _ in range(int(KILL_WAIT_S * 100)):
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                pause_ms(10)  # dead processes leave it a little later than they are reaped
            else:
                return
        raise HostError(f"memory cgroup {self.path}: still in use {KILL_WAIT_S:g} s after its end; remove it by hand")


def find_memory_groups(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> MemoryGroups | None:
    """Find where memory groups can be made, by making one; None when nowhere.

    Groups that killed workers left behind there are removed.
    """
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            candidate = MemoryGroups(parent=root / "memory" / path.lstrip("/"), version=1)
        elif controllers == "":
            candidate = MemoryGroups(parent=root / path.lstrip("/"), version=2)
        else:
            continue
        if _works(candidate):
            _remove_abandoned(candidate.parent)
            return candidate
    return None


def _works(groups: MemoryGroups) -> bool:
    # Where version 2 is not mounted at that place, the directory is an ordinary one that would take any file.
    if not os.access(groups.parent, os.W_OK) or not (groups.parent / "cgroup.procs").exists():
        return False
    try:
        group = groups.make(1 << 26)
        group.n_killed()
    except (HostError, OSError):
        return False
    group.remove()
    return True


def _remove_abandoned(parent: Path) -> None:
    """Remove empty groups of ours; a young one may be another worker's, about to be joined."""
    now_s = utc_now().timestamp()
    for path in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, or removed meanwhile
            if now_s - path.stat().st_mtime > _YOUNG_S:
                path.rmdir()
