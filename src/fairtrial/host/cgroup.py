"""Control groups, version 1 and 2, which limit a sandbox's memory or processes: made below the group we are in."""

import contextlib
import os
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.clock import utc_now
from fairtrial.host.group import KILL_WAIT_S, pause_ms
from fairtrial.model.sandbox import Limits

__all__ = ["ControlGroup", "ControlGroups", "Controller", "find_control_groups"]

_PREFIX: Final = "ft-"
_YOUNG_S: Final = 60.0
_PROBE: Final = Limits(memory_bytes=1 << 26, processes=64)
_N_OUTSIDE: Final = 1
"""Bubblewrap's outer process is in the group, but not inside the sandbox."""
_UNKNOWN: Final = "this kernel has none"


class Controller(StrEnum):
    """What a group can limit."""

    MEMORY = "memory"
    PIDS = "pids"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """Names of the files of one version; `pids.max` is the same in both."""

    join: str
    memory: str
    swap: tuple[str, str] | None
    peak: str
    events: str


# A lone thread that moves itself through `tasks` waits for nobody: 0.3 ms measured, against 7 through `cgroup.procs`.
_V1: Final = _Files(
    join="tasks",
    memory="memory.limit_in_bytes",
    swap=None,
    peak="memory.max_usage_in_bytes",
    events="memory.oom_control",
)
_V2: Final = _Files(
    join="cgroup.procs", memory="memory.max", swap=("memory.swap.max", "0"), peak="memory.peak", events="memory.events"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroups:
    """A place where groups can be made.

    Attributes:
        parent: The directory of our own group.
        version: 1 or 2.
        controllers: What its groups limit.
    """

    parent: Path
    version: int
    controllers: frozenset[Controller]

    def make(self, limits: Limits) -> "ControlGroup":
        """Make a group with those limits that its controllers are for.

        Raises:
            HostError: The kernel refused.
        """
        files = _V1 if self.version == 1 else _V2
        path = self.parent / f"{_PREFIX}{secrets.token_hex(6)}"
        try:
            path.mkdir()
            try:
                if Controller.MEMORY in self.controllers:
                    (path / files.memory).write_text(str(limits.memory_bytes))
                    if files.swap and (path / files.swap[0]).exists():  # kernels without swap accounting lack it
                        (path / files.swap[0]).write_text(files.swap[1])
                if Controller.PIDS in self.controllers:
                    (path / "pids.max").write_text(str(limits.processes + _N_OUTSIDE))
            except OSError:
                path.rmdir()
                raise
        except OSError as problem:
            raise HostError(f"control group {path}: {problem.strerror}; make {self.parent} writable") from problem
        return ControlGroup(path, files)


class ControlGroup:
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
        raise HostError(f"control group {self.path}: still in use {KILL_WAIT_S:g} s after its end; remove it by hand")


def find_control_groups(
    wanted: Collection[Controller], root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> Mapping[Controller, ControlGroups | str]:
    """Find where groups can be made, by making one; for each controller the place, or why there is none.

    Groups that killed workers left behind there are removed.
    """
    found: dict[Controller, ControlGroups | str] = dict.fromkeys(wanted, _UNKNOWN)
    for line in own.read_text().splitlines():
        _, names, path = line.split(":", 2)
        missing = frozenset(each for each in wanted if found[each] == _UNKNOWN)
        if names:
            controllers = missing & frozenset(names.split(","))
            version, parent = 1, root / min(controllers, default="") / path.lstrip("/")
        else:
            version, parent = 2, root / path.lstrip("/")
            controllers = missing & _handed_out(parent)
            # A group of version 2 holds processes or hands controllers out; only the root does both.
            found.update(dict.fromkeys(missing - controllers, "our own group of version 2 hands none out"))
        if not controllers:
            continue
        places = ControlGroups(parent=parent, version=version, controllers=controllers)
        if _works(places):
            _remove_abandoned(parent)
            found.update(dict.fromkeys(controllers, places))
        else:
            found.update(dict.fromkeys(controllers, f"in our own group of version {version} none can be made"))
    return found


def _handed_out(group: Path) -> frozenset[str]:
    """Return the controllers that groups below a group of version 2 have; none where version 2 is not mounted there."""
    try:
        return frozenset((group / "cgroup.subtree_control").read_text().split())
    except OSError:
        return frozenset()


def _works(groups: ControlGroups) -> bool:
    # Where a version is not mounted at that place, the directory is an ordinary one that would take any file.
    if not os.access(groups.parent, os.W_OK) or not (groups.parent / "cgroup.procs").exists():
        return False
    try:
        group = groups.make(_PROBE)
    except HostError:
        return False
    try:
        if Controller.MEMORY in groups.controllers:
            group.n_killed()
    except OSError:
        return False
    finally:
        group.remove()
    return True


def _remove_abandoned(parent: Path) -> None:
    """Remove empty groups of ours; a young one may be another worker's, about to be joined."""
    now_s = utc_now().timestamp()
    for path in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, or removed meanwhile
            if now_s - path.stat().st_mtime > _YOUNG_S:
                path.rmdir()
