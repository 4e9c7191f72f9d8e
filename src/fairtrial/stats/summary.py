"""Medians, sums, spreads and percentages in which an unknown stays unknown.

Every function takes None for "not measured" and gives None as soon as one of its inputs was not measured: a figure
computed from the measured half of the data would look like a figure of all of it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Spread", "median", "percent_saved", "spread", "total"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far two series that should be equal lie apart, pair by pair.

    Attributes:
        n_pairs: Pairs that were given.
        largest: Largest absolute difference; None without pairs or with an unmeasured side.
        median: Median absolute difference; None likewise.
    """

    n_pairs: int
    largest: float | None
    median: float | None


def median(values: Iterable[float | None]) -> float | None:
    """Give the middle value, or the mean of the two middle ones; None when there is none or one is unmeasured."""
    known = _all_known(values)
    if not known:
        return None
    known.sort()
    middle = len(known) // 2
    return known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2


def total(values: Iterable[float | None]) -> float | None:
    """Give the sum; None when there is nothing to sum or one value is unmeasured. Integers stay integers."""
    known = _all_known(values)
    if not known:
        return None
    return sum(known) if all(isinstance(value, int) for value in known) else math.fsum(known)


def percent_saved(base: float | None, value: float | None) -> float | None:
    """Give by how many percent `value` lies below `base`, to one decimal; negative when it lies above.

    None when either is unmeasured, when `base` is 0, and when the quotient exceeds what a float holds.
    """
    if base is None or value is None or base == 0:
        return None
    percent = round(100 * (base - value) / base, 1)
    return percent if math.isfinite(percent) else None


def spread(pairs: Iterable[tuple[float | None, float | None]]) -> Spread:
    """Give the largest and the median absolute difference over pairs."""
    differences = [None if a is None or b is None else abs(a - b) for a, b in pairs]
    known = _all_known(differences)
    return Spread(n_pairs=len(differences), largest=max(known) if known else None, median=median(differences))


def _all_known(values: Iterable[float | None]) -> list[float]:
    """Give the values as a list, or an empty one when any of them is unmeasured."""
    known: list[float] = []
    for value in values:
        if value is None:
            return []
        known.append(value)
    return known
