"""The mount table: which file system a path lies on, and what is mounted below it."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FileSystem", "Mount", "filesystem_of", "parse_mounts", "read_mounts"]

_NETWORK_TYPES = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3"}
)
# Their values are paths, long and different in each sweep: they say nothing of how the file system behaves.
_PATH_OPTIONS = ("lowerdir", "upperdir", "workdir")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of /proc/self/mountinfo.

    Attributes:
        mount_id: The kernel's number for it.
        device: major:minor of the mounted file system.
        mount_point: Where it is mounted.
        type: File system type.
        options: Options of the mount, then of the file system, each once, without those that hold paths.
    """

    mount_id: int
    device: str
    mount_point: Path
    type: str
    options: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """What a directory's speed and semantics depend on.

    Attributes:
        type: File system type, such as ext4.
        options: Mount and file system options, comma separated.
        is_network: It lives on another machine: locks, fsync and rename cannot be relied on.
    """

    type: str
    options: str
    is_network: bool


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Parse /proc/self/mountinfo."""
    return tuple(_parse_mount(line) for line in text.splitlines())


def _parse_mount(line: str) -> Mount:
    # A varying number of optional fields stands before the lone dash.
    before, _, after = line.partition(" - ")
    mount_id, _parent, device, _root, mount_point, mount_options = before.split(" ")[:6]
    fs_type, _source, *fs_options = after.split(" ")
    options = dict.fromkeys(",".join([mount_options, *fs_options]).split(","))
    kept = [option for option in options if option and option.partition("=")[0].rstrip("+") not in _PATH_OPTIONS]
    return Mount(
        mount_id=int(mount_id),
        device=device,
        mount_point=Path(_unescape(mount_point)),
        type=fs_type,
        options=",".join(kept),
    )


def _unescape(text: str) -> str:
    """Undo the kernel's octal escapes of space, tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def read_mounts() -> tuple[Mount, ...]:
    """Read the mount table of our mount namespace."""
    return parse_mounts(os.fsdecode(Path("/proc/self/mountinfo").read_bytes()))


def filesystem_of(path: Path, *, mounts: Sequence[Mount] | None = None) -> FileSystem:
    """Find the file system that `path` lies on; a path that does not exist yet counts as its nearest existing parent's.

    Args:
        path: Any path.
        mounts: The mount table; None = read it.
    """
    real = path.resolve()
    table = read_mounts() if mounts is None else mounts
    above = [mount for mount in table if real.is_relative_to(mount.mount_point)]
    if not above:  # as in a chroot whose root is no mount point
        return FileSystem(type="unknown", options="", is_network=False)
    # Of mounts on one point the last hides the others.
    mount = max(enumerate(above), key=lambda item: (len(item[1].mount_point.parts), item[0]))[1]
    return FileSystem(type=mount.type, options=mount.options, is_network=mount.type in _NETWORK_TYPES)
