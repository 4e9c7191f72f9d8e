"""The tree that every store is seeded with: always the same bytes, in text that neither compresses away nor repeats."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["NOTES", "N_SEED_FILES", "seed_digest", "seed_files", "write_seed"]

N_SEED_FILES: Final = 200
NOTES: Final = "task-notes.md"


def seed_files(n_files: int) -> Iterator[tuple[str, bytes]]:
    """README, the notes file that tasks append to, and `n_files` source files of about 1.9 kB, as (path, content)."""
    yield "README.md", b"# Seed repository\n\nMade by fairtrial; the same bytes in every trial.\n"
    yield NOTES, b"# Task notes\n\n"
    for n in range(n_files):
        words = [hashlib.sha256(f"{n}:{line}".encode()).hexdigest() for line in range(29)]
        yield f"src/part{n % 10}/module{n:04d}.txt", "".join(f"{word}\n" for word in words).encode()


def seed_digest(n_files: int) -> str:
    """sha256 over every path and content of the seed tree."""
    digest = hashlib.sha256()
    for path, content in seed_files(n_files):
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def write_seed(tree: Path, n_files: int) -> None:
    """Write the seed tree below `tree`, which must not exist."""
    for path, content in seed_files(n_files):
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
