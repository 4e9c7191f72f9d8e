"""Namespaces for workers: what this host allows, and the command line that uses it."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from fairtrial.errors import HostError
from fairtrial.host.process import run

__all__ = ["Isolation", "ProbedIsolation", "isolated_argv", "probe_isolation"]

_SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_PROOF_CODE = 42


class Isolation(Enum):
    """What ends everything below a worker when the worker ends."""

    PID_NAMESPACE = "pid-namespace"
    """The kernel: the worker is PID 1 of its own user and PID namespace."""
    PARENT_DEATH_SIGNAL = "parent-death-signal"
    """A signal to the worker when its parent dies, and the janitor for what is left after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedIsolation:
    """What this host allows, and why.

    Attributes:
        isolation: The best that works here.
        reason: One line: how it was proven, or what refused the better one and the remedy.
    """

    isolation: Isolation
    reason: str


def isolated_argv(argv: Sequence[str], isolation: Isolation) -> tuple[str, ...]:
    """Wrap a command so that it becomes PID 1 of its own namespaces, where `isolation` says so.

    The caller's uid stays what it is. /proc stays the outer one: mounting a fresh one is refused inside most
    containers.

    Raises:
        HostError: util-linux's `unshare` is missing.
    """
    if isolation is Isolation.PARENT_DEATH_SIGNAL:
        return tuple(argv)
    unshare = shutil.which("unshare", path=_SEARCH_PATH)
    if unshare is None:
        message = f"unshare: not found in {_SEARCH_PATH}; install util-linux"
        raise HostError(message)
    return (unshare, "--user", "--map-current-user", "--pid", "--fork", "--kill-child=KILL", "--", *argv)


def probe_isolation() -> ProbedIsolation:
    """Find out by doing it: a command must find itself PID 1 under our uid, and its exit code must come back."""
    proof = f'test "$$" = 1 && test "$(id -u)" = {os.getuid()} && exit {_PROOF_CODE}'
    try:
        argv = isolated_argv(("/bin/sh", "-c", proof), Isolation.PID_NAMESPACE)
    except HostError as problem:
        return ProbedIsolation(isolation=Isolation.PARENT_DEATH_SIGNAL, reason=str(problem))
    result = run(argv, env={"PATH": _SEARCH_PATH, "LC_ALL": "C"}, timeout_s=10)
    if result.returncode == _PROOF_CODE:
        return ProbedIsolation(
            isolation=Isolation.PID_NAMESPACE, reason="a command became PID 1 of its own user and PID namespace"
        )
    said = result.stderr.tail.decode(errors="replace").strip().splitlines()
    cause = said[-1] if said else result.detail or f"unshare ended with {result.returncode}"
    remedy = "allow unprivileged user namespaces (sysctl user.max_user_namespaces, the container's seccomp profile)"
    return ProbedIsolation(isolation=Isolation.PARENT_DEATH_SIGNAL, reason=f"{cause}; {remedy}")
