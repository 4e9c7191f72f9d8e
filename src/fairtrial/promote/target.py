"""The files that a transaction replaces: held by their directories, observed, and staged beside."""

import hashlib
import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fairtrial.errors import IntegrityError, UsageError
from fairtrial.host.exchange import open_below, open_without_links

__all__ = ["PREFIX", "Change", "Held", "Seen", "Target", "hold", "look_at", "sha256_of"]

PREFIX: Final = ".fairtrial-"
MAX_TARGET_BYTES: Final = 64 << 20
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One file that is to be replaced.

    Attributes:
        path: Below the tree's root.
        old_sha256: What it must hold now, in hex.
        content: What it is to hold.
    """

    path: str
    old_sha256: str
    content: bytes

    @property
    def new_sha256(self) -> str:
        """Digest of what it is to hold, in hex."""
        return sha256_of(self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a name stood for when it was looked at.

    Attributes:
        device: Of its file system.
        inode: Its number there.
        mode: Type and permissions.
        uid: Its owner.
        gid: Its group.
        content: Its bytes.
    """

    device: int
    inode: int
    mode: int
    uid: int
    gid: int
    content: bytes

    def is_same_file(self, other: "Seen") -> bool:
        """Both are one inode."""
        return (self.device, self.inode) == (other.device, other.inode)


@dataclass(slots=True, kw_only=True)
class Target:
    """One file while it is replaced.

    Attributes:
        change: What is to happen.
        parent: Descriptor of its directory.
        parent_path: That directory, below the root; "" for the root.
        parent_identity: Device and inode of that directory.
        name: Its name there.
        before: What it was.
        candidate_name: Where the new bytes are staged; after the exchange, where the displaced file lies.
        backup_name: Where a copy of the old bytes is kept.
        candidate: The staged file, once there is one.
    """

    change: Change
    parent: int
    parent_path: str
    parent_identity: tuple[int, int]
    name: str
    before: Seen
    candidate_name: str = field(default_factory=lambda: f"{PREFIX}{secrets.token_hex(8)}")
    backup_name: str = field(default_factory=lambda: f"{PREFIX}{secrets.token_hex(8)}")
    candidate: Seen | None = None

    def look(self, name: str) -> Seen | None:
        """What a name in its directory stands for; None when it is gone or no regular file."""
        return look_at(self.parent, name)

    def where(self, name: str) -> str:
        """The present absolute path of a name in its directory, wherever that was moved to."""
        return str(Path(f"/proc/self/fd/{self.parent}").readlink() / name)


@dataclass(slots=True, kw_only=True)
class Held:
    """A tree whose root and parents are held open.

    Attributes:
        root_path: As it was named.
        root: Its descriptor.
        root_identity: Device and inode.
        targets: What is to be replaced; files that hold the new bytes already are left out.
    """

    root_path: Path
    root: int
    root_identity: tuple[int, int]
    targets: tuple[Target, ...]

    def require_same_directories(self) -> None:
        """Check that every path still leads where it led.

        Raises:
            IntegrityError: One does not.
        """
        try:
            _require(open_without_links(self.root_path), self.root_identity)
            for target in self.targets:
                _require(open_below(self.root, target.parent_path), target.parent_identity)
        except (OSError, ValueError) as problem:
            raise IntegrityError(f"{self.root_path}: a directory was replaced meanwhile ({problem})") from problem


def hold(root: Path, changes: Sequence[Change], stack: ExitStack) -> Held:
    """Open the root and every parent, look at every file, and refuse before anything is written.

    Args:
        root: The tree.
        changes: What is to be replaced.
        stack: Closes the descriptors.

    Raises:
        UsageError: The tree is not what the changes were made for; the message names every file.
    """
    try:
        fd = open_without_links(root)
    except OSError as problem:
        raise UsageError(
            f"{root}: {problem.filename}: {problem.strerror}; name a directory by a path without links"
        ) from (problem)
    stack.callback(os.close, fd)
    parents: dict[str, int] = {}
    targets: list[Target] = []
    problems: list[str] = []
    for change in changes:
        parent_path, _, name = change.path.rpartition("/")
        try:
            if parent_path not in parents:
                parents[parent_path] = open_below(fd, parent_path)
                stack.callback(os.close, parents[parent_path])
        except OSError as problem:
            problems.append(f"{change.path}: its directory cannot be entered ({problem.filename}: {problem.strerror})")
            continue
        parent = parents[parent_path]
        before = look_at(parent, name)
        if before is None:
            problems.append(f"{change.path}: missing, or no regular file of its own")
        elif sha256_of(before.content) != change.old_sha256:
            problems.append(f"{change.path}: drifted from what the candidate was measured against")
        elif before.content != change.content:
            identity = _identity(parent)
            targets.append(
                Target(
                    change=change,
                    parent=parent,
                    parent_path=parent_path,
                    parent_identity=identity,
                    name=name,
                    before=before,
                )
            )
    if problems:
        raise UsageError(f"{root}: nothing was changed: {'; '.join(problems)}")
    held = Held(root_path=root, root=fd, root_identity=_identity(fd), targets=tuple(targets))
    held.require_same_directories()
    return held


def look_at(parent: int, name: str) -> Seen | None:
    """What a name stands for; None when there is nothing, or no regular file that has this one name only.

    Raises:
        OSError: It cannot be read.
    """
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size > MAX_TARGET_BYTES:
            return None
        fd = os.open(name, _READ, dir_fd=parent)
    except FileNotFoundError:
        return None
    try:
        opened = os.fstat(fd)
        with os.fdopen(os.dup(fd), "rb") as file:
            content = file.read(MAX_TARGET_BYTES + 1)
    finally:
        os.close(fd)
    return Seen(
        device=opened.st_dev,
        inode=opened.st_ino,
        mode=opened.st_mode,
        uid=opened.st_uid,
        gid=opened.st_gid,
        content=content,
    )


def sha256_of(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _require(fd: int, identity: tuple[int, int]) -> None:
    try:
        if _identity(fd) != identity:
            raise ValueError("another one lies at its path")
    finally:
        os.close(fd)
