"""Tokens in four disjoint buckets, whatever a provider calls them, and sums that never make unknown into zero."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Final

__all__ = ["NOTHING_USED", "UNKNOWN_USAGE", "TokenUsage", "at_least", "sum_usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens of one reply, or of a sum of replies. None in any place means unknown.

    The four buckets are disjoint: their sum is everything that was read and written.

    Attributes:
        uncached_input: Input that came from no cache and went into none.
        cache_write: Input that was written to the provider's cache.
        cache_read: Input that was read from the provider's cache.
        output: Everything the model wrote, reasoning included.
        reasoning: The part of `output` that was reasoning; None where the provider does not tell.
        cache_write_1h: The part of `cache_write` that is kept for an hour, which has a price of its own; None where the
            provider does not tell.
        is_lower_bound: At least this much was used: a stream broke, or a sum leaves out what is unknown.
    """

    uncached_input: int | None
    cache_write: int | None
    cache_read: int | None
    output: int | None
    reasoning: int | None = None
    cache_write_1h: int | None = None
    is_lower_bound: bool = False

    def __post_init__(self) -> None:
        for name in _COUNTS:
            count = getattr(self, name)
            if count is not None and count < 0:
                message = f"{name} is {count}; tokens cannot be fewer than none"
                raise ValueError(message)

    @property
    def total(self) -> int | None:
        """All four buckets; None when any is unknown."""
        counts = [count for name in _BUCKETS if (count := getattr(self, name)) is not None]
        return sum(counts) if len(counts) == len(_BUCKETS) else None


_COUNTS: Final = tuple(each.name for each in fields(TokenUsage) if each.name != "is_lower_bound")
_BUCKETS: Final = ("uncached_input", "cache_write", "cache_read", "output")

NOTHING_USED: Final = TokenUsage(uncached_input=0, cache_write=0, cache_read=0, output=0, reasoning=0, cache_write_1h=0)
"""No reply, no tokens: the sum of nothing."""

UNKNOWN_USAGE: Final = TokenUsage(uncached_input=None, cache_write=None, cache_read=None, output=None)
"""A reply that did not say."""


def sum_usage(usages: Iterable[TokenUsage | None]) -> TokenUsage:
    """Add usages; what is unknown in one (None: all of it) is unknown in the sum."""
    found = [UNKNOWN_USAGE if usage is None else usage for usage in usages]
    sums: dict[str, int | None] = {}
    for name in _COUNTS:
        counts = [getattr(usage, name) for usage in found]
        sums[name] = None if None in counts else sum(counts)
    return replace(NOTHING_USED, **sums, is_lower_bound=any(usage.is_lower_bound for usage in found))


def at_least(usages: Iterable[TokenUsage | None]) -> TokenUsage:
    """Add what is known; the sum is marked as a lower bound if anything in the four buckets was left out.

    This is what has been spent at least: what budgets compare. `reasoning` and `cache_write_1h` stay None if any is.
    """
    found = [UNKNOWN_USAGE if usage is None else usage for usage in usages]
    exact = sum_usage(found)
    sums = {name: sum(getattr(usage, name) or 0 for usage in found) for name in _BUCKETS}
    return replace(exact, **sums, is_lower_bound=exact.is_lower_bound or exact.total is None)
