"""A share of a results directory's trials, so that several processes can prove it together."""

from dataclasses import dataclass

from fairtrial.store.layout import TRIALS

__all__ = ["WHOLE", "Part"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of some parts; every name belongs to one of them, whatever it is.

    Attributes:
        number: From 0. The first part has all that lies outside the trials' directories too.
        n_parts: How many there are.
    """

    number: int
    n_parts: int

    @property
    def is_first(self) -> bool:
        """It has what belongs to no trial."""
        return self.number == 0

    def has_trial(self, name: str) -> bool:
        """Tell whether it has the trial whose directory has this name."""
        return ord(name[-1]) % self.n_parts == self.number

    def has_path(self, path: str) -> bool:
        """Tell whether it has a file; the path is relative to the results directory."""
        top, _, below = path.partition("/")
        return self.has_trial(below.partition("/")[0]) if top == TRIALS and below else self.is_first


WHOLE = Part(number=0, n_parts=1)
