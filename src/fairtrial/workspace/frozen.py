"""A written layer as one file: workers under other ids get the same bytes, and set-up runs once, not once a slot."""

import hashlib
import secrets
import stat
import tarfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.files import remove_tree
from fairtrial.host.process import run
from fairtrial.host.slot import Slot, find_system_program
from fairtrial.workspace.layers import Base, Layer

__all__ = ["content_of_layer", "load_layer", "save_layer"]

_TIMEOUT_S: Final = 1800.0
# What an overlay keeps of a directory that hides the one below it; whiteouts are device files, which tar knows.
_MARKS: Final = ("--xattrs", "--xattrs-include=user.overlay.*")


def save_layer(layer: Layer, *, slot: Slot) -> Path:
    """Pack what a layer wrote (all of it, where layers are copies) into a new file in the slot's directory.

    Nothing may be writing the layer. The caller moves the file to where other workers can read it.

    Raises:
        HostError: It cannot be packed; the message says what.
    """
    archive = slot.root / f"a{secrets.token_hex(6)}"
    written = layer.merged if layer.upper is None else layer.upper
    _tar(
        ["--create", "--sort=name", "--numeric-owner", *_MARKS, f"--file={archive}", f"--directory={written}", "."],
        slot,
    )
    archive.chmod(0o644)
    return archive


def content_of_layer(archive: Path) -> str:
    """Digest of what a saved layer holds: names, kinds, executable bits, links and bytes, but no times and owners.

    `__pycache__` is left out, since what Python writes there tells the time.

    Raises:
        HostError: It cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with tarfile.open(archive, errors="surrogateescape") as saved:
            for member in saved:
                if "__pycache__" in member.name.split("/"):
                    continue
                kind = member.type + (b"x" if member.mode & stat.S_IXUSR else b"-")
                content = _content_digest(saved, member) if member.isreg() else b""
                names = (member.name.encode(errors="surrogateescape"), member.linkname.encode(errors="surrogateescape"))
                for part in (*names, kind, content):
                    digest.update(len(part).to_bytes(8, "big") + part)
    except (OSError, tarfile.TarError) as problem:
        raise HostError(f"a frozen layer: {archive}: {problem}; see the scratch directory") from problem
    return digest.hexdigest()


def _content_digest(saved: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    digest = hashlib.sha256()
    file = saved.extractfile(member)
    while file is not None and (chunk := file.read(1 << 20)):
        digest.update(chunk)
    return digest.digest()


@contextmanager
def load_layer(archive: Path, base: Base, *, slot: Slot) -> Generator[Base]:
    """Unpack a saved layer as the uppermost tree over the base that it was saved from; removed at the end of the block.

    Raises:
        HostError: It cannot be unpacked.
    """
    tree = slot.root / f"f{secrets.token_hex(6)}"
    tree.mkdir(mode=0o755)
    try:
        slot.give(tree)
        owner = ("--no-same-owner", "--same-permissions", "--delay-directory-restore")
        _tar(["--extract", *owner, *_MARKS, f"--file={archive}", f"--directory={tree}"], slot)
        yield Base(trees=(tree, *base.trees) if slot.mounts else (tree,))
    finally:
        remove_tree(tree)


def _tar(arguments: Sequence[str], slot: Slot) -> None:
    command = (find_system_program("tar", "tar"), *arguments)
    result = run(slot.argv(command), env={"LC_ALL": "C"}, timeout_s=_TIMEOUT_S)
    if not result.ok:
        said = result.stderr.tail.decode(errors="replace").strip().splitlines()
        raise HostError(f"a frozen layer: tar: {said[0] if said else result.detail}; see the scratch directory")
