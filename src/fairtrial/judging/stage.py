"""Making a tree ready for one oracle: its files in their places, nothing of the agent's in their way, all gone after.

An oracle's files exist in a sandbox only while it judges. They are staged outside the tree and mounted read-only, also
over the tree; a file of its own lies below each such mount, so that a directory moved away is noticed.
"""

import os
import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, UsageError
from fairtrial.host.files import remove_tree
from fairtrial.host.slot import Slot
from fairtrial.judging.autoload import display, must_be_restored
from fairtrial.judging.captured import check_target
from fairtrial.judging.placement import MountPoint, PlacedFile, make_mount_point, place_file, place_link, remove_path
from fairtrial.judging.values import CapturedFile, ChangedPath, JudgedTree, Place
from fairtrial.model.sandbox import WORKSPACE, Access, Bind

__all__ = ["ORACLE_ROOT", "Stage", "clear_mount_points", "own_paths", "restore_base", "stage_oracle", "target_inside"]

ORACLE_ROOT: Final = "/oracle"
"""Beside the workspace, always here, so that a test can import the candidate by a relative path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """An oracle's files, ready.

    Attributes:
        binds: How they are mounted.
        staged: What each staged copy must still hold after the run.
        placed: What must still lie below each mount in the tree.
    """

    binds: tuple[Bind, ...]
    staged: Mapping[Path, bytes]
    placed: tuple[PlacedFile, ...]

    def is_intact(self) -> bool:
        """Tell whether nothing of it was changed, moved or replaced."""
        return all(file.is_intact() for file in self.placed) and all(
            path.read_bytes() == content for path, content in self.staged.items()
        )


def target_inside(file: CapturedFile) -> str:
    """Where a file is found inside."""
    return f"{ORACLE_ROOT if file.place is Place.ORACLE_ROOT else WORKSPACE}/{file.target}"


def own_paths(files: Sequence[CapturedFile]) -> frozenset[bytes]:
    """Paths of the workspace that an oracle brings."""
    return frozenset(os.fsencode(file.target) for file in files if file.place is Place.WORKSPACE)


def clear_mount_points(tree: JudgedTree, binds: Sequence[Bind], *, slot: Slot) -> None:
    """See to it that what is to be mounted in the workspace can be: an agent's link there would lead out of it."""
    for bind in binds:
        if bind.target.startswith(f"{WORKSPACE}/"):
            kind = MountPoint.DIRECTORY if bind.source.is_dir() else MountPoint.FILE
            make_mount_point(tree.merged, os.fsencode(bind.target.removeprefix(f"{WORKSPACE}/")), kind, slot=slot)


def restore_base(tree: JudgedTree, own: frozenset[bytes], *, slot: Slot) -> tuple[str, ...]:
    """Put back what a test runner or interpreter would load by itself; return what it was.

    Args:
        tree: The tree.
        own: Paths that the oracle brings, which win anyway.
        slot: Whose the tree is.
    """
    concerned = [each for each in tree.change if must_be_restored(each.path) and each.path not in own]
    for each in concerned:
        _restore(tree.merged, each, slot)
    return tuple(display(each.path) for each in concerned)


def _restore(root: Path, changed: ChangedPath, slot: Slot) -> None:
    if changed.before_link is not None:
        place_link(root, changed.path, changed.before_link, slot=slot)
    elif changed.before is None:
        remove_path(root, changed.path)
    else:
        mode = 0o755 if changed.was_executable else 0o644
        place_file(root, changed.path, changed.before, slot=slot, mode=mode).close()


@contextmanager
def stage_oracle(
    files: Sequence[CapturedFile], contents: Sequence[bytes], tree: JudgedTree, *, slot: Slot
) -> Generator[Stage]:
    """Stage an oracle's files for one run.

    Raises:
        UsageError: A target is no plain path, or lies below another one.
        HostError: They cannot be written, or not be removed again.
    """
    _check(files)
    directory = slot.root / f"o{secrets.token_hex(6)}"
    with ExitStack() as stack:
        try:
            directory.mkdir(mode=0o755)
            stack.callback(_remove, directory)
            stage = _fill(directory, files, contents, tree, slot, stack)
        except OSError as problem:
            raise HostError(f"oracle in {slot.root}: {problem}; see the scratch directory's file system") from problem
        yield stage


def _check(files: Sequence[CapturedFile]) -> None:
    for file in files:
        check_target(file.target)
        above = [each.target for each in files if file.place is each.place and file is not each]
        if any(file.target == other or file.target.startswith(f"{other}/") for other in above):
            raise UsageError(f"oracle: target {file.target!r} stands at or below another one; name another")


def _fill(
    directory: Path,
    files: Sequence[CapturedFile],
    contents: Sequence[bytes],
    tree: JudgedTree,
    slot: Slot,
    stack: ExitStack,
) -> Stage:
    root = directory / "r"
    root.mkdir(mode=0o755)
    staged: dict[Path, bytes] = {}
    binds = [Bind(source=root, target=ORACLE_ROOT)]
    placed: list[PlacedFile] = []
    for position, (file, content) in enumerate(zip(files, contents, strict=True)):
        copy = root / file.target if file.place is Place.ORACLE_ROOT else directory / f"w{position}"
        _write(copy, content)
        staged[copy] = content
        if file.place is Place.WORKSPACE:
            below = place_file(tree.merged, os.fsencode(file.target), content, slot=slot)
            stack.callback(below.close)
            placed.append(below)
            binds.append(Bind(source=copy, target=target_inside(file), access=Access.READ_ONLY))
    return Stage(binds=tuple(binds), staged=staged, placed=tuple(placed))


def _write(path: Path, content: bytes) -> None:
    """Write a file that everybody may read: the sandbox, under another uid, and nobody there may write it."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o444)


def _remove(directory: Path) -> None:
    try:
        remove_tree(directory)
    except OSError as problem:
        raise HostError(f"{problem}; remove it by hand") from problem
