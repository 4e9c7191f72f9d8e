"""Files of a repository's work tree that its commit lacks: copied into the tree, or mounted beside it, read-only.

One capture per sweep, shared by all arms: opened component by component without following links, read twice over
(any change meanwhile is refused), kept under the digest of its content. What lies there belongs to us and is mounted
read-only; no trial can write it.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from fairtrial.bench.blobs import framed_digest
from fairtrial.errors import HostError, UsageError
from fairtrial.host.files import remove_tree
from fairtrial.host.slot import Slot
from fairtrial.model.bench import Asset, Task
from fairtrial.workspace.layers import Layer
from fairtrial.workspace.tree import Tree

__all__ = [
    "ASSETS",
    "VITE_SCRATCH",
    "SnapshotSize",
    "capture_copy",
    "capture_dependency",
    "content_digest",
    "copy_assets",
    "manifest_digest",
    "snapshot_digest",
]

ASSETS: Final = "assets"
MOST_ENTRIES: Final = 100_000
MOST_BYTES: Final = 2 << 30
VITE_SCRATCH: Final = ".vite-temp"
"""Where Vite puts its settings before it loads them, in the `node_modules` that they are to find packages in."""
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Item(NamedTuple):
    """One path of what is captured: a directory, a file with its descriptor open, or a link."""

    path: str
    status: os.stat_result
    fd: int
    link: str


@dataclass(slots=True)
class SnapshotSize:
    """How much was captured so far; the assets of one task share its limits.

    Attributes:
        n_entries: Files, directories and links.
        n_bytes: Of all files.
    """

    n_entries: int = 0
    n_bytes: int = 0

    def add(self, where: Path, n_bytes: int) -> None:
        """Count one more entry.

        Raises:
            UsageError: It is one too many, or too large.
        """
        self.n_entries += 1
        self.n_bytes += n_bytes
        for n, most, unit in ((self.n_entries, MOST_ENTRIES, "entries"), (self.n_bytes, MOST_BYTES, "bytes")):
            if n > most:
                raise UsageError(f"{where}: more than {most} {unit} together with what the task names before it")


def capture_copy(repository: Path, path: str, frozen: Path, size: SnapshotSize) -> Asset:
    """Capture what is to be put into the tree; links are refused.

    Args:
        repository: Whose work tree it is in.
        path: Where it is there, and in the tree.
        frozen: Where it is kept.
        size: What was captured for the task before; it grows.

    Raises:
        UsageError: It is missing, holds a link or a special file, is too large, or changes meanwhile.
        HostError: It cannot be kept.
    """
    return _capture(repository, path, path, frozen, size, links=False)


def capture_dependency(repository: Path, source: str, target: str, frozen: Path, size: SnapshotSize) -> Asset:
    """Capture what is to be mounted; relative links that stay inside are kept.

    Args:
        repository: Whose work tree it is in.
        source: Where it is there.
        target: Where it is mounted.
        frozen: Where it is kept.
        size: What was captured for the task before; it grows.

    Raises:
        UsageError: As for `capture_copy`, or a link leads out.
        HostError: It cannot be kept.
    """
    return _capture(repository, source, target, frozen, size, links=True)


def content_digest(assets: Sequence[Asset]) -> str:
    """What some assets hold, whatever they are called."""
    return framed_digest(each.digest.encode() for each in assets)


def manifest_digest(assets: Sequence[Asset]) -> str:
    """What some assets hold and where they stand."""
    return framed_digest(part.encode() for each in assets for part in (each.source, each.target, each.digest))


def snapshot_digest(task: Task) -> str:
    """All of a task's assets, in the order in which they are declared, with the repository and commit they go with."""
    assets = (*task.copies, *task.dependencies)
    parts = [part for each in assets for part in (each.source, each.target, each.digest)]
    return framed_digest(part.encode() for part in (task.repository, task.commit, *parts))


def copy_assets(frozen: Path, task: Task, layer: Layer, *, slot: Slot) -> None:
    """Put a task's copies into a layer in place of what is there, and make the points that dependencies are mounted on.

    Raises:
        HostError: The layer cannot be written.
    """
    tree = Tree(layer.merged)
    try:
        for asset in task.copies:
            root = frozen / asset.digest
            target = asset.target.encode()
            if root.is_file():
                tree.put_file(target, root.read_bytes(), 0o644, slot)
                continue
            for item in tree.walk(target) if tree.is_directory(target) else ():
                if not stat.S_ISDIR(item.mode):
                    tree.remove(item.path)
            for path in sorted(root.rglob("*")):
                if path.is_file():
                    relative = path.relative_to(root).as_posix().encode()
                    mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
                    tree.put_file(target + b"/" + relative, path.read_bytes(), mode, slot)
        for asset in task.dependencies:
            keep = f"{asset.target}/.fairtrial".encode()
            if not tree.is_directory(asset.target.encode()):
                tree.put_file(keep, b"", 0o644, slot)
    except OSError as problem:
        raise HostError(f"task {task.id}: its copies cannot be made: {problem}") from problem


def _capture(repository: Path, source: str, target: str, frozen: Path, size: SnapshotSize, *, links: bool) -> Asset:
    where = repository / source
    staged = frozen / f".{secrets.token_hex(8)}"
    try:
        frozen.mkdir(mode=0o755, exist_ok=True)
        digest = _copy(repository, source, staged, size, links=links)
        kept = frozen / digest
        if kept.exists():
            _discard(staged)
        else:
            staged.rename(kept)
    except UsageError:
        _discard(staged)
        raise
    except OSError as problem:
        _discard(staged)
        raise UsageError(f"{where}: cannot be captured: {problem.strerror}") from problem
    return Asset(source=source, target=target, digest=digest)


def _discard(staged: Path) -> None:
    if staged.is_dir():
        remove_tree(staged)
    else:
        staged.unlink(missing_ok=True)


def _copy(repository: Path, source: str, staged: Path, size: SnapshotSize, *, links: bool) -> str:
    digest = hashlib.sha256()
    for item in _walk(repository, source):
        try:
            goal = staged / item.path if item.path else staged
            content = b""
            if stat.S_ISDIR(item.status.st_mode):
                kind = b"d"
                goal.mkdir(mode=0o755)
            elif item.link:
                kind, content = b"l", os.fsencode(item.link)
                _check_link(repository / source, item, allowed=links)
                goal.symlink_to(item.link)
            else:
                kind = b"x" if item.status.st_mode & stat.S_IXUSR else b"f"
                content = _read(repository / source / item.path, item)
                goal.write_bytes(content)
                goal.chmod(0o555 if kind == b"x" else 0o444)
        finally:
            if item.fd >= 0:
                os.close(item.fd)
        size.add(repository / source, len(content))
        for part in (os.fsencode(item.path), kind, content):
            digest.update(len(part).to_bytes(8, "big") + part)
    vite = staged / VITE_SCRATCH
    if links and source.rpartition("/")[2] == "node_modules" and staged.is_dir() and not vite.exists():
        vite.mkdir(mode=0o755)
        digest.update(os.fsencode(VITE_SCRATCH))
    return digest.hexdigest()


def _read(where: Path, item: _Item) -> bytes:
    with os.fdopen(os.dup(item.fd), "rb") as file:
        content = file.read(MOST_BYTES + 1)
    after, before = os.fstat(item.fd), item.status
    same = (before.st_ino, before.st_mtime_ns, before.st_ctime_ns) == (
        after.st_ino,
        after.st_mtime_ns,
        after.st_ctime_ns,
    )
    if not same or len(content) != before.st_size:
        raise UsageError(f"{where}: was changed while it was read; run again when nothing writes it")
    return content


def _check_link(root: Path, item: _Item, *, allowed: bool) -> None:
    if not allowed:
        raise UsageError(f"{root / item.path}: a symbolic link, which is not copied; name what it leads to")
    joined = os.path.normpath(os.path.join(os.path.dirname("./" + item.path), item.link))  # noqa: PTH118, PTH120 - text
    if item.link.startswith("/") or joined == ".." or joined.startswith("../"):
        raise UsageError(f"{root / item.path}: a symbolic link that leads out of {root}")


def _walk(repository: Path, source: str) -> Iterator[_Item]:
    """Everything at or below a path, a directory before what it holds, in the order of names; no link is followed."""
    *parents, name = source.split("/")
    at = os.open(repository, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parents:
            below = os.open(part, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        yield from _visit(at, name, "", repository / source)
    finally:
        os.close(at)


def _visit(at: int, name: str, path: str, where: Path) -> Iterator[_Item]:
    status = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        yield _Item(path, status, -1, os.readlink(name, dir_fd=at))
    elif stat.S_ISREG(status.st_mode):
        fd = os.open(name, _READ, dir_fd=at)
        yield _Item(path, os.fstat(fd), fd, "")
    elif stat.S_ISDIR(status.st_mode):
        yield _Item(path, status, -1, "")
        below = os.open(name, _DIRECTORY, dir_fd=at)
        try:
            for child in sorted(os.listdir(below)):  # noqa: PTH208 - a descriptor has no Path
                yield from _visit(below, child, f"{path}/{child}" if path else child, where / child)
        finally:
            os.close(below)
    else:
        raise UsageError(f"{where}: neither a file nor a directory")
