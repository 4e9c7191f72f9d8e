"""Where everything of a sweep lies: paths as a type, and the results directory's making, opening and holding.

What stands in the files is decided by the other modules of this package.
"""

import errno
import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from fairtrial.errors import FairtrialError, HostError, UsageError
from fairtrial.host.clock import stamp
from fairtrial.host.files import TEMPORARY, fsync_directory
from fairtrial.host.lock import LockHold, acquire_lock

__all__ = [
    "INTENT",
    "OUTCOME",
    "TRIALS",
    "Results",
    "create_results",
    "explain_failure",
    "explain_refusal",
    "hold",
    "open_results",
    "require_free",
    "trial_name",
]

INTENT = "intent.json"
OUTCOME = "outcome.json"
TRIALS = "trials"
NEVER_BEGAN: Final = (
    "no sweep has begun in it: unless one is just starting, it was killed before that, and nothing is lost; remove the"
    " directory and start again"
)


def trial_name(key: str) -> str:
    """Name of a trial's directory: the first 16 hex digits of its key's SHA-256."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The paths of one results directory.

        <root>/                       results/loop-20261129T130100Z, held (flock) by the live sweep
          sweep.json                  written first: inputs, digests, versions, machine, plan
          results.jsonl               the journal: one row a line, chained
          events.jsonl                pauses, made when there is one
          trials/
            <sha256(key), 16 hex>/
              <attempt>/
                intent.json           before the trial may spend
                outcome.json          ends the attempt
                ...                   its artifacts: transcript, wire log, patch
          set-aside/                  torn tails and broken outcomes, kept and named
          report.md report.html report.json promotion.json
          seal.json                   digests of everything above; its own is printed at the end
          reserve                     4 MiB given up for the last rows on a full disk

    Attributes:
        root: The results directory.
    """

    root: Path

    @property
    def sweep_json(self) -> Path:
        """Inputs and plan, written first."""
        return self.root / "sweep.json"

    @property
    def results_jsonl(self) -> Path:
        """The journal."""
        return self.root / "results.jsonl"

    @property
    def events_jsonl(self) -> Path:
        """What happened beside the trials."""
        return self.root / "events.jsonl"

    @property
    def trials(self) -> Path:
        """Directories of the trials."""
        return self.root / TRIALS

    @property
    def report_md(self) -> Path:
        """The report for people."""
        return self.root / "report.md"

    @property
    def report_html(self) -> Path:
        """The report for a browser."""
        return self.root / "report.html"

    @property
    def report_json(self) -> Path:
        """The report for programs."""
        return self.root / "report.json"

    @property
    def promotion_json(self) -> Path:
        """The decision to promote."""
        return self.root / "promotion.json"

    @property
    def seal_json(self) -> Path:
        """Digests of all evidence."""
        return self.root / "seal.json"

    @property
    def set_aside(self) -> Path:
        """What was damaged and is kept."""
        return self.root / "set-aside"

    @property
    def reserve(self) -> Path:
        """The space kept for the last rows."""
        return self.root / "reserve"

    def trial_dir(self, key: str) -> Path:
        """Directory of all attempts at one trial."""
        return self.trials / trial_name(key)

    def attempt_dir(self, key: str, attempt: int) -> Path:
        """Directory of one attempt."""
        return self.trial_dir(key) / str(attempt)


def create_results(out: Path | None, *, lane: str, now: datetime, base: Path) -> Results:
    """Make a results directory that nobody else uses.

    Args:
        out: The directory itself, absent or empty; None for `<base>/<lane>-<stamp>`, with -2, -3, … in the same second.
        lane: First part of the default name.
        now: The moment in the default name.
        base: Where default directories are made.

    Raises:
        UsageError: `out` is in use or may not be written.
        HostError: The file system refuses.
    """
    root = base if out is None else out
    try:
        if out is None:
            base.mkdir(parents=True, exist_ok=True)
            root = _create_first_free(base, f"{lane}-{stamp(now)}")
        else:
            _claim(out)
        results = Results(root=root)
        results.trials.mkdir()
        fsync_directory(results.root)
        fsync_directory(results.root.parent)
    except OSError as error:
        raise explain_refusal(root, error) from error
    return results


def require_free(out: Path | None) -> None:
    """Refuse what `create_results` would refuse of `out`, and make nothing.

    Raises:
        UsageError: It is in use or may not be written.
        HostError: The file system refuses.
    """
    if out is None:
        return
    try:
        if os.path.lexists(out):
            _require_empty(out)
            there = out
        else:
            there = next(each for each in out.absolute().parents if os.path.lexists(each))
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise explain_refusal(out, error) from error


def _create_first_free(base: Path, name: str) -> Path:
    root, number = base / name, 1
    while True:
        try:
            root.mkdir()
        except FileExistsError:
            number += 1
            root = base / f"{name}-{number}"
        else:
            return root


def _claim(out: Path) -> None:
    with suppress(FileExistsError):
        out.mkdir(parents=True)
    _require_empty(out)


def _require_empty(out: Path) -> None:
    if not out.is_dir():
        message = f"{out}: not a directory; name a new or empty directory with --out"
        raise UsageError(message)
    if _never_began(out):
        raise UsageError(f"{out}: {NEVER_BEGAN}")
    if any(out.iterdir()):
        message = (
            f"{out}: is not empty; name a new or empty directory, or finish the sweep in it with `fairtrial resume`"
        )
        raise UsageError(message)


def _never_began(path: Path) -> bool:
    """All that is there is what `create_results` makes, and what was half written when it was killed."""
    names = {each.name for each in path.iterdir() if not each.name.startswith(TEMPORARY)}
    return names == {TRIALS} and not any((path / TRIALS).iterdir())


def explain_refusal(path: Path, error: OSError) -> FairtrialError:
    """Say in one line why a new results directory cannot be made, and the remedy."""
    match error.errno:
        case errno.EACCES | errno.EPERM | errno.EROFS | errno.EEXIST | errno.ENOTDIR | errno.ENAMETOOLONG:
            return UsageError(
                f"{path}: cannot be written ({error.strerror}); name another results directory with --out"
            )
        case errno.ENOSPC | errno.EDQUOT:
            return HostError(
                f"{path}: no space left ({error.strerror}); free some, or use another file system with --out"
            )
        case _:
            return HostError(f"{path}: {error.strerror}; use another file system for the results with --out")


def explain_failure(path: Path, error: OSError) -> HostError:
    """Say in one line why a results directory that is in use cannot be read or written, and the remedy."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return HostError(f"{path}: no space left ({error.strerror}); free some, then `fairtrial resume {path}`")
    where = error.filename or path
    return HostError(f"{where}: {error.strerror}; make it writable again, then `fairtrial resume {path}`")


def open_results(path: Path) -> Results:
    """Open an existing results directory.

    Raises:
        UsageError: It is none.
    """
    results = Results(root=path)
    if not path.is_dir():
        message = (
            f"{path}: not a results directory; name one that fairtrial made, such as results/loop-20261129T130100Z"
        )
        raise UsageError(message)
    if not os.path.lexists(results.sweep_json):
        if _never_began(path):
            raise UsageError(f"{path}: {NEVER_BEGAN}")
        message = f"{path}: not a results directory (it has no sweep.json); name one that fairtrial made"
        raise UsageError(message)
    return results


def hold(results: Results) -> LockHold:
    """Hold the directory for a live sweep, or find that another one does.

    Raises:
        UsageError: A live sweep holds it; the message names its process.
    """
    try:
        return acquire_lock(results.root, wait_s=0.0)
    except HostError as error:
        raise UsageError(f"a live sweep writes there: {error}") from error
