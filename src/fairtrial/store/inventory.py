"""The files of a results directory against what the seal and the outcomes say of them."""

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from fairtrial.store.artifacts import EntryKind, FileDigest, digest_listed_file, list_directory, walk
from fairtrial.store.attempts import read_attempt_name
from fairtrial.store.layout import INTENT, OUTCOME, TRIALS
from fairtrial.store.problems import ProblemKind, Problems

__all__ = ["Inventory"]


class Inventory:
    """Files seen so far, and what was expected of them; paths are relative to the results directory.

    Args:
        root: The results directory.
        trials: Names of the planned trials' directories.
        sealed: What the seal lists, or None for an unsealed directory.
        problems: Where findings go.

    Raises:
        OSError: A directory cannot be read.
    """

    def __init__(
        self,
        root: Path,
        *,
        trials: Collection[str],
        sealed: Mapping[str, FileDigest] | None,
        problems: Problems,
    ) -> None:
        self._root = f"{root}/"
        # Whatever is looked at is taken out: what stays was sealed and is not there.
        self._sealed = None if sealed is None else dict(sealed)
        self._problems = problems
        self._reported: set[str] = set()
        # What is listed here is a directory, and no link to one.
        self._attempts = set(self._find_attempts(trials))

    @property
    def unvisited(self) -> list[str]:
        """The attempts' directories that nobody has visited yet, in order."""
        return sorted(self._attempts)

    def visit(self, directory: str) -> bool:
        """Tell whether an attempt has a directory, the first time it is asked for."""
        if directory not in self._attempts:
            return False
        self._attempts.remove(directory)
        return True

    def is_accounted_for(self, directory: str, name: str) -> bool:
        """Tell whether a file of an attempt was reported, or will be because the seal lists it and it was not seen."""
        path = f"{directory}/{name}"
        return path in self._reported or (self._sealed is not None and path in self._sealed)

    def check_attempt(
        self,
        directory: str,
        *,
        outcome: FileDigest | None,
        artifacts: Mapping[str, FileDigest] | None,
        required: Collection[str] = (),
    ) -> None:
        """Check every file of one attempt.

        Args:
            directory: Its path; a directory that was visited.
            outcome: Digest of its `outcome.json` when that was read already.
            artifacts: What its outcome records; None when it has none, and then any file may be there.
            required: Names that must be there beside those.
        """
        found, special = self._digest_files(directory, outcome)
        if self._sealed is None:
            sealed: Mapping[str, FileDigest | None] = found
        else:
            sealed = {name: self._sealed.pop(f"{directory}/{name}", None) for name in found}
        if found == sealed and not special and _is_as_recorded(found, artifacts):
            return
        for name in sorted(special):
            self._take_sealed(f"{directory}/{name}")
            self._report(ProblemKind.NOT_A_FILE, f"{directory}/{name}", "a symbolic link or special file, not followed")
        for name, digest in sorted(found.items()):
            self._judge(f"{directory}/{name}", name, digest, in_seal=sealed[name], artifacts=artifacts)
        for name in sorted({*(artifacts or ()), *required} - {*found, *special}):
            was_known = self._take_sealed(f"{directory}/{name}") is not None or name not in required
            what = "recorded and not there" if was_known else "every attempt that counts has one"
            self._report(ProblemKind.ARTIFACT_REMOVED, f"{directory}/{name}", what)

    def _digest_files(self, directory: str, outcome: FileDigest | None) -> tuple[dict[str, FileDigest], list[str]]:
        """Digest an attempt's files; return also the names that are no regular files."""
        path = self._root + directory
        found: dict[str, FileDigest] = {}
        special: list[str] = []
        with os.scandir(path) as listing:
            for entry in listing:
                name = entry.name
                if entry.is_file(follow_symlinks=False):
                    known = outcome if name == OUTCOME else None
                    found[name] = known or digest_listed_file(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    self._digest_below(path, name, found, special)
                else:
                    special.append(name)
        return found, special

    def _digest_below(self, path: str, top: str, found: dict[str, FileDigest], special: list[str]) -> None:
        """Digest the files in a directory of an attempt: most have none, and need no walk."""
        for name, kind in walk(f"{path}/{top}", f"{top}/"):
            if kind is EntryKind.FILE:
                found[name] = digest_listed_file(f"{path}/{name}")
            elif kind is EntryKind.OTHER:
                special.append(name)

    def _take_sealed(self, path: str) -> FileDigest | None:
        return None if self._sealed is None else self._sealed.pop(path, None)

    def _judge(
        self,
        path: str,
        name: str,
        found: FileDigest,
        *,
        in_seal: FileDigest | None,
        artifacts: Mapping[str, FileDigest] | None,
    ) -> None:
        """Hold one file against its two witnesses, the seal and the outcome; report at most one thing."""
        recorded = None if artifacts is None else artifacts.get(name)
        if self._sealed is not None and in_seal is None:
            self._report(ProblemKind.ARTIFACT_ADDED, path, "not there when the directory was sealed")
        elif in_seal is not None and in_seal != found:
            if recorded == found:
                self._report(ProblemKind.SEAL_CHANGED, "seal.json", f"its digest of {path} is not the outcome's")
            else:
                self._report(ProblemKind.ARTIFACT_CHANGED, path, "not the file that was sealed")
        elif recorded is not None and recorded != found:
            self._report(ProblemKind.ARTIFACT_CHANGED, path, "not the file that its outcome records")
        elif artifacts is not None and recorded is None and name not in {INTENT, OUTCOME}:
            self._report(ProblemKind.ARTIFACT_ADDED, path, "its outcome does not record it")

    def _report(self, kind: ProblemKind, path: str, what: str) -> None:
        self._reported.add(path)
        self._problems.add(kind, path, what)

    def _find_attempts(self, trials: Collection[str]) -> Iterator[str]:
        """List the attempts' directories, and report every other name among them."""
        if not _is_real_directory(self._root + TRIALS):
            return
        for trial in list_directory(self._root + TRIALS):
            if trial.name not in trials or not trial.is_dir(follow_symlinks=False):
                self._report_foreign(trial, "belongs to no planned trial")
                continue
            for attempt in list_directory(trial.path):
                if read_attempt_name(attempt.name) is None or not attempt.is_dir(follow_symlinks=False):
                    self._report_foreign(attempt, "is no attempt")
                else:
                    yield f"{TRIALS}/{trial.name}/{attempt.name}"

    def _report_foreign(self, entry: os.DirEntry[str], what: str) -> None:
        path = entry.path.removeprefix(self._root)
        self._forget(path)
        if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
            self._report(ProblemKind.FOREIGN_FILE, path, what)
        else:
            self._report(ProblemKind.NOT_A_FILE, path, "a symbolic link or special file, not followed")

    def _forget(self, path: str) -> None:
        """Expect nothing more at or below a path that was reported."""
        sealed = self._sealed or {}
        for name in [name for name in sealed if f"{name}/".startswith(f"{path}/")]:
            del sealed[name]

    def check_rest(self, *, uncovered: Collection[str]) -> None:
        """Check everything outside `trials/` against the seal; an unsealed directory may hold any file there.

        Args:
            uncovered: Names in the root that the seal does not list.
        """
        for top in list_directory(self._root):
            if not top.is_dir(follow_symlinks=False):
                is_file = top.is_file(follow_symlinks=False)
                if not is_file or top.name not in uncovered:
                    self._check_loose(top.name, EntryKind.FILE if is_file else EntryKind.OTHER)
            elif top.name != TRIALS:
                for path, kind in walk(top.path, f"{top.name}/"):
                    self._check_loose(path, kind)

    def _check_loose(self, path: str, kind: EntryKind) -> None:
        """Check one name outside `trials/`."""
        if kind is EntryKind.OTHER:
            self._forget(path)
            self._report(ProblemKind.NOT_A_FILE, path, "a symbolic link or special file, not followed")
        elif kind is EntryKind.FILE and self._sealed is not None:
            found = digest_listed_file(self._root + path)
            self._judge(path, path, found, in_seal=self._take_sealed(path), artifacts=None)

    def report_removed(self) -> None:
        """Report what the seal lists and nobody has seen."""
        for path in sorted(self._sealed or ()):
            self._report(ProblemKind.ARTIFACT_REMOVED, path, "sealed and not there")


def _is_as_recorded(found: Mapping[str, FileDigest], artifacts: Mapping[str, FileDigest] | None) -> bool:
    """Tell whether an attempt's files are those that its outcome records, and its two brackets."""
    if artifacts is None:
        return True
    if len(found) != len(artifacts) + 2 or INTENT not in found or OUTCOME not in found:
        return False
    # Most attempts have few: a generator would take longer than the comparing.
    for name, digest in artifacts.items():  # noqa: SIM110
        if found.get(name) != digest:
            return False
    return True


def _is_real_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
