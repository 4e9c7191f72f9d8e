"""A slot: the user id and the namespace that one worker's sandboxes live in.

No process of a trial has the host's uid 0. When we are root, each slot has an unprivileged uid of its own: the worker
stays root inside its user namespace, which maps that uid as well, and everything that touches an agent's data runs
under it. Otherwise the slot's uid is our own.

The worker owns its mount namespace too: what it mounts for its trials is gone with it, however it ends.
"""

import os
import secrets
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, UsageError
from fairtrial.host.kernel import bind_mount, detach_mount, drop_ambient_capabilities, mount
from fairtrial.host.process import run

__all__ = [
    "SEARCH_PATH",
    "Slot",
    "SlotId",
    "choose_slot_id",
    "find_system_program",
    "open_slot",
    "parse_id_map",
    "probe_slot",
    "slot_argv",
]

SEARCH_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
N_SWEEPS: Final = 1_000_000
N_SLOTS: Final = 64
_PROOF_CODE: Final = 42


class SlotId(Enum):
    """What a slot's uid is for, and where such uids begin.

    The first range is one that no distribution hands out; the second is for containers with few ids, where sweeps
    share them.
    """

    TRIAL = (1_990_000_000, 61_000)
    JUDGE = (1_990_000_000 + N_SWEEPS * N_SLOTS, 61_000 + N_SLOTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Under which ids sandboxes run, and whether layers can be mounted for them.

    Attributes:
        root: Its directory in the scratch space, private to the slot's uid.
        uid: User id of every process of a trial, as the harness sees it; never 0.
        gid: Group id, likewise.
        mounts: Overlays can be mounted here; trees are copied otherwise.
        reason: Why not, else "".
        judge: Other ids and another directory, for an oracle that sits apart from what it judges; None where there is
            one uid for all.
    """

    root: Path
    uid: int
    gid: int
    mounts: bool
    reason: str
    judge: "Slot | None" = None

    @property
    def is_foreign(self) -> bool:
        """Its uid is not ours: programs must be started under it, and what they are to write must belong to it."""
        return self.uid != os.geteuid()

    def argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The command line that starts a program under the slot's ids, without groups and capabilities."""
        if not self.is_foreign:
            return tuple(argv)
        ids = (f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", "--inh-caps=-all")
        return (find_system_program("setpriv", "util-linux"), *ids, "--no-new-privs", "--", *argv)

    @contextmanager
    def reach(self, sources: Sequence[Path]) -> Generator[tuple[str, ...]]:
        """Make paths reachable for the slot's uid while the block runs; yield where each is found.

        A toolchain often lies below a home directory that only its owner may enter: root shows it at a second place.

        Raises:
            UsageError: A path is relative, or leads through a symbolic link.
            HostError: It is not there, or cannot be shown.
        """
        for source in sources:
            if not source.is_absolute() or os.path.realpath(source) != str(source):
                raise UsageError(f"{source}: not a real absolute path; name {os.path.realpath(source)}")
            if not source.exists():
                raise HostError(f"{source}: not there, and was to be mounted in a sandbox; make it")
        with ExitStack() as stack:
            yield tuple(
                self._show(source, stack)
                if self.is_foreign and self.mounts and not source.is_relative_to(self.root)
                else str(source)
                for source in sources
            )

    def _show(self, source: Path, stack: ExitStack) -> str:
        point = self.root / f"b{secrets.token_hex(6)}"
        try:
            if source.is_dir():
                point.mkdir(mode=0o700)
                stack.callback(point.rmdir)
            else:
                point.touch()
                stack.callback(point.unlink)
            bind_mount(source, point)
        except OSError as problem:
            raise HostError(f"{source}: cannot be mounted in a sandbox: {problem.strerror}") from problem
        stack.callback(detach_mount, point)
        return str(point)

    def give(self, path: Path) -> None:
        """Make one path (a link itself, not what it points to) the slot's."""
        if self.is_foreign:
            os.lchown(path, self.uid, self.gid)


@cache
def find_system_program(name: str, package: str) -> str:
    """Find a program of the system's own.

    Raises:
        HostError: It is not installed.
    """
    found = shutil.which(name, path=SEARCH_PATH)
    if found is None:
        raise HostError(f"{name}: not found in {SEARCH_PATH}; install {package}")
    return found


def parse_id_map(text: str) -> tuple[tuple[int, int], ...]:
    """Parse /proc/self/uid_map: first id and number of ids, as they are inside."""
    lines = (line.split() for line in text.splitlines())
    return tuple((int(inside), int(count)) for inside, _, count in lines)


def choose_slot_id(index: int, id_map: Sequence[tuple[int, int]], *, sweep_pid: int, use: SlotId = SlotId.TRIAL) -> int:
    """Choose an id of slot number `index` among those that our user namespace maps.

    Sweeps that run at the same time get different ids, so that not even a signal could pass between their trials.

    Raises:
        HostError: It maps none that could be used.
    """
    first, small_first = use.value
    index %= N_SLOTS  # workers that are started again count on
    wanted = (first + sweep_pid % N_SWEEPS * N_SLOTS + index, small_first + index)
    for slot_id in wanted:
        if any(start <= slot_id < start + count for start, count in id_map):
            return slot_id
    raise HostError(
        f"slot {index}: no unprivileged uid is mapped here (tried {wanted[0]} and {wanted[1]});"
        " map more ids into this container, or run as a normal user"
    )


def slot_argv(argv: Sequence[str], index: int) -> tuple[str, ...]:
    """Wrap a worker's command so that it becomes PID 1 of its own user, PID and mount namespaces, in slot `index`.

    Raises:
        HostError: We are root and no uid can be given to the slot.
    """
    ids = _choose_ids(index) if os.geteuid() == 0 else (os.geteuid(),)
    return (sys.executable, "-m", "fairtrial.host.enter", ",".join(map(str, ids)), "--", *argv)


def _choose_ids(index: int) -> tuple[int, ...]:
    """The slot's own id, and that of its judge."""
    id_map, pid = _own_id_map(), os.getpid()
    return tuple(choose_slot_id(index, id_map, sweep_pid=pid, use=use) for use in SlotId)


def probe_slot(env: dict[str, str]) -> str | None:
    """Find out by doing it whether workers can have slots of their own; return what refused, or None."""
    proof = f'test "$$" = 1 && test "$(/usr/bin/id -u)" = {os.geteuid()} && exit {_PROOF_CODE}'
    try:
        argv = slot_argv(("/bin/sh", "-c", proof), 0)
    except HostError as problem:
        return str(problem)
    result = run(argv, env=env, timeout_s=20)
    if result.returncode == _PROOF_CODE:
        return None
    said = result.stderr.tail.decode(errors="replace").strip().splitlines()
    cause = said[-1] if said else result.detail or f"ended with {result.returncode}"
    remedy = "allow unprivileged user namespaces (sysctl user.max_user_namespaces, the container's seccomp profile)"
    return f"{cause}; {remedy}"


def open_slot(scratch: Path) -> Slot:
    """Take possession of the slot that this process was started in; a process outside of any has one without mounts.

    From here on this process and what it starts make files that others can read: the caller's umask would otherwise
    decide what a checkout looks like, and could shut the slot's uid out.

    Args:
        scratch: Where the slot's directory is made; whoever removes that ends the slot.

    Raises:
        HostError: We are root and no uid can be given to the slot, or that uid cannot enter `scratch`.
    """
    drop_ambient_capabilities()
    os.umask(0o022)
    if os.geteuid() == 0:
        ids = tuple(start for start, count in _own_id_map() if start and count == 1) or _choose_ids(0)
        _require_entrance(scratch)
        uid, gid, others = ids[0], ids[0], ids[1:]
    else:
        uid, gid, others = os.geteuid(), os.getegid(), ()
    root = _make_root(scratch)
    reason = _why_no_mounts(root)
    judge = None
    if others:
        judge = Slot(root=_make_root(scratch), uid=others[0], gid=others[0], mounts=reason == "", reason=reason)
        judge.give(judge.root)
    slot = Slot(root=root, uid=uid, gid=gid, mounts=reason == "", reason=reason, judge=judge)
    slot.give(root)
    return slot


def _make_root(scratch: Path) -> Path:
    root = scratch / f"s{secrets.token_hex(4)}"
    root.mkdir(mode=0o700)
    return root


def _require_entrance(scratch: Path) -> None:
    for directory in (scratch, *scratch.parents):
        if not directory.stat().st_mode & 0o001:
            raise HostError(
                f"{directory} is closed to other users, and sandboxes run under one; chmod o+x it, or name another"
                " place with --scratch DIR"
            )


def _own_id_map() -> tuple[tuple[int, int], ...]:
    return parse_id_map(Path("/proc/self/uid_map").read_text())


def _why_no_mounts(directory: Path) -> str:
    """Try it: an overlay whose upper layer is in memory."""
    if os.getpid() != 1:
        return "this process does not own its mount namespace"
    with ExitStack() as stack:
        try:
            for name in ("lower", "space"):
                (directory / name).mkdir()
                stack.callback((directory / name).rmdir)
            mount("tmpfs", directory / "space", "size=1m")
            stack.callback(detach_mount, directory / "space")
            for name in ("upper", "work", "merged"):
                (directory / "space" / name).mkdir()
            lower, space = directory / "lower", directory / "space"
            mount(
                "overlay", space / "merged", f"lowerdir={lower},upperdir={space}/upper,workdir={space}/work,userxattr"
            )
            stack.callback(detach_mount, space / "merged")
            os.setxattr(space / "upper", "user.overlay.probe", b"y")  # tmpfs has these since kernel 6.6
        except OSError as problem:
            return problem.strerror or str(problem)
    return ""
