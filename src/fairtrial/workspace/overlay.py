"""A candidate's files: read strictly from a directory, pinned by a digest, frozen, and which arms must try them.

An overlay changes the prose of skills and nothing else: Markdown files at `<layout root>/<skill>/…`. What an overlay
may not be is decided here before anything is spent.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, UsageError
from fairtrial.host.files import fsync_directory, remove_tree
from fairtrial.workspace.skill_layout import SkillLayout

__all__ = [
    "CANDIDATE_PREFIX",
    "MAX_OVERLAY_BYTES",
    "MAX_PATH_BYTES",
    "Overlay",
    "OverlayFile",
    "candidate_of",
    "freeze_overlay",
    "incumbent_of",
    "overlay_digest",
    "read_overlay",
    "require_pairs",
    "required_candidate_arms",
]

CANDIDATE_PREFIX: Final = "candidate_"
MAX_ENTRIES: Final = 256
MAX_FILES: Final = 64
MAX_OVERLAY_BYTES: Final = 4 << 20
MAX_PATH_BYTES: Final = 512
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayFile:
    """One file of a candidate.

    Attributes:
        path: Below the project's top, in the layout's canonical place.
        content: Its bytes.
    """

    path: str
    content: bytes

    @property
    def sha256(self) -> str:
        """Digest of its bytes, in hex."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """A candidate.

    Attributes:
        files: Its files, by path.
        skills: The skills that it changes, in order.
        digest: SHA-256 over path and bytes of each file, in hex.
    """

    files: tuple[OverlayFile, ...]
    skills: tuple[str, ...]
    digest: str

    def of_skill(self, skill: str, layout: SkillLayout) -> Mapping[str, bytes]:
        """Its files of one skill, by path below the skill's directory."""
        root = f"{layout.root}/{skill}/"
        return {f.path.removeprefix(root): f.content for f in self.files if f.path.startswith(root)}


def overlay_digest(files: Iterable[OverlayFile]) -> str:
    """SHA-256 over path and bytes of each file in path order, each after its length in eight bytes."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda each: each.path.encode()):
        for frame in (file.path.encode(), file.content):
            digest.update(len(frame).to_bytes(8, "big"))
            digest.update(frame)
    return digest.hexdigest()


def read_overlay(directory: Path, layout: SkillLayout) -> Overlay:
    """Read a candidate's directory, whole, through no symbolic link.

    Raises:
        UsageError: It is not what an overlay may be; the message names the path.
        HostError: It cannot be read.
    """
    reading = _Reading(directory=directory, layout=layout)
    try:
        root = _open_without_links(directory)
        try:
            files = sorted(reading.walk(root, ""), key=lambda file: file.path.encode())
        finally:
            os.close(root)
    except OSError as problem:
        where = problem.filename or directory
        raise HostError(f"overlay {directory}: {where}: {problem.strerror}; make it readable") from problem
    if not files:
        raise UsageError(f"overlay {directory}: holds no file; put Markdown files below {layout.root}/<skill>/")
    depth = len(layout.root.split("/"))
    skills = tuple(sorted({file.path.split("/")[depth] for file in files}))
    return Overlay(files=tuple(files), skills=skills, digest=overlay_digest(files))


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One walk through an overlay, and what it has come to."""

    directory: Path
    layout: SkillLayout
    n_entries: int = 0
    n_files: int = 0
    n_bytes: int = 0

    def walk(self, fd: int, above: str) -> Iterator[OverlayFile]:
        for name in sorted(os.listdir(fd)):
            path = f"{above}{name}"
            self.n_entries += 1
            if self.n_entries > MAX_ENTRIES:
                raise self.refusal(path, f"is one of more than {MAX_ENTRIES} entries")
            if len(os.fsencode(path)) > MAX_PATH_BYTES:
                raise self.refusal(path[:80], f"begins a path longer than {MAX_PATH_BYTES} bytes")
            if not name.isprintable() or not _is_utf8(name) or "\\" in name:
                raise self.refusal(ascii(path), "is no plain name")
            kind = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            if stat.S_ISDIR(kind):
                self.require_directory(path)
                below = os.open(name, _DIRECTORY, dir_fd=fd)
                try:
                    yield from self.walk(below, f"{path}/")
                finally:
                    os.close(below)
            elif stat.S_ISREG(kind):
                self.require_file(path)
                yield OverlayFile(path=path, content=self.read(fd, name, path))
            else:
                raise self.refusal(path, "is a symbolic link or a special file")

    def require_directory(self, path: str) -> None:
        parts, root = path.split("/"), self.layout.root.split("/")
        if parts[: len(root)] != root[: len(parts)]:
            raise self.refusal(path, f"does not lie below {self.layout.root}/")
        if len(parts) == len(root) + 1:
            self.require_skill(path, parts[-1])

    def require_skill(self, path: str, skill: str) -> None:
        allowed = self.layout.skills
        if allowed is not None and skill not in allowed:
            raise self.refusal(path, f"is no skill that a candidate may change ({', '.join(allowed)})")

    def require_file(self, path: str) -> None:
        self.n_files += 1
        if self.n_files > MAX_FILES:
            raise self.refusal(path, f"is one of more than {MAX_FILES} files")
        if len(path.split("/")) < len(self.layout.root.split("/")) + 2 or not path.endswith(".md"):
            raise self.refusal(path, f"is no Markdown file below {self.layout.root}/<skill>/")

    def read(self, parent: int, name: str, path: str) -> bytes:
        fd = os.open(name, _FILE, dir_fd=parent)
        try:
            before = os.fstat(fd)
            room = MAX_OVERLAY_BYTES - self.n_bytes
            with os.fdopen(os.dup(fd), "rb") as file:
                content = file.read(room + 1)
            if len(content) > room:
                raise self.refusal(path, f"makes the overlay larger than {MAX_OVERLAY_BYTES} bytes")
            if not stat.S_ISREG(before.st_mode) or _identity(before) != _identity(os.fstat(fd)):
                raise self.refusal(path, "was changed while it was read")
        finally:
            os.close(fd)
        self.n_bytes += len(content)
        return content

    def refusal(self, path: str, what: str) -> UsageError:
        return UsageError(f"overlay {self.directory}: {path} {what}")


def _open_without_links(directory: Path) -> int:
    """Open a directory whose own path has no symbolic link in it.

    Raises:
        UsageError: It has one, or is no directory.
    """
    absolute = Path(os.path.abspath(directory))  # noqa: PTH100 - resolve() would follow links, which is what we refuse
    fd = os.open(absolute.anchor, _DIRECTORY)
    for part in absolute.parts[1:]:
        try:
            below = os.open(part, _DIRECTORY, dir_fd=fd)
        except OSError as problem:
            raise UsageError(
                f"overlay {directory}: {part!r} cannot be entered ({problem.strerror}); it must be a directory, no link"
            ) from problem
        finally:
            os.close(fd)
        fd = below
    return fd


def freeze_overlay(overlay: Overlay, destination: Path) -> None:
    """Write a candidate's bytes to a new directory that nobody changes by accident: files 0400, directories 0500.

    Raises:
        UsageError: The destination is there already.
        HostError: The file system refuses, or does not give back what was written.
    """
    if os.path.lexists(destination):
        raise UsageError(f"{destination}: is there already; name a new place for the frozen overlay")
    staged = destination.with_name(f".fairtrial-{secrets.token_hex(8)}")
    try:
        try:
            _stage(overlay, staged)
            staged.rename(destination)
            fsync_directory(destination.parent)
        except BaseException:
            if staged.exists():
                remove_tree(staged)
            raise
    except OSError as problem:
        raise HostError(f"{destination}: cannot be written ({problem.strerror})") from problem


def _stage(overlay: Overlay, staged: Path) -> None:
    for file in overlay.files:
        _write_frozen(staged / file.path, file.content)
    directories = [Path(at) for at, _, _ in os.walk(staged)]
    written = [
        OverlayFile(path=path.relative_to(staged).as_posix(), content=path.read_bytes())
        for at in directories
        for path in at.iterdir()
        if path.is_file()
    ]
    if overlay_digest(written) != overlay.digest:
        raise HostError(f"{staged}: the file system does not give back what was written")
    for at in reversed(directories):
        at.chmod(0o500)
        fsync_directory(at)


def _write_frozen(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("xb") as file:
        os.fchmod(file.fileno(), 0o400)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def candidate_of(incumbent: str) -> str:
    """The name of an arm's candidate form."""
    return f"{CANDIDATE_PREFIX}{incumbent}"


def incumbent_of(arm: str) -> str | None:
    """The incumbent of a candidate arm; None for any other arm."""
    return arm.removeprefix(CANDIDATE_PREFIX) if arm.startswith(CANDIDATE_PREFIX) else None


def required_candidate_arms(touched: Iterable[str], arms: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The candidate arms that must run: one for each arm that loads a touched skill, in the order of `arms`.

    Args:
        touched: Skills that the overlay changes.
        arms: The skills that each incumbent loads, by the arm's name.
    """
    changed = frozenset(touched)
    return tuple(candidate_of(arm) for arm, skills in arms.items() if changed & frozenset(skills))


def require_pairs(asked: Sequence[str], overlay: Overlay | None, arms: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Refuse a sweep that could not decide on its candidate, before anything is spent.

    With an overlay, `--arms` is exactly pairs of an incumbent and its candidate, in that order, one pair for each arm
    that loads a skill which the overlay changes.

    Args:
        asked: What `--arms` names.
        overlay: The candidate, or None.
        arms: The skills that each arm in use loads, by its name; never candidates.

    Returns:
        The candidate arms.

    Raises:
        UsageError: The arms are not those pairs.
    """
    candidates = [arm for arm in asked if incumbent_of(arm) is not None]
    if overlay is None:
        if candidates:
            raise UsageError(
                f"--arms names {candidates[0]!r} without a candidate; name its files by --candidate-overlay"
            )
        return ()
    loaded = {skill for skills in arms.values() for skill in skills}
    if strangers := [skill for skill in overlay.skills if skill not in loaded]:
        raise UsageError(
            f"--candidate-overlay changes skill {strangers[0]!r}, which no arm loads: nothing would measure it"
        )
    required = required_candidate_arms(overlay.skills, arms)
    pairs = [arm for candidate in candidates for arm in (incumbent_of(candidate), candidate)]
    if list(asked) != pairs or len(set(asked)) != len(asked) or sorted(candidates) != sorted(required):
        wanted = ",".join(f"{incumbent_of(candidate)},{candidate}" for candidate in required)
        raise UsageError(
            f"--arms must name each incumbent and then its candidate, and no other arm: use --arms {wanted}"
        )
    return tuple(candidates)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
