"""The recovery file: written before a tree is touched, removed when nothing is left to do, and enough to clean up by.

Whatever kills the program, the tree is as it was, or as it was to be, or this file lies in its root and says what to
do: in words, as shell commands, and for `recover`.
"""

import errno
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from fairtrial.errors import HostError, IntegrityError, UsageError
from fairtrial.host.clock import stamp
from fairtrial.host.exchange import exchange, open_below, open_without_links
from fairtrial.host.lock import LockHold, acquire_lock
from fairtrial.promote.target import PREFIX, Target, look_at, sha256_of

__all__ = ["RECOVERY_PREFIX", "Backup", "Recovery", "RecoveryFile", "State", "find_recoveries", "hold_alone", "recover"]

RECOVERY_PREFIX: Final = ".fairtrial-recovery-"
SCHEMA: Final = "recovery/1"
_STAGED: Final = re.compile(re.escape(PREFIX) + "[0-9a-f]{16}")
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class State(StrEnum):
    """How far a transaction came."""

    NOT_FULLY_PUBLISHED = "not-fully-published"
    PUBLISHED = "published"
    ROLLED_BACK = "rolled-back"
    ROLLBACK_INCOMPLETE = "rollback-incomplete"


WORDS: Final = {
    State.NOT_FULLY_PUBLISHED: (
        "The program was stopped, or is still running. Some files may be new: when it has ended, run the commands, and"
        " every file is as it was, but for those that somebody edited since: what was left beside these stays, and so"
        " does this file."
    ),
    State.PUBLISHED: "Every file is new. Only leftovers are to be removed: run the commands.",
    State.ROLLED_BACK: "Every file is as it was. Only leftovers are to be removed: run the commands.",
    State.ROLLBACK_INCOMPLETE: (
        "Some files could not be put back, because somebody changed them meanwhile. Compare each destination with its"
        " backup and with what lies at its candidate's path, keep what you want, then remove both."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """One file of a transaction.

    Attributes:
        target: Its path below the root.
        destination: Its absolute path.
        candidate: Where the new bytes were staged; after the exchange the displaced file lies there.
        candidate_exists: Something lay there when this was written.
        backup: Where a copy of the old bytes is.
        backup_exists: Something lay there when this was written.
        old_sha256: What it held, in hex.
        new_sha256: What it is to hold, in hex.
    """

    target: str
    destination: str
    candidate: str
    candidate_exists: bool
    backup: str
    backup_exists: bool
    old_sha256: str
    new_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a recovery file says.

    Attributes:
        schema: `recovery/1`.
        transaction_state: How far the transaction came.
        failure: What went wrong, or that nothing has yet.
        rollback_failures: What could not be undone or removed.
        what_to_do: The same for people.
        commands: Shell commands that do it; none where a person must decide.
        backups: Every file of the transaction.
    """

    schema: str
    transaction_state: State
    failure: str
    rollback_failures: tuple[str, ...]
    what_to_do: str
    commands: tuple[str, ...]
    backups: tuple[Backup, ...]


class RecoveryFile:
    """The recovery file of a running transaction, in the held root.

    Attributes:
        name: Its name there.
        state: What it says, or may say if the last writing failed; None before the first.
    """

    def __init__(self, root: int, now: datetime) -> None:
        self._root = root
        self.state: State | None = None
        self.name = f"{RECOVERY_PREFIX}{stamp(now)}.json"

    def write(
        self, state: State, targets: Sequence[Target], *, failure: str, rollback_failures: Sequence[str] = ()
    ) -> None:
        """Write it durably, over what it said before.

        Raises:
            OSError: The file system refuses.
        """
        backups = tuple(map(_backup_of, targets))
        new_name = f"{self.name}.new"
        root = Path(f"/proc/self/fd/{self._root}").readlink()
        recovery = Recovery(
            schema=SCHEMA,
            transaction_state=state,
            failure=failure,
            rollback_failures=tuple(rollback_failures),
            what_to_do=WORDS[state],
            commands=tuple(_commands(state, backups, [str(root / name) for name in (self.name, new_name)])),
            backups=backups,
        )
        try:
            self._write(new_name, json.dumps(asdict(recovery), indent=1).encode() + b"\n")
        except BaseException:
            _remove(self._root, new_name)
            raise
        self.state = state
        os.rename(new_name, self.name, src_dir_fd=self._root, dst_dir_fd=self._root)
        os.fsync(self._root)

    def _write(self, name: str, data: bytes) -> None:
        fd = os.open(name, _CREATE, 0o600, dir_fd=self._root)
        try:
            unwritten = memoryview(data)
            while unwritten:
                unwritten = unwritten[os.write(fd, unwritten) :]
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove(self) -> None:
        """Remove it: nothing is left to do."""
        os.unlink(self.name, dir_fd=self._root)
        os.fsync(self._root)


def find_recoveries(root: Path) -> tuple[Path, ...]:
    """Recovery files in a tree's root, oldest first, and what a kill left of one that was being written."""
    return tuple(sorted(root.glob(f"{RECOVERY_PREFIX}*.json*")))


def recover(root: Path) -> tuple[str, ...]:
    """Do what the recovery files of a tree say; return what was done, a line each.

    A file whose bytes are neither the old nor the new ones was edited by somebody and stays. Whoever can write to the
    tree can write such a file too, so nothing outside of the tree is touched, whatever it says.

    Raises:
        IntegrityError: A recovery file cannot be read, names places that no transaction of this tree leaves, or a
            person must decide; it stays.
        HostError: The file system refuses, or a transaction is running.
        UsageError: There is no such tree, or its path holds a symbolic link.
    """
    with hold_alone(root):
        try:
            fd = open_without_links(root)
        except OSError as problem:
            raise UsageError(f"{root}: {problem.strerror}; name a directory by a path without links") from problem
        try:
            return _recover_all(root, fd)
        finally:
            os.close(fd)


def hold_alone(root: Path) -> LockHold:
    """Keep every other transaction away from a tree, until released or until we die.

    Raises:
        UsageError: There is no such tree.
        HostError: Another one is running; the message names its process.
    """
    if not root.is_dir():
        raise UsageError(f"{root}: no such directory; name the top of the project's work tree")
    return acquire_lock(root, wait_s=0.0)


class _Place(NamedTuple):
    """Where one file of a transaction and what was left beside it lie, below the root."""

    parent_path: str
    name: str
    candidate_name: str
    backup_name: str


def _recover_all(root: Path, fd: int) -> tuple[str, ...]:
    done: list[str] = []
    for path in find_recoveries(root):
        if path.suffix == ".new":  # one that was being written; the one before it, if any, still holds
            _remove(fd, path.name)
            continue
        recovery = _read(path, fd)
        if recovery.transaction_state is State.ROLLBACK_INCOMPLETE:
            raise IntegrityError(f"{path}: {recovery.what_to_do} Then remove this file.")
        places = [(backup, _place_of(path, backup)) for backup in reversed(recovery.backups)]
        try:
            edited = [
                backup
                for backup, place in places
                if not _recover_one(fd, place, backup, recovery.transaction_state, done)
            ]
            if edited:
                paths = ", ".join(backup.destination for backup in edited)
                raise IntegrityError(f"{path}: edited since: {paths}; keep what you want, then remove what it names")
            os.unlink(path.name, dir_fd=fd)
        except OSError as problem:
            raise HostError(f"{problem.filename or path}: {problem.strerror}; then run it again") from problem
    return tuple(done)


def _place_of(path: Path, backup: Backup) -> _Place:
    """Where a file is looked for: below the root, by names that a transaction gives.

    Raises:
        IntegrityError: No transaction of this tree wrote that.
    """
    destination, candidate, kept = map(Path, (backup.destination, backup.candidate, backup.backup))
    parts = tuple(backup.target.split("/"))
    if (
        any(part in {"", ".", ".."} or "\0" in part for part in parts)
        or destination.parts[-len(parts) :] != parts
        or not (destination.parent == candidate.parent == kept.parent)
        or not (_STAGED.fullmatch(candidate.name) and _STAGED.fullmatch(kept.name))
        or len({destination.name, candidate.name, kept.name}) != len((destination, candidate, kept))
    ):
        raise IntegrityError(
            f"{path}: {backup.target!r}: no transaction of this tree leaves that; look at it, then remove it"
        )
    return _Place("/".join(parts[:-1]), parts[-1], candidate.name, kept.name)


def _recover_one(root: int, place: _Place, backup: Backup, state: State, done: list[str]) -> bool:
    """Put one file back, or remove what was left beside it; False when somebody edited it, and then nothing is done."""
    parent = open_below(root, place.parent_path)
    try:
        now = look_at(parent, place.name)
        digest = None if now is None else sha256_of(now.content)
        if digest == backup.new_sha256 and state is State.NOT_FULLY_PUBLISHED:
            # What the candidate displaced lies in its place: the old bytes, or an edit of the last moment.
            # That may also be a link, or a file of several names: only where nothing lies is the backup taken.
            if not _exists(parent, place.candidate_name):
                os.rename(place.backup_name, place.name, src_dir_fd=parent, dst_dir_fd=parent)
            else:
                exchange(parent, place.candidate_name, place.name)
            done.append(f"{backup.target}: put back")
        elif digest not in {backup.old_sha256, backup.new_sha256}:
            return False
        for name in (place.candidate_name, place.backup_name):
            _remove(parent, name)
        os.fsync(parent)
    finally:
        os.close(parent)
    return True


def _remove(parent: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return


def _read(path: Path, root: int) -> Recovery:
    try:
        seen = look_at(root, path.name)
        if seen is None:
            raise FileNotFoundError(errno.ENOENT, "is no regular file of its own", str(path))
        return TypeAdapter(Recovery).validate_json(seen.content, strict=True, extra="forbid")
    except (OSError, ValidationError) as problem:
        raise IntegrityError(f"{path}: cannot be read as a recovery file; look at it and at what it names") from problem


def _exists(parent: int, name: str) -> bool:
    """Something of any kind lies there."""
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _backup_of(target: Target) -> Backup:
    return Backup(
        target=target.change.path,
        destination=target.where(target.name),
        candidate=target.where(target.candidate_name),
        candidate_exists=_exists(target.parent, target.candidate_name),
        backup=target.where(target.backup_name),
        backup_exists=_exists(target.parent, target.backup_name),
        old_sha256=target.change.old_sha256,
        new_sha256=target.change.new_sha256,
    )


def _commands(state: State, backups: Sequence[Backup], own: Sequence[str]) -> Iterator[str]:
    if state is State.ROLLBACK_INCOMPLETE:
        return
    for backup in reversed(backups):
        destination, candidate, kept = map(shlex.quote, (backup.destination, backup.candidate, backup.backup))
        if state is State.NOT_FULLY_PUBLISHED:
            put_back = f"{{ mv -fT -- {candidate} {destination} || mv -fT -- {kept} {destination}; }}"
            told = shlex.quote(f"edited since, so left alone: {backup.destination}")
            yield (
                f'case "$(sha256sum < {destination} | cut -c 1-64)" in'
                f" {backup.new_sha256}) {put_back} && rm -f -- {kept};;"
                f" {backup.old_sha256}) rm -f -- {candidate} {kept};;"
                f" *) echo {told};; esac"
            )
        else:
            yield f"rm -f -- {candidate} {kept}"
    remove = shlex.join(["rm", "-f", "--", *own])
    left = shlex.join(path for backup in backups for path in (backup.candidate, backup.backup))
    # Each command may be run in a shell of its own, so what is left is asked of the tree; "" says that nothing is.
    yield (
        f'for left in {left} ""; do if [ -e "$left" ] || [ -L "$left" ]; then break; fi; done;'
        f' if [ -n "$left" ]; then printf "%s is left for you to decide on\\n" "$left"; else {remove}; fi'
    )
