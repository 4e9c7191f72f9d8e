"""Process groups: signal one, tell whether anything of it lives, wait until it is gone.

A group is named by its leader's process id. The kernel keeps that number taken while any member exists, and hands
numbers out in a cycle, so that a group signal right after the leader was reaped reaches the group or nobody.
"""

import os
import select
import signal
import time
from collections.abc import Callable

from fairtrial.host.proc import list_pids, proc_is_ours, read_stat

__all__ = ["KILL_WAIT_S", "group_is_alive", "kill_group_and_reap", "pause_ms", "signal_group", "wait_group_gone"]

KILL_WAIT_S = 10.0
"""How long a killed process may take to vanish; one that sleeps uninterruptibly (a dead disk) never does."""


def signal_group(pgid: int, signum: int) -> bool:
    """Send a signal (0 = only look) to every member; return whether there was one, dead but unreaped ones included."""
    try:
        os.killpg(pgid, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # a member exists and runs under another uid
    return True


def group_is_alive(pgid: int) -> bool:
    """Tell whether a member can still run code, the leader having been reaped.

    A dead member whose parent is gone stays in the group until its new parent reaps it. We reap our own (a worker is
    PID 1 or a subreaper); some containers' first process never reaps, so for the rest the kernel's state letter
    decides.
    """
    _reap_members(pgid)
    if not signal_group(pgid, 0):
        return False
    if os.getpid() == 1 or not proc_is_ours():
        return True  # as PID 1 we have reaped every dead one; otherwise nothing more can be known
    stats = (read_stat(pid) for pid in list_pids())
    return any(stat is not None and stat.pgid == pgid and stat.is_alive for stat in stats)


def _reap_members(pgid: int) -> None:
    try:
        while os.waitpid(-pgid, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def pause_ms(duration_ms: float) -> None:
    """Wait without doing anything."""
    select.poll().poll(duration_ms)


def wait_group_gone(pgid: int, *, timeout_s: float, pause: Callable[[float], object] = pause_ms) -> bool:
    """Wait until no member lives; `pause` (milliseconds) is what to do meanwhile, such as draining pipes."""
    deadline_s = time.monotonic() + timeout_s
    delay_ms = 1.0
    while group_is_alive(pgid):
        left_ms = (deadline_s - time.monotonic()) * 1000
        if left_ms <= 0:
            return False
        pause(min(delay_ms, left_ms))
        delay_ms = min(delay_ms * 2, 20.0)
    return True


def kill_group_and_reap(pid: int) -> int | None:
    """KILL a child and its group, reap it, wait for the rest.

    Returns:
        The child's wait status; None when it was reaped elsewhere or is stuck in the kernel.
    """
    signal_group(pid, signal.SIGKILL)
    deadline_s = time.monotonic() + KILL_WAIT_S
    status: int | None = None
    try:
        while time.monotonic() < deadline_s:
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                break
            pause_ms(1)
        else:
            return None
    except ChildProcessError:
        status = None
    wait_group_gone(pid, timeout_s=KILL_WAIT_S)
    return status
