"""Replace several files of a person's tree, all or none.

Each file is exchanged with a staged one in a single step of the kernel, so what was displaced is kept and can be
compared with what was seen before: an edit that came between is found, and put back. Before anything is written a
recovery file says how to undo it all; it goes when nothing is left to do.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, IntegrityError
from fairtrial.host.exchange import exchange
from fairtrial.promote.recovery import RecoveryFile, State, find_recoveries, hold_alone
from fairtrial.promote.target import Change, Held, Target, hold

__all__ = ["Step", "examine", "publish"]

RUNNING: Final = "nothing yet: the program wrote this before it began"
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Step(StrEnum):
    """Moments of a transaction at which somebody may look, or stop it by raising."""

    HELD = "held"
    STAGED = "staged"
    READY = "ready"
    EXCHANGED = "exchanged"
    DONE = "done"


Watch = Callable[[Step, str], None]


def examine(root: Path, changes: Sequence[Change]) -> tuple[str, ...]:
    """Look at the tree as `publish` does before it writes, and change nothing.

    Args:
        root: The tree; no part of its path may be a symbolic link.
        changes: What is to be replaced.

    Returns:
        The paths that `publish` would replace.

    Raises:
        UsageError: The tree is not what the changes were made for; the message names every file.
        IntegrityError: An earlier transaction is not cleaned up.
        HostError: Another transaction is running in the tree.
    """
    with ExitStack() as stack:
        return tuple(target.change.path for target in _hold(root, changes, stack).targets)


def publish(root: Path, changes: Sequence[Change], *, now: datetime, watch: Watch) -> tuple[str, ...]:
    """Replace the files, all or none.

    Args:
        root: The tree; no part of its path may be a symbolic link.
        changes: What to replace.
        now: The moment, for the recovery file's name.
        watch: Called with each step and the path concerned; what it raises undoes everything and is raised again.

    Returns:
        The paths that were replaced; those that held the new bytes already are left out.

    Raises:
        UsageError: The tree is not what the changes were made for, or an earlier transaction is not cleaned up. Nothing
            was touched.
        IntegrityError: Somebody changed the tree meanwhile; everything was put back, or a recovery file says what not.
        HostError: The file system refused; likewise. Or another transaction is running in the tree.
    """
    with ExitStack() as stack:
        held = _hold(root, changes, stack)
        watch(Step.HELD, "")
        if not held.targets:
            return ()
        recovery = RecoveryFile(held.root, now)
        try:
            recovery.write(State.NOT_FULLY_PUBLISHED, held.targets, failure=RUNNING)
            _exchange_all(held, watch)
            recovery.write(State.PUBLISHED, held.targets, failure="none")
        except BaseException as failure:
            _undo(held, recovery, failure)
            if isinstance(failure, OSError):
                where = failure.filename or root
                raise HostError(f"{where}: {failure.strerror}; everything is as it was") from failure
            raise
        _finish(held, recovery)
        return tuple(target.change.path for target in held.targets)


def _hold(root: Path, changes: Sequence[Change], stack: ExitStack) -> Held:
    stack.enter_context(hold_alone(root))
    if leftovers := find_recoveries(root):
        message = f"{leftovers[0]}: an earlier attempt was broken off; run `fairtrial apply --recover` first"
        raise IntegrityError(message)
    return hold(root, changes, stack)


def _exchange_all(held: Held, watch: Watch) -> None:
    for target in held.targets:
        _stage(target)
    for fd in {target.parent for target in held.targets}:
        os.fsync(fd)
    watch(Step.STAGED, "")
    for target in held.targets:
        _require_untouched(target)
    for target in held.targets:
        _require_untouched(target)
        watch(Step.READY, target.change.path)
        exchange(target.parent, target.candidate_name, target.name)
        os.fsync(target.parent)
        watch(Step.EXCHANGED, target.change.path)
        _require_exchanged(target)
    for target in held.targets:
        _require_exchanged(target)
    held.require_same_directories()
    watch(Step.DONE, "")


def _stage(target: Target) -> None:
    """Write the new bytes and a copy of the old ones beside the file, with its mode and owner."""
    _write(target, target.backup_name, target.before.content)
    _write(target, target.candidate_name, target.change.content)
    target.candidate = target.look(target.candidate_name)


def _write(target: Target, name: str, content: bytes) -> None:
    before = target.before
    fd = os.open(name, _CREATE, 0o600, dir_fd=target.parent)
    try:
        unwritten = memoryview(content)
        while unwritten:
            unwritten = unwritten[os.write(fd, unwritten) :]
        made = os.fstat(fd)
        if (made.st_uid, made.st_gid) != (before.uid, before.gid):
            os.fchown(fd, before.uid, before.gid)
        os.fchmod(fd, stat.S_IMODE(before.mode))
        os.fsync(fd)
    finally:
        os.close(fd)


def _require_untouched(target: Target) -> None:
    if target.look(target.name) != target.before:
        raise IntegrityError(f"{target.change.path}: was changed meanwhile; the change is kept")
    if target.candidate is None or target.look(target.candidate_name) != target.candidate:
        raise IntegrityError(f"{target.where(target.candidate_name)}: the staged file was changed meanwhile")


def _require_exchanged(target: Target) -> None:
    """Check that the new file is where it belongs, and that what it displaced is what had been seen there."""
    if target.look(target.candidate_name) != target.before:
        raise IntegrityError(f"{target.change.path}: was changed at the last moment; the change is kept")
    if target.look(target.name) != target.candidate:
        raise IntegrityError(f"{target.change.path}: was changed right after it was replaced; the change is kept")


def _undo(held: Held, recovery: RecoveryFile, failure: BaseException) -> None:
    """Put back what was exchanged and remove what was staged; what cannot be is told in the recovery file.

    Raises:
        FairtrialError: Something is left; the message names the recovery file.
    """
    where = held.root_path / recovery.name
    if recovery.state is State.PUBLISHED:
        try:
            recovery.write(State.NOT_FULLY_PUBLISHED, held.targets, failure=str(failure))
        except OSError as problem:
            raise HostError(f"{where}: {problem.strerror}; every file is new; {where} says what to do") from failure
    failures = [problem for target in reversed(held.targets) for problem in _put_back(target)]
    state = State.ROLLBACK_INCOMPLETE if failures else State.ROLLED_BACK
    if not failures:
        failures = [problem for target in held.targets for problem in _remove_leftovers(target)]
    said = f"{type(failure).__name__}: {failure}"
    if not failures:
        try:
            recovery.remove()
        except FileNotFoundError:  # it was never written
            return
        except OSError as problem:
            failures = [f"{recovery.name}: {problem.strerror}"]
        else:
            return
    try:
        recovery.write(state, held.targets, failure=said, rollback_failures=failures)
    except OSError as problem:
        failures.append(f"{where}: {problem.strerror}; what it says is older than this message")
    raise IntegrityError(f"{said}; {state}: {'; '.join(failures)}; {where} says what to do") from failure


def _put_back(target: Target) -> Iterator[str]:
    """Exchange back, if the candidate is where we put it and nobody has touched it."""
    candidate = target.candidate
    if candidate is None:
        return
    try:
        there, staged = target.look(target.name), target.look(target.candidate_name)
        if there == candidate and staged is not None and not staged.is_same_file(candidate):
            exchange(target.parent, target.candidate_name, target.name)
            os.fsync(target.parent)
            if target.look(target.candidate_name) != candidate:
                yield f"{target.change.path}: was changed while it was put back"
        elif staged != candidate:
            yield f"{target.change.path}: neither it nor its staged file is what we left; both are kept"
    except OSError as problem:
        yield f"{target.change.path}: {problem.strerror}"


def _finish(held: Held, recovery: RecoveryFile) -> None:
    """Remove what a finished transaction leaves.

    Raises:
        HostError: It cannot be removed; the tree is new, and the recovery file says so.
    """
    failures = [problem for target in held.targets for problem in _remove_leftovers(target)]
    where = held.root_path / recovery.name
    try:
        if failures:
            recovery.write(State.PUBLISHED, held.targets, failure="clean-up failed", rollback_failures=failures)
        else:
            recovery.remove()
    except OSError as problem:
        failures.append(f"{where}: {problem.strerror}")
    if failures:
        raise HostError(f"every file was replaced, but: {'; '.join(failures)}; {where} says what to do")


def _remove_leftovers(target: Target) -> Iterator[str]:
    """Remove the backup, and the staged or displaced file if it is one that we know."""
    for name in (target.candidate_name, target.backup_name):
        try:
            seen = target.look(name)
            # Before the candidate was complete, what has its name is what we have written of it.
            is_ours = name == target.backup_name or target.candidate is None
            if is_ours or seen in (target.candidate, target.before):
                os.unlink(name, dir_fd=target.parent)
            else:
                os.stat(name, dir_fd=target.parent, follow_symlinks=False)
                yield f"{target.where(name)}: is not what we left there; it is kept"
        except FileNotFoundError:
            continue
        except OSError as problem:
            yield f"{target.where(name)}: {problem.strerror}"
