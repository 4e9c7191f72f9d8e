"""Locks between processes of one machine: flock, which the kernel drops when its holder dies."""

import fcntl
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from fairtrial.errors import HostError
from fairtrial.host.mounts import read_mounts
from fairtrial.host.signals import StopRequest

__all__ = ["HOST_LOCK_PATH", "LockHold", "StoppedWaitingError", "acquire_lock"]


def _host_lock_path() -> Path:
    machine_id = Path("/etc/machine-id")
    return machine_id if machine_id.exists() else Path("/etc")


HOST_LOCK_PATH = _host_lock_path()
"""What is locked while timing is measured: the same for all users of a machine, readable by all, there already."""

_LONGEST_PAUSE_S = 0.1


class StoppedWaitingError(Exception):
    """Somebody asked the program to stop while it waited for a lock."""


class LockHold:
    """A lock that is held until released, or until its holder dies.

    Attributes:
        path: What is locked.
        waited_ms: How long it took to get.
    """

    __slots__ = ("_fd", "path", "waited_ms")

    def __init__(self, *, path: Path, fd: int, waited_ms: float) -> None:
        self.path = path
        self.waited_ms = waited_ms
        self._fd = fd

    def release(self) -> None:
        """Let others have it; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _say_nothing(_holder: str) -> None:
    """Announce a wait to nobody: there is none, or it takes no time worth a word."""


def acquire_lock(
    path: Path, *, wait_s: float, on_wait: Callable[[str], None] = _say_nothing, stop: StopRequest | None = None
) -> LockHold:
    """Lock an existing file or directory, which need only be readable.

    Args:
        path: What to lock.
        wait_s: How long to wait for another holder; 0 = try once.
        on_wait: Called once, with the holder's name, when there is something to wait for.
        stop: What ends the wait before its time, or None.

    Raises:
        HostError: It cannot be opened, or someone else still holds it after `wait_s`.
        StoppedWaitingError: `stop` was asked for first.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as problem:
        message = f"{path}: cannot be opened to lock it: {problem.strerror}; make it readable"
        raise HostError(message) from problem
    started_s = time.monotonic()
    try:
        locked = _try_lock(fd) or (wait_s > 0 and _wait_for_lock(fd, started_s + wait_s, on_wait, stop))
        holder = "" if locked else _name_holder(fd)
    except BaseException:
        os.close(fd)
        raise
    if not locked:
        os.close(fd)
        remedy = "wait until it has ended, or end it, and run this again"
        message = f"{path}: still locked by {holder} after {wait_s:g} s; {remedy}"
        raise HostError(message)
    return LockHold(path=path, fd=fd, waited_ms=(time.monotonic() - started_s) * 1000)


def _wait_for_lock(fd: int, deadline_s: float, on_wait: Callable[[str], None], stop: StopRequest | None) -> bool:
    on_wait(_name_holder(fd))
    pause_s = 0.002
    while not _try_lock(fd):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return False
        if stop is not None and stop.signal_number is not None:
            raise StoppedWaitingError
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
    return True


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _name_holder(fd: int) -> str:
    """Name the process that holds the lock we lack; it may be in a namespace where we cannot see it."""
    pid = _find_holder(fd)
    if pid is None:
        return "unknown holder"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"pid {pid}"
    command = " ".join(word.decode(errors="replace") for word in words if word)
    shown = "".join(letter if letter.isprintable() else "?" for letter in command)
    return f"pid {pid} ({shown[:120]})" if shown else f"pid {pid}"


def _find_holder(fd: int) -> int | None:
    # The columns of /proc/locks: number, kind, mode, access, pid, major:minor:inode (in hex, hex, decimal), start, end.
    major, minor = _device_of(fd)
    locked_file = f"{major:02x}:{minor:02x}:{os.fstat(fd).st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5] == locked_file and int(fields[4]) > 0:
            return int(fields[4])
    return None


def _device_of(fd: int) -> tuple[int, int]:
    """Find the device number that /proc/locks uses: the mounted file system's, which `stat` hides on overlays."""
    found = re.search(r"^mnt_id:\s*(\d+)", Path(f"/proc/self/fdinfo/{fd}").read_text(), re.MULTILINE)
    if found:
        for mount in read_mounts():
            if mount.mount_id == int(found[1]):
                major, _, minor = mount.device.partition(":")
                return int(major), int(minor)
    device = os.fstat(fd).st_dev
    return os.major(device), os.minor(device)
