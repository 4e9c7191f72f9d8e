"""Showing what lies on the host to sandboxes without telling where on the host it lies.

A mount table names the path at which each mount begins in its file system: of a program below a home, whose that is.
An overlay is a file system of its own and begins at its root. Nothing is copied, and one mount serves all trials.
"""

import os
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from fairtrial.host.kernel import bind_mount, detach_mount, mount
from fairtrial.host.mounts import read_mounts
from fairtrial.host.slot import Slot

__all__ = ["home_above", "show_unplaced"]

_HANDLE: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def show_unplaced(source: Path, slot: Slot, held: ExitStack) -> Path:
    """Show a file or a directory at another path, from which nothing tells the first; valid while `held` is open.

    It is the path itself where that cannot be: where the slot mounts no overlays, where the kernel makes none over this
    file system, and where something is mounted in the directory, which would not be seen through an overlay.
    """
    top = source if source.is_dir() else source.parent
    if not slot.mounts or os.path.realpath(source) != str(source) or not source.exists() or _has_mounts(source, top):
        return source
    with ExitStack() as stack:
        try:
            point = _overlay(top, slot, stack)
            if top != source:
                point = _bind(point / source.name, slot, stack)
        except OSError:
            return source
        held.push(stack.pop_all())
    return point


def home_above(path: Path) -> Path | None:
    """The home directory that a path lies in, whose name may be its user's; None for none."""
    own = Path(os.path.expanduser("~"))  # noqa: PTH111 - where nobody has a home the other one raises
    others = [each for each in path.parents if each.parent == Path("/home")]
    homes = [home for home in (own, *others) if home != Path("/") and path.is_relative_to(home)]
    return homes[0] if homes else None


def _has_mounts(source: Path, top: Path) -> bool:
    points = (each.mount_point for each in read_mounts())
    return any(point != top and point.is_relative_to(source) for point in points)


def _overlay(top: Path, slot: Slot, stack: ExitStack) -> Path:
    """Mount it over an empty directory, both by descriptors: the mount table shows these options as they are."""
    point, empty = (slot.root / f"{kind}{secrets.token_hex(6)}" for kind in "pe")
    for path in (point, empty):
        path.mkdir(mode=0o700)
        stack.callback(path.rmdir)
    with ExitStack() as opened:
        handles = [os.open(path, _HANDLE) for path in (top, empty)]
        for handle in handles:
            opened.callback(os.close, handle)
        lower = ":".join(f"/proc/self/fd/{handle}" for handle in handles)
        mount("overlay", point, f"lowerdir={lower},userxattr")
    stack.callback(detach_mount, point)
    return point


def _bind(file: Path, slot: Slot, stack: ExitStack) -> Path:
    """Show one file of it, on the way to which nothing can be closed to the slot's uid."""
    point = slot.root / f"p{secrets.token_hex(6)}"
    point.touch()
    stack.callback(point.unlink)
    bind_mount(file, point)
    stack.callback(detach_mount, point)
    return point
