"""Fingerprints of the files that an arm is made of, and the rule that a phase may change one artifact only."""

import fnmatch
import hashlib
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fairtrial.errors import IntegrityError
from fairtrial.workspace.change import Change, Kind
from fairtrial.workspace.tree import Tree, TreeLimitError

__all__ = ["MOST_FINGERPRINT_BYTES", "find_artifact", "fingerprint"]

MOST_FINGERPRINT_BYTES: Final = 4 << 20
_MOST_ENTRIES: Final = 10_000
_MOST_NAMED: Final = 8


def fingerprint(root: Path, below: Sequence[str]) -> str:
    """Digest all regular files at or below some paths of a tree: names, executable bits, bytes, each with its length.

    Raises:
        IntegrityError: There is a link or a special file among them, or more than can be kept.
    """
    tree = Tree(root)
    digest = hashlib.sha256()
    left_bytes = MOST_FINGERPRINT_BYTES
    try:
        found = {
            item.path: item.mode for path in below for item in tree.walk(path.encode(), most_entries=_MOST_ENTRIES)
        }
    except TreeLimitError as problem:
        raise IntegrityError(
            f"{', '.join(below)}: more than {_MOST_ENTRIES} entries; they cannot be vouched for"
        ) from problem
    for path, mode in sorted(found.items()):
        if stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            raise IntegrityError(f"{path.decode(errors='replace')}: not a regular file; it cannot be vouched for")
        content = tree.read_file(path, left_bytes + 1)
        left_bytes -= len(content)
        if left_bytes < 0:
            raise IntegrityError(
                f"{', '.join(below)}: more than {MOST_FINGERPRINT_BYTES} bytes; they cannot be vouched for"
            )
        for part in (path, b"x" if mode & stat.S_IXUSR else b"-", content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def find_artifact(change: Change, pattern: str) -> str:
    """Find the one file that a phase was to produce; nothing else may have changed.

    Args:
        change: What the phase changed.
        pattern: Where the artifact may be, such as `docs/plans/*.md`; a star does not cross a slash.

    Raises:
        IntegrityError: There is none, more than one, it is no plain file, or something else changed, with up to eight
            paths named.
    """
    if change.excess is not None:
        raise IntegrityError("the phase changed more than can be kept")
    wanted = pattern.encode().split(b"/")
    found = [entry for entry in change.entries if _matches(entry.path, wanted)]
    others = [entry.path for entry in change.entries if entry not in found]
    others += [refusal.path for refusal in change.refused]
    if others:
        named = ", ".join(path.decode(errors="replace") for path in others[:_MOST_NAMED])
        raise IntegrityError(f"the phase changed {len(others)} other paths: {named}")
    if len(found) != 1:
        raise IntegrityError(f"the phase made {len(found)} artifacts at {pattern}, not one")
    if found[0].kind is not Kind.FILE:
        raise IntegrityError(f"the artifact at {pattern} is {found[0].kind}, not a plain file")
    return found[0].path.decode()


def _matches(path: bytes, wanted: Sequence[bytes]) -> bool:
    parts = path.split(b"/")
    return len(parts) == len(wanted) and all(
        fnmatch.fnmatchcase(part, want) for part, want in zip(parts, wanted, strict=True)
    )
