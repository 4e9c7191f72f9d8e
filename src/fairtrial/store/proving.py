"""What both halves of a proof go by: doubt ends it, and what one half reads of files the other must have found."""

import hashlib
from collections.abc import Mapping

from fairtrial.store.artifacts import FileDigest

__all__ = ["DoubtError", "Endings", "demand"]


class DoubtError(Exception):
    """Something is not as it was sealed or recorded."""


class Endings:
    """The attempts with an outcome, in any order, and the other files that it records."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def add(self, directory: str, artifacts: Mapping[str, FileDigest]) -> None:
        """Add one; the artifacts are its files but the outcome and the intent, by path relative to the directory."""
        line = f"{directory} {sorted(artifacts.items())}"
        self._lines.append(hashlib.sha256(line.encode(errors="surrogatepass")).digest())

    def digest(self) -> str:
        """Digest them: equal when the outcomes record what is there."""
        return hashlib.sha256(b"".join(sorted(self._lines))).hexdigest()


def demand(holds: bool) -> None:  # noqa: FBT001 - the condition itself
    """Go on only when something holds.

    Raises:
        DoubtError: It does not.
    """
    if not holds:
        raise DoubtError
