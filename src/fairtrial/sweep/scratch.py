"""Where a sweep works: one private directory per sweep, kept to its end and then removed whole."""

import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.files import remove_tree
from fairtrial.host.machine import filesystem_of

__all__ = ["SCRATCH_MODE", "open_scratch", "remove_earlier", "scratch_base", "scratch_of"]

PREFIX: Final = "ft-"
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


def remove_earlier(recorded: Path, *, now: Path) -> None:
    """Remove what an earlier pass left in another place; only a directory that we named can be meant.

    Raises:
        HostError: It cannot be removed.
    """
    if recorded == now or not recorded.name.startswith(PREFIX) or recorded.is_symlink() or not recorded.is_dir():
        return
    try:
        remove_tree(recorded)
    except OSError as problem:
        raise HostError(f"scratch directory {recorded} of an earlier pass cannot be removed: {problem}") from problem


@contextmanager
def open_scratch(path: Path, *, keep: bool, mode: int = 0o700) -> Generator[Path]:
    """Make the scratch directory anew (an earlier pass may have died in it); remove it at the end unless it is kept."""
    try:
        if path.is_symlink() or path.exists():
            remove_tree(path)
        path.mkdir(mode=mode)
        path.chmod(mode)  # the umask took its part of the first one
    except OSError as problem:
        raise HostError(
            f"scratch directory {path} cannot be made: {problem}; remove it or name another with --scratch"
        ) from problem
    try:
        yield path
    finally:
        if not keep:
            remove_tree(path)
