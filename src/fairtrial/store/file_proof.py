"""Proving that the files of a sealed directory are those that were sealed, and those that the outcomes record.

Nothing is explained here: at the first doubt it is over, and `audit` looks again.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from fairtrial.errors import FairtrialError
from fairtrial.store.artifacts import (
    EntryKind,
    FileDigest,
    NotRegularError,
    digest_listed_file,
    list_directory,
    walk,
)
from fairtrial.store.attempts import read_attempt_name
from fairtrial.store.layout import INTENT, OUTCOME, TRIALS, Results
from fairtrial.store.proving import DoubtError, Endings, demand
from fairtrial.store.seal import Seal, read_seal, uncovered_names
from fairtrial.store.sweep_file import SweepFile

__all__ = ["FileProof", "prove_files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProof:
    """What the seal says, whose list of files is proven.

    Attributes:
        seal_digest: SHA-256 of `seal.json` in hex.
        sweep: Id of the sweep that it seals.
        sweep_json: Digest of `sweep.json`, in hex.
        chain_head: Digest of the journal's last line, in hex.
        n_rows: Rows in the journal.
        n_directories: The attempts' directories.
        endings: Digest of what the outcomes must record.
    """

    seal_digest: str
    sweep: str
    sweep_json: str
    chain_head: str
    n_rows: int
    n_directories: int
    endings: str


def prove_files(results: Results, sweep: SweepFile) -> FileProof | None:
    """Prove them; None when there is no seal, or anything is not as it should be."""
    try:
        seal = read_seal(results)
        return None if seal is None else _prove(results, sweep, seal)
    except (DoubtError, FairtrialError, NotRegularError, OSError):
        return None


def _prove(results: Results, sweep: SweepFile, seal: Seal) -> FileProof:
    # Whatever is found is taken out: what stays was sealed and is not there.
    sealed = seal.artifacts
    endings = Endings()
    n_directories = 0
    for directory in _find_attempts(results, sweep):
        n_directories += 1
        _prove_attempt(f"{results.root}/{directory}", directory, sealed, endings)
    for path in _others(results):
        demand(sealed.pop(path, None) == digest_listed_file(f"{results.root}/{path}"))
    demand(not sealed)
    return FileProof(
        seal_digest=seal.digest,
        sweep=seal.sweep,
        sweep_json=seal.sweep_json,
        chain_head=seal.chain_head,
        n_rows=seal.n_rows,
        n_directories=n_directories,
        endings=endings.digest(),
    )


def _find_attempts(results: Results, sweep: SweepFile) -> Iterator[str]:
    """List the attempts' directories; nothing else may be among them."""
    planned = frozenset(sweep.trial_names)
    for trial in list_directory(results.trials):
        demand(trial.name in planned and trial.is_dir(follow_symlinks=False))
        with os.scandir(trial.path) as attempts:
            for attempt in attempts:
                demand(read_attempt_name(attempt.name) is not None and attempt.is_dir(follow_symlinks=False))
                yield f"{TRIALS}/{trial.name}/{attempt.name}"


def _prove_attempt(path: str, directory: str, sealed: dict[str, FileDigest], endings: Endings) -> None:
    """Prove an attempt's files, and note what its outcome must record."""
    found: dict[str, FileDigest] = {}
    for name in _list_files(path):
        digest = found[name] = digest_listed_file(f"{path}/{name}")
        demand(sealed.pop(f"{directory}/{name}", None) == digest)
    if found.pop(OUTCOME, None) is not None:
        demand(found.pop(INTENT, None) is not None)
        endings.add(directory, found)


def _list_files(directory: str) -> Iterator[str]:
    """List the files of an attempt: most have no directories, and need no walk."""
    with os.scandir(directory) as listing:
        for entry in listing:
            if entry.is_file(follow_symlinks=False):
                yield entry.name
            else:
                demand(entry.is_dir(follow_symlinks=False))
                yield from _walk_files(entry.path, f"{entry.name}/")


def _walk_files(directory: str, prefix: str) -> Iterator[str]:
    for path, kind in walk(directory, prefix):
        demand(kind is not EntryKind.OTHER)
        if kind is EntryKind.FILE:
            yield path


def _others(results: Results) -> Iterator[str]:
    """Name every file outside `trials/` that a seal must list."""
    uncovered = uncovered_names(results)
    for top in list_directory(results.root):
        if top.is_dir(follow_symlinks=False):
            if top.name != TRIALS:
                yield from _walk_files(top.path, f"{top.name}/")
        else:
            demand(top.is_file(follow_symlinks=False))
            if top.name not in uncovered:
                yield top.name
