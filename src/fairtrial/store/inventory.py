"""The files of a results directory against what the seal and the outcomes say of them."""

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from fairtrial.store.artifacts import Entry, EntryKind, FileDigest, digest_file, list_directory, walk
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
        self._expected = None if sealed is None else dict(sealed)
        self._problems = problems
        self._changed: set[str] = set()
        # A dictionary for its order. What is listed here is a directory, and no link to one.
        self._attempts = dict.fromkeys(self._find_attempts(trials))

    @property
    def unvisited(self) -> list[str]:
        """The attempts' directories that nobody has visited yet, in order."""
        return list(self._attempts)

    def visit(self, directory: str) -> bool:
        """Tell whether an attempt has a directory, the first time it is asked for."""
        if directory not in self._attempts:
            return False
        del self._attempts[directory]
        return True

    def is_expected(self, relative: str) -> bool:
        """Tell whether the seal lists a file that was not seen yet."""
        return self._expected is not None and relative in self._expected

    def is_changed(self, relative: str) -> bool:
        """Tell whether a file was reported as changed or added."""
        return relative in self._changed

    def check_attempt(
        self, directory: str, *, outcome: FileDigest | None, artifacts: Mapping[str, FileDigest] | None
    ) -> None:
        """Check every file of one attempt.

        Args:
            directory: Its path; a directory that was visited.
            outcome: Digest of its `outcome.json` when that was read already.
            artifacts: What its outcome records; None when it has none, and then any file may be there.
        """
        found: set[str] = set()
        for name, kind in walk(self._root + directory):
            if kind is EntryKind.DIRECTORY:
                continue
            found.add(name)
            relative = f"{directory}/{name}"
            digest = outcome if name == OUTCOME and outcome is not None else self._digest(relative, kind)
            if digest is not None:
                recorded = None if artifacts is None else artifacts.get(name)
                is_listed = artifacts is None or recorded is not None or name in {INTENT, OUTCOME}
                self._compare(relative, digest, recorded=recorded, is_listed=is_listed)
        for name in () if artifacts is None else (INTENT, *artifacts):
            if name not in found and not self.is_expected(f"{directory}/{name}"):
                self._problems.add(ProblemKind.ARTIFACT_REMOVED, f"{directory}/{name}", "recorded and not there")

    def _digest(self, relative: str, kind: EntryKind) -> FileDigest | None:
        """Digest a file, or report that it is none."""
        if kind is EntryKind.FILE:
            return digest_file(self._root + relative)
        self._forget(relative)
        self._problems.add(ProblemKind.NOT_A_FILE, relative, "a symbolic link or special file, not followed")
        return None

    def _compare(self, relative: str, digest: FileDigest, *, recorded: FileDigest | None, is_listed: bool) -> None:
        problem = self._problems.add
        if self._expected is not None:
            sealed = self._expected.pop(relative, None)
            if sealed is None:
                self._changed.add(relative)
                problem(ProblemKind.ARTIFACT_ADDED, relative, "not there when the directory was sealed")
                return
            if sealed != digest:
                self._changed.add(relative)
                if recorded == digest:
                    problem(ProblemKind.SEAL_CHANGED, "seal.json", f"its digest of {relative} is not the outcome's")
                else:
                    problem(ProblemKind.ARTIFACT_CHANGED, relative, "not the file that was sealed")
                return
        if recorded is not None and recorded != digest:
            self._changed.add(relative)
            problem(ProblemKind.ARTIFACT_CHANGED, relative, "not the file that its outcome records")
        elif not is_listed:
            problem(ProblemKind.ARTIFACT_ADDED, relative, "its outcome does not record it")

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

    def check_rest(self, *, uncovered: Collection[str]) -> None:
        """Check everything outside `trials/` against the seal; an unsealed directory may hold any file there.

        Args:
            uncovered: Names in the root that the seal does not list.
        """
        for top in list_directory(self._root):
            if not top.is_dir(follow_symlinks=False):
                is_file = top.is_file(follow_symlinks=False)
                if not is_file or top.name not in uncovered:
                    self._check_loose(Entry(top.name, EntryKind.FILE if is_file else EntryKind.OTHER))
            elif top.name != TRIALS:
                for entry in walk(top.path, f"{top.name}/"):
                    self._check_loose(entry)

    def _check_loose(self, entry: Entry) -> None:
        """Check one name outside `trials/`."""
        if entry.kind is EntryKind.OTHER or (entry.kind is EntryKind.FILE and self._expected is not None):
            digest = self._digest(entry.relative, entry.kind)
            if digest is not None:
                self._compare(entry.relative, digest, recorded=None, is_listed=True)

    def report_removed(self) -> None:
        """Report what the seal lists and nobody has seen."""
        for relative in sorted(self._expected or ()):
            self._problems.add(ProblemKind.ARTIFACT_REMOVED, relative, "sealed and not there")

    def _report_foreign(self, entry: os.DirEntry[str], what: str) -> None:
        relative = entry.path.removeprefix(self._root)
        self._forget(relative)
        if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
            self._problems.add(ProblemKind.FOREIGN_FILE, relative, what)
        else:
            self._problems.add(ProblemKind.NOT_A_FILE, relative, "a symbolic link or special file, not followed")

    def _forget(self, relative: str) -> None:
        """Expect nothing more at or below a path that was reported."""
        if self._expected is not None:
            self._expected = {
                name: digest
                for name, digest in self._expected.items()
                if name != relative and not name.startswith(f"{relative}/")
            }


def _is_real_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
