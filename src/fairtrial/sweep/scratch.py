"""Where a sweep works: one private directory per sweep, kept to its end and then removed whole."""

import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, UsageError
from fairtrial.host.files import remove_tree
from fairtrial.host.janitor import kill_strays_of
from fairtrial.host.lock import acquire_lock
from fairtrial.host.machine import filesystem_of

__all__ = ["SCRATCH_MODE", "end_earlier", "open_scratch", "scratch_base", "scratch_of"]

PREFIX: Final = "ft-"
OWNER: Final = "sweep"
"""The file in a scratch directory that holds its sweep's id."""
SCRATCH_MODE: Final = 0o711
"""When we are root, sandboxes run under other uids, which must be able to pass; nothing can be listed."""
LONGEST_PATH: Final = 60
"""Bytes: a socket's path ends at 107, and names of trials and sockets must fit behind this one."""


def scratch_base(asked: Path | None) -> Path:
    """The directory that scratch directories are made in: what was asked, else `$TMPDIR`, else /var/tmp.

    Raises:
        HostError: It is not there, not writable, a network file system, or its path is too long.
    """
    base = (asked or Path(os.environ.get("TMPDIR") or "/var/tmp")).absolute()  # noqa: S108 - made 0700 below
    if not base.is_dir() or not os.access(base, os.W_OK | os.X_OK):
        raise HostError(f"scratch directory {base} is not a writable directory; name one with --scratch DIR")
    filesystem = filesystem_of(base)
    if filesystem.is_network:
        raise HostError(f"scratch directory {base} is on {filesystem.type}; name a local one with --scratch DIR")
    if len(os.fsencode(base)) > LONGEST_PATH:
        raise HostError(
            f"scratch directory {base} has a path over {LONGEST_PATH} bytes; name a shorter one with --scratch DIR"
        )
    return base


def scratch_of(base: Path, sweep: str, results: Path) -> Path:
    """The scratch directory of a sweep: short, and the same name for every process that works on it."""
    name = hashlib.sha256(f"{sweep}\0{results.resolve()}".encode()).hexdigest()[:10]
    return base / f"{PREFIX}{name}"


def end_earlier(sweep: str, recorded: Path, *, now: Path) -> None:
    """End what an earlier pass left running, and remove what it left in another place.

    Args:
        sweep: The sweep's id.
        recorded: The scratch directory that `sweep.json` names; anybody may have written it, so that it is removed only
            where it says itself that it is this sweep's.
        now: The scratch directory of this pass.

    Raises:
        UsageError: The sweep is alive, and works for another directory: this one is a copy of it.
        HostError: Something survives, or cannot be removed.
    """
    if recorded.is_symlink() or not recorded.is_dir() or _owner_of(recorded) != sweep:
        kill_strays_of(sweep)
        return
    try:
        held = acquire_lock(recorded, wait_s=0.0)
    except HostError as problem:
        message = f"this is a copy of a directory whose sweep is alive: {problem}"
        raise UsageError(message) from problem
    with held:
        kill_strays_of(sweep)
        if recorded == now:
            return  # it is made anew
        try:
            remove_tree(recorded)
        except OSError as problem:
            raise HostError(
                f"scratch directory {recorded} of an earlier pass cannot be removed: {problem}"
            ) from problem


@contextmanager
def open_scratch(path: Path, sweep: str, *, keep: bool, mode: int = 0o700) -> Generator[Path]:
    """Make the scratch directory anew (an earlier pass may have died in it); remove it at the end unless it is kept.

    It says whose it is, and is locked while its sweep lives.
    """
    try:
        if path.is_symlink() or path.exists():
            remove_tree(path)
        path.mkdir(mode=mode)
        path.chmod(mode)  # the umask took its part of the first one
        (path / OWNER).write_text(sweep)
    except OSError as problem:
        raise HostError(
            f"scratch directory {path} cannot be made: {problem}; remove it or name another with --scratch"
        ) from problem
    with acquire_lock(path, wait_s=0.0):
        try:
            yield path
        finally:
            if not keep:
                remove_tree(path)


def _owner_of(path: Path) -> str | None:
    """The sweep that a scratch directory says it is for; None where it does not."""
    try:
        return (path / OWNER).read_text()
    except (OSError, UnicodeDecodeError):
        return None
