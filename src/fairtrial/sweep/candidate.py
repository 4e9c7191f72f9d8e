"""A sweep's candidate: where its bytes come from, and where they are kept."""

from pathlib import Path
from typing import Final

from fairtrial.bench.candidate import Candidate
from fairtrial.errors import IntegrityError, UsageError
from fairtrial.store.layout import Results
from fairtrial.sweep.bench_plan import CandidateOptions
from fairtrial.workspace.overlay import read_overlay

__all__ = ["FROZEN", "PROMOTION", "read_candidate", "read_frozen"]

FROZEN: Final = "candidate"
"""Where a results directory keeps the bytes of its candidate."""
PROMOTION: Final = "promotion"
"""Where `sweep.json` holds what is fixed about the candidate."""


def read_candidate(options: CandidateOptions) -> Candidate:
    """Read a candidate from where a person keeps it.

    Raises:
        UsageError: It is not what an overlay may be.
        HostError: It cannot be read.
    """
    return Candidate(read_overlay(Path(options.overlay), options.layout), options.layout)


def read_frozen(results: Results, options: CandidateOptions) -> Candidate | None:
    """Read a candidate from where its sweep keeps it; None when it was killed before it could.

    Raises:
        IntegrityError: It is no overlay any more.
        HostError: It cannot be read.
    """
    frozen = results.root.resolve() / FROZEN
    if not frozen.exists():
        return None
    try:
        return Candidate(read_overlay(frozen, options.layout), options.layout)
    except UsageError as problem:
        raise IntegrityError(f"{frozen}: is not what was frozen ({problem})") from problem
