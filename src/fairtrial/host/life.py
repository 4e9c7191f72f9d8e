"""The own end of a process that must not outlive its sweep: a worker with everything below it, or a server."""

import atexit
import ctypes
import os
import select
import signal
import threading
import time

from fairtrial.errors import HostError
from fairtrial.host.group import KILL_WAIT_S, pause_ms
from fairtrial.host.proc import kill_if, list_pids, read_stat

__all__ = ["die_with_parent", "guard_life", "guard_server", "kill_strays"]

# <linux/prctl.h>
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def guard_life(stdin_fd: int) -> None:
    """Tie this process to whoever holds the write end of its standard input.

    When the last writer is gone this process and all below it end at once, also in the middle of a trial and also
    with input unread: close a worker's input only when nothing of it is in flight. Call it once, first thing, on the
    main thread.

    A thread waits for that; it never reads, so it never stands in the way of the main thread. In a PID namespace of
    our own the kernel takes everything down with us. Elsewhere we ask for a signal when our parent dies (it follows
    the parent's *thread* that started us: the main one) and for the custody of orphans below us, so that a walk down
    the tree finds them.

    Raises:
        HostError: The kernel refused.
    """
    if os.getpid() != 1:
        parent = os.getppid()
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        die_with_parent(parent)
        # The main thread may see the end of input first and leave in good order; nothing below may outlive that either.
        atexit.register(kill_strays)
    threading.Thread(target=_die_with_input, args=(stdin_fd,), name="life", daemon=True).start()


def die_with_parent(parent: int, *, signal_number: int = signal.SIGKILL) -> None:
    """Let this process be sent a signal when the thread that started it ends.

    Args:
        parent: Id of the parent, taken before it could have died.
        signal_number: The signal.

    Raises:
        HostError: The kernel refused.
    """
    _prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        os._exit(0)  # it died before the signal was asked for


def guard_server(stdin_fd: int, *, grace_s: float) -> None:
    """Tie a server without children to whoever holds the write end of its standard input.

    It ends in order by itself when its input ends; this is for the case that it does not. TERM comes when the parent
    dies, in case somebody else holds the pipe open; and `grace_s` after the end of input the process ends, whatever its
    event loop is busy with. Call it once, first thing, on the main thread, with TERM handled.

    Raises:
        HostError: The kernel refused.
    """
    die_with_parent(os.getppid(), signal_number=signal.SIGTERM)
    threading.Thread(target=_die_after_input, args=(stdin_fd, grace_s), name="life", daemon=True).start()


def _die_after_input(stdin_fd: int, grace_s: float) -> None:
    watcher = select.poll()
    watcher.register(stdin_fd, 0)  # no event but the hang-up, which is always reported
    watcher.poll()
    threading.Event().wait(grace_s)
    os._exit(1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        message = f"prctl {option}: {os.strerror(ctypes.get_errno())}; run on a Linux kernel that allows it"
        raise HostError(message)


def _die_with_input(stdin_fd: int) -> None:
    watcher = select.poll()
    watcher.register(stdin_fd, 0)  # no event but the hang-up, which is always reported
    watcher.poll()
    try:
        if os.getpid() != 1:
            deadline_s = time.monotonic() + KILL_WAIT_S
            while _kill_descendants() and time.monotonic() < deadline_s:
                pause_ms(1)
    finally:
        os._exit(0)


def kill_strays() -> int:
    """KILL and reap every process below this one, wherever it hid; return how many were alive.

    Needs `guard_life` to have made this process the heir of orphans. Also takes children that someone still holds as
    `Running`: end those first.

    Raises:
        HostError: Some survive KILL.
    """
    _reap_ended()
    return _empty_namespace() if os.getpid() == 1 else _empty_subtree()


def _empty_namespace() -> int:
    """As PID 1: all others die, and each of them, its parent being dead, is ours to reap."""
    deadline_s = time.monotonic() + KILL_WAIT_S
    n_reaped = 0
    while _kill_all_others():
        n_reaped += _reap_ended()
        _pause_until(deadline_s)
    return n_reaped


def _empty_subtree() -> int:
    """Elsewhere: walk down again and again, since a tree can grow while it is walked."""
    deadline_s = time.monotonic() + KILL_WAIT_S
    killed: set[int] = set()
    while found := _kill_descendants():
        killed |= found
        _reap_ended()
        _pause_until(deadline_s)
    _reap_ended()
    return len(killed)


def _pause_until(deadline_s: float) -> None:
    if time.monotonic() > deadline_s:
        message = f"processes of this worker are alive {KILL_WAIT_S:g} s after KILL; look for a dead disk or mount"
        raise HostError(message)
    pause_ms(1)


def _kill_all_others() -> bool:
    """As PID 1, KILL all other processes of the namespace; return whether there were any, unreaped ones included."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _kill_descendants() -> set[int]:
    """KILL each living process below this one; return their ids."""
    stats = {pid: stat for pid in list_pids() if (stat := read_stat(pid)) is not None}
    family = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, stat in stats.items() if stat.ppid in family} - family
        family |= more
        grown = bool(more)
    living = {pid for pid in family if pid != os.getpid() and stats[pid].is_alive}
    for pid in living:
        kill_if(pid, lambda pinned: (stat := read_stat(pinned)) is not None and stat.ppid in family)
    return living


def _reap_ended() -> int:
    """Reap every child that has ended; return how many."""
    n_reaped = 0
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            n_reaped += 1
    except ChildProcessError:
        return n_reaped
    return n_reaped
