"""What a sweep with a candidate asks of those who decide on it."""

from collections.abc import Mapping
from typing import Protocol

from fairtrial.store.layout import Results
from fairtrial.sweep.bench_inputs import BenchInputs

__all__ = ["Promoter"]


class Promoter(Protocol):
    """Whoever decides on candidates: it fixes all it needs before a sweep, and decides before the seal."""

    def bind(self, inputs: BenchInputs) -> Mapping[str, object]:
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
