"""The rule that a phase may change one artifact only."""

import fnmatch
from collections.abc import Sequence
from typing import Final

from fairtrial.errors import IntegrityError
from fairtrial.workspace.change import Change, Kind

__all__ = ["find_artifact"]

_MOST_NAMED: Final = 8


def find_artifact(change: Change, pattern: str) -> str:
    """Find the one file that a phase was to produce; nothing else may have changed.

    Args:
        change: What the phase changed.
        pattern: Where the artifact may be, such as `docs/plans/*.md`; a star does not cross a slash.

    Raises:
        IntegrityError: There is none, more than one, it is no plain file, its name is no text, or something else
            changed, with up to eight paths named.
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
    try:
        return found[0].path.decode()
    except UnicodeDecodeError:
        shown = found[0].path.decode(errors="backslashreplace")
        raise IntegrityError(f"the artifact's name is no text: {shown}") from None


def _matches(path: bytes, wanted: Sequence[bytes]) -> bool:
    parts = path.split(b"/")
    return len(parts) == len(wanted) and all(
        fnmatch.fnmatchcase(part, want) for part, want in zip(parts, wanted, strict=True)
    )
