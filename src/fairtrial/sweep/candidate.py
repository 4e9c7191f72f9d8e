"""What a sweep with a candidate asks of those who decide on it, and where the candidate's bytes are kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from fairtrial.bench.candidate import Candidate
from fairtrial.errors import IntegrityError, UsageError
from fairtrial.store.layout import Results
from fairtrial.sweep.bench_plan import CandidateOptions
from fairtrial.workspace.overlay import read_overlay

if TYPE_CHECKING:
    from fairtrial.sweep.bench_inputs import BenchInputs

__all__ = ["FROZEN", "PROMOTION", "Promoter", "read_candidate", "read_frozen"]

FROZEN: Final = "candidate"
"""Where a results directory keeps the bytes of its candidate."""
PROMOTION: Final = "promotion"
"""Where `sweep.json` holds what is fixed about the candidate."""


class Promoter(Protocol):
    """Whoever decides on candidates: it fixes all it needs before a sweep, and decides before the seal."""

    def bind(self, inputs: "BenchInputs") -> Mapping[str, object]:
        """Fix everything about the candidate, as `sweep.json` will hold it; nothing is spent or made yet.

        Raises:
            UsageError: No decision could come of this sweep.
            HostError: The project cannot be read.
        """
        ...

    def conclude(self, results: Results, *, complete: bool) -> None:
        """Decide, and write it down; all rows are written and nothing is sealed.

        Args:
            results: The sweep's directory.
            complete: The sweep came to its end.

        Raises:
            IntegrityError: A row cannot be believed.
        """
        ...


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
