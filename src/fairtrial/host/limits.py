"""Limits of a sandbox: which mechanism of this host enforces each, and the watch over those that need one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from fairtrial.errors import HostError
from fairtrial.host.cgroup import ControlGroup, ControlGroups, Controller, find_control_groups
from fairtrial.host.inside import Inside, Sample
from fairtrial.host.slot import Slot
from fairtrial.model.sandbox import Containment, Limit, Limits

__all__ = ["UNCONTAINED", "Enforcement", "Space", "Watch", "probe_limits"]

_NAMESPACED_COUNT: Final = (5, 14)
"""Kernel from which processes are counted per user namespace."""
_NAMESPACE_RLIMIT: Final = "rlimit in the user namespace"
_UID_RLIMIT: Final = "rlimit of the slot's uid"
_NEAR: Final = 2
"""How near the process limit counts as reached: Bubblewrap's own process is counted with the command's."""
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.25
_FASTEST_GROWTH_BYTES_PER_S: Final = 8 << 30


class Space(Protocol):
    """What a sandbox writes to."""

    def full(self) -> Limit | None:
        """Return DISK or INODES when that is used up, else None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """How limits are enforced on this host.

    Attributes:
        mechanisms: For each limit that is enforced at all, by what.
        groups: Where control groups are made, for the limits whose mechanism they are.
        containment: What keeps trials in.
    """

    mechanisms: Mapping[Limit, str]
    groups: tuple[ControlGroups, ...]
    containment: Containment = Containment.BUBBLEWRAP

    @property
    def sets_process_rlimit(self) -> bool:
        """Each sandbox's first command carries the limit of processes; elsewhere it would count what is not inside."""
        return self.mechanisms.get(Limit.PROCESSES) in {_NAMESPACE_RLIMIT, _UID_RLIMIT}


UNCONTAINED: Final = Enforcement(
    mechanisms={Limit.FILES: "rlimit", Limit.OUTPUT: "harness", Limit.WALL: "harness"},
    groups=(),
    containment=Containment.NONE,
)
"""What still holds without sandboxes."""


def probe_limits(slot: Slot, *, allow_unenforced: frozenset[Limit] = frozenset()) -> Enforcement:
    """Find out which mechanism there is for each limit.

    Raises:
        HostError: There is none for a limit that is not allowed to go without.
    """
    rlimit = _process_rlimit(slot)
    groups = find_control_groups((Controller.MEMORY, *(() if rlimit else (Controller.PIDS,))))
    found: dict[Limit, str | None] = {
        Limit.PROCESSES: rlimit or _group(groups, Controller.PIDS),
        Limit.MEMORY: _group(groups, Controller.MEMORY) or _memory_watch(groups[Controller.MEMORY]),
        Limit.CPU: "watchdog",
        Limit.DISK: "sized tmpfs or watchdog" if slot.mounts else "watchdog",
        Limit.INODES: "sized tmpfs or watchdog" if slot.mounts else "watchdog",
        Limit.FILES: "rlimit",
        Limit.OUTPUT: "harness",
        Limit.WALL: "harness",
    }
    missing = sorted(limit for limit, mechanism in found.items() if mechanism is None and limit not in allow_unenforced)
    if missing:
        raise HostError(
            f"limits that this host cannot enforce: {', '.join(missing)}; use a kernel from 5.14, or control groups of"
            " memory and pids that we may make, or --allow-unenforced LIMIT (such results are never promoted)"
        )
    enforced = {limit: mechanism for limit, mechanism in found.items() if mechanism is not None}
    places = tuple(dict.fromkeys(each for each in groups.values() if isinstance(each, ControlGroups)))
    return Enforcement(mechanisms=enforced, groups=places)


def _process_rlimit(slot: Slot) -> str | None:
    major, minor = os.uname().release.split(".")[:2]
    if (int(major), int("".join(letter for letter in minor if letter.isdecimal()))) >= _NAMESPACED_COUNT:
        return _NAMESPACE_RLIMIT
    return _UID_RLIMIT if slot.is_foreign else None


def _group(groups: Mapping[Controller, ControlGroups | str], controller: Controller) -> str | None:
    found = groups[controller]
    return None if isinstance(found, str) else f"{controller} cgroup v{found.version}"


def _memory_watch(why_no_group: ControlGroups | str) -> str | None:
    if not Path("/proc/self/smaps_rollup").exists():
        return None
    return f"watchdog over proportional set size (no memory cgroup: {why_no_group})"


class Watch:
    """Looks at one running sandbox again and again.

    Attributes:
        cpu_s: CPU seconds seen so far; None before the first look.
        peak_bytes: Most memory seen at once: resident sizes summed, an upper bound; None before the first look.
        pause_s: How long to wait before the next look.
    """

    def __init__(self, limits: Limits, inside: Inside, *, group: ControlGroup | None, space: Space | None) -> None:
        self.cpu_s: float | None = None
        self.peak_bytes: int | None = None
        self.pause_s = _FIRST_PAUSE_S
        self._limits = limits
        self._inside = inside
        self._group = group
        self._space = space

    def look(self) -> Limit | None:
        """Look once; return the limit that is reached, if any."""
        self.pause_s = min(self.pause_s * 1.5, _LONGEST_PAUSE_S)
        return self.look_outside() or (self._look_inside() if self._inside.is_ready() else None)

    def look_outside(self) -> Limit | None:
        """Look at what outlives the processes."""
        if self._group is not None and self._group.n_killed():
            return Limit.MEMORY
        return None if self._space is None else self._space.full()

    def _look_inside(self) -> Limit | None:
        sample = self._inside.sample()
        self.cpu_s = max(self.cpu_s or 0.0, sample.cpu_s)
        self.peak_bytes = max(self.peak_bytes or 0, sample.resident_bytes)
        if self._limits.cpu_s is not None and sample.cpu_s >= self._limits.cpu_s:
            return Limit.CPU
        if sample.tasks >= self._limits.processes - _NEAR:
            return Limit.PROCESSES
        if sample.most_fd_slots >= self._limits.files and self._inside.most_open_fds() >= self._limits.files:
            return Limit.FILES
        return self._memory(sample) if self._group is None else None

    def _memory(self, sample: Sample) -> Limit | None:
        limit_bytes = self._limits.memory_bytes
        if sample.resident_bytes >= limit_bytes and self._inside.proportional_bytes() >= limit_bytes:
            return Limit.MEMORY
        room_s = max(limit_bytes - sample.resident_bytes, 0) / _FASTEST_GROWTH_BYTES_PER_S
        self.pause_s = min(self.pause_s, max(room_s, _FIRST_PAUSE_S))
        return None
