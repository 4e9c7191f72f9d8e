"""Finding and ending what a dead sweep left running, on hosts where no namespace did it.

Everything that a sweep starts carries `FAIRTRIAL_SWEEP=<id>` in the environment it was started with. A process that
was started without it, or that overwrote its own environment, is not found; other users' processes cannot be looked
at.
"""

import os
import time
from pathlib import Path

from fairtrial.errors import HostError
from fairtrial.host.group import KILL_WAIT_S, pause_ms
from fairtrial.host.proc import kill_if, list_pids

__all__ = ["SWEEP_VARIABLE", "find_strays", "kill_strays_of"]

SWEEP_VARIABLE = "FAIRTRIAL_SWEEP"


def find_strays(sweep_id: str) -> tuple[int, ...]:
    """Find the living processes of a sweep, this one excepted."""
    return tuple(pid for pid in list_pids() if pid != os.getpid() and _belongs_to(pid, sweep_id))


def kill_strays_of(sweep_id: str) -> int:
    """KILL all processes of a sweep, this one excepted, and wait until none is left; return how many there were.

    Raises:
        HostError: Some survive KILL.
    """
    killed: set[int] = set()
    deadline_s = time.monotonic() + KILL_WAIT_S
    while found := find_strays(sweep_id):
        killed |= {pid for pid in found if kill_if(pid, lambda pinned: _belongs_to(pinned, sweep_id))}
        if time.monotonic() > deadline_s:
            message = f"processes {found} of sweep {sweep_id} are alive {KILL_WAIT_S:g} s after KILL; end them by hand"
            raise HostError(message)
        pause_ms(1)
    return len(killed)


def _belongs_to(pid: int, sweep_id: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # gone, or another user's
    return os.fsencode(f"{SWEEP_VARIABLE}={sweep_id}") in environment.split(b"\0")
