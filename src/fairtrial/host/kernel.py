"""System calls that Python's own library lacks, each with an error that names what was tried."""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

__all__ = [
    "NEW_MOUNTS",
    "NEW_PIDS",
    "NEW_USERS",
    "bind_mount",
    "detach_mount",
    "die_with_parent",
    "drop_ambient_capabilities",
    "join_new_session_keyring",
    "keep_capabilities_over_exec",
    "make_mounts_private",
    "mount",
    "unshare",
]

# <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>, <linux/capability.h>
NEW_MOUNTS: Final = 0x0002_0000
NEW_USERS: Final = 0x1000_0000
NEW_PIDS: Final = 0x2000_0000
_NOSUID, _NODEV, _BIND, _REC, _PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 1 << 18
_DETACH, _NOFOLLOW = 0x2, 0x8
_PR_SET_PDEATHSIG, _PR_CAP_AMBIENT = 1, 47
_AMBIENT_RAISE, _AMBIENT_CLEAR_ALL = 2, 4
_CAPABILITY_VERSION_3: Final = 0x2008_0522
_SIGKILL: Final = 9

_KEYCTL: Final = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_KEYCTL_JOIN_SESSION_KEYRING = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(namespaces: int) -> None:
    """Leave the namespaces named; new pid namespaces begin with the next child."""
    _check(_libc.unshare(namespaces), "unshare")


def mount(kind: str, point: Path | str, options: str) -> None:
    """Mount a new file system, never honouring set-uid bits or devices; the options may name paths below our cwd."""
    result = _libc.mount(
        kind.encode(), os.fsencode(point), kind.encode(), ctypes.c_ulong(_NOSUID | _NODEV), os.fsencode(options)
    )
    _check(result, f"mount {kind} on {point}")


def bind_mount(source: Path, point: Path) -> None:
    """Show a file or a directory, with what is mounted in it, at a second place."""
    result = _libc.mount(os.fsencode(source), os.fsencode(point), None, ctypes.c_ulong(_BIND | _REC), None)
    _check(result, f"bind {source} at {point}")


def detach_mount(point: Path | str) -> None:
    """Take a mount away; whoever is still in it keeps it until they leave."""
    _check(_libc.umount2(os.fsencode(point), _DETACH | _NOFOLLOW), f"unmount {point}")


def make_mounts_private() -> None:
    """Let no mount of this namespace show in another."""
    _check(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_REC | _PRIVATE), None), "make mounts private")


def die_with_parent() -> None:
    """Ask for KILL when the thread that started us ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(_SIGKILL), 0, 0, 0), "prctl")


def keep_capabilities_over_exec() -> None:
    """Hand what we may do in our user namespace on to the next program, which under a uid other than 0 loses it."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    every = (1 << (last + 1)) - 1
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    low, high = every & 0xFFFF_FFFF, every >> 32
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)(low, low, low, high, high, high)), "capset")
    for capability in range(last + 1):
        _check(_libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, ctypes.c_ulong(capability), 0, 0), "prctl")


def drop_ambient_capabilities() -> None:
    """Keep what we may do to ourselves: programs that we start under a uid other than 0 get nothing of it."""
    _check(_libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0), "prctl")


def join_new_session_keyring() -> None:
    """Leave the session keyring, which no namespace separates: what stands in it could be read by all that we start.

    Raises:
        OSError: The kernel refused, other than by having no keyrings for anybody.
    """
    number = _KEYCTL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"the number of keyctl on {os.uname().machine} is not known; add it to _KEYCTL")
    if _libc.syscall(ctypes.c_long(number), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None) < 0:
        problem = ctypes.get_errno()
        if problem not in {errno.ENOSYS, errno.EPERM}:  # a filter denies them to us, and so to whatever we start
            raise OSError(problem, f"join a new session keyring: {os.strerror(problem)}")
