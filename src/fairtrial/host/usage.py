"""How much disk a tree holds, counted up to a bound."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["MOST_ENTRIES", "DiskUsage", "disk_usage"]

MOST_ENTRIES: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUsage:
    """What lies below one directory.

    Attributes:
        n_files: Regular files and links, directories not counted.
        apparent_bytes: Sum of their sizes.
        allocated_bytes: Sum of the blocks given to them and to directories.
        complete: False when counting stopped at the bound: then the figures are lower bounds.
    """

    n_files: int
    apparent_bytes: int
    allocated_bytes: int
    complete: bool

    def as_record(self) -> dict[str, object]:
        """The figures as a field of a row."""
        return {
            "n_files": self.n_files,
            "apparent_bytes": self.apparent_bytes,
            "allocated_bytes": self.allocated_bytes,
            "complete": self.complete,
        }


def disk_usage(root: Path, *, most_entries: int = MOST_ENTRIES) -> DiskUsage | None:
    """Count a tree without following links; None when it is not there."""
    if not root.is_dir():
        return None
    n_entries = n_files = apparent = allocated = 0
    waiting = [root]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                n_entries += 1
                if n_entries > most_entries:
                    return DiskUsage(
                        n_files=n_files, apparent_bytes=apparent, allocated_bytes=allocated, complete=False
                    )
                status = entry.stat(follow_symlinks=False)
                allocated += status.st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                else:
                    n_files += 1
                    apparent += status.st_size
    return DiskUsage(n_files=n_files, apparent_bytes=apparent, allocated_bytes=allocated, complete=True)
