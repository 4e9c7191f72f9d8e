"""Prices of common requests without the price table's machinery, which takes most of a millisecond for each request.

Below a size, most models cost so much a token. Whether one does is tried out on the table itself, at both ends of that
range; then a request is priced by multiplication, exactly as the table would. Any other request is left to the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Final

from fairtrial.gateway.price import NO_CONTEXT, Price, price_request, special_terms
from fairtrial.model.usage import TokenUsage

__all__ = ["price_quickly"]

_MOST_TOKENS: Final = 100_000
"""Below the sizes at which long contexts become dearer; a model that has such a size below is left to the table."""

_COUNTS: Final = ("uncached_input", "cache_write", "cache_read", "output", "reasoning", "cache_write_1h")
_PROBES: Final = (
    ("uncached_input",),
    ("cache_write",),
    ("cache_write", "cache_write_1h"),
    ("cache_read",),
    ("output",),
    ("output", "reasoning"),
)
_QUARTER_S: Final = 900
"""Prices that depend on the time of day change at quarters of an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """US dollars a token.

    Attributes:
        uncached_input: Of input outside any cache.
        cache_write: Of input written to a cache.
        cache_write_1h: Of input written to a cache for an hour.
        cache_read: Of input read from a cache.
        output: Of output that is not reasoning.
        reasoning: Of reasoning.
        price: A price to take the names from.
    """

    uncached_input: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal
    cache_read: Decimal
    output: Decimal
    reasoning: Decimal
    price: Price

    def cost_usd(self, usage: TokenUsage, *, cached: bool) -> Decimal:
        """What a request costs; without `cached` as if no cache had been used."""
        written, read, output = usage.cache_write or 0, usage.cache_read or 0, usage.output or 0
        plain, long, reasoning = usage.uncached_input or 0, usage.cache_write_1h or 0, usage.reasoning or 0
        said = self.output * (output - reasoning) + self.reasoning * reasoning
        if not cached:
            return said + self.uncached_input * (plain + written + read)
        held = self.cache_write * (written - long) + self.cache_write_1h * long + self.cache_read * read
        return said + self.uncached_input * plain + held


def price_quickly(
    usage: TokenUsage, model: str | None, *, at: datetime, context: Mapping[str, str] = NO_CONTEXT
) -> Price:
    """Price one request; see `price.price_request`, whose answer this is."""
    total = usage.total
    if model is not None and total is not None and total <= _MOST_TOKENS and not special_terms(context):
        rates = _rates_of(model, int(at.timestamp()) // _QUARTER_S)
        if rates is not None:
            return Price(
                cost_usd=rates.cost_usd(usage, cached=True),
                cost_without_cache_usd=rates.cost_usd(usage, cached=False),
                reason=None,
                provider=rates.price.provider,
                model=rates.price.model,
                is_lower_bound=usage.is_lower_bound,
            )
    return price_request(usage, model, at=at, context=context)


def _with(buckets: tuple[str, ...], n: int) -> TokenUsage:
    counts = {name: n if name in buckets else 0 for name in _COUNTS}
    return TokenUsage(**counts, is_lower_bound=False)


@lru_cache(maxsize=256)
def _rates_of(model: str, quarter: int) -> _Rates | None:
    """The rates of a model that has fixed ones in this quarter of an hour; None for another."""
    at = datetime.fromtimestamp(quarter * _QUARTER_S, UTC)
    found: list[Price] = []
    for buckets in _PROBES:
        low, high = (price_request(_with(buckets, n), model, at=at) for n in (1, _MOST_TOKENS))
        if low.cost_usd is None or high.cost_usd is None or low.cost_usd * _MOST_TOKENS != high.cost_usd:
            return None
        found.append(low)
    rates = [price.cost_usd or Decimal(0) for price in found]
    return _Rates(
        uncached_input=rates[0],
        cache_write=rates[1],
        cache_write_1h=rates[2],
        cache_read=rates[3],
        output=rates[4],
        reasoning=rates[5],
        price=found[0],
    )
