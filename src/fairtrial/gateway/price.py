"""What a request cost at list price, by the dated table of the `genai-prices` package, offline.

A request is priced by itself and the prices are added up afterwards, because some models cost more above a size. What
the table does not say is None with a reason, never zero; a model that it lists as free costs zero.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from importlib.metadata import files, version
from types import MappingProxyType
from typing import Final

from genai_prices.data_snapshot import DataSnapshot, get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, Provider, StartDateConstraint, Usage
from typing_extensions import override

from fairtrial.model.usage import TokenUsage

__all__ = ["NO_CONTEXT", "Price", "PriceTable", "price_request", "price_table", "special_terms"]

_PACKAGE: Final = "genai-prices"
_FREE: Final = ":free"
NO_CONTEXT: Final[Mapping[str, str]] = MappingProxyType({})
_USUAL: Final = frozenset({"auto", "default", "standard"})
"""What providers call the terms of the list price."""
_SEPARATOR: Final = re.compile(r"[-@:]")
_VERSION: Final = re.compile(r"v?[0-9][0-9.]*|latest|preview|exp|thinking", re.IGNORECASE)
"""What may end a model's name without making it another model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """Which prices were used.

    Attributes:
        package: The package's name.
        version: Its version.
        data_sha256: Digest of its data file, urlsafe base64 as the package's own record has it; None when it has none.
        newest_price: ISO date of the newest price in it that was in force at the time of the request; the data is at
            least that new. The package states no date of its own.
    """

    package: str
    version: str
    data_sha256: str | None
    newest_price: str | None

    @override
    def __str__(self) -> str:
        """One line for a row."""
        return f"{self.package} {self.version} (newest price {self.newest_price or 'unknown'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one request cost.

    Attributes:
        cost_usd: Its cost; None when it is not known.
        cost_without_cache_usd: Its cost had all of its input been uncached; None when it is not known.
        reason: Why a cost is None; None when both are known.
        provider: The table's name of the provider; None when the model was not found.
        model: The table's name of the model, likewise.
        is_lower_bound: The usage was a lower bound, so the cost is.
    """

    cost_usd: Decimal | None
    cost_without_cache_usd: Decimal | None
    reason: str | None
    provider: str | None
    model: str | None
    is_lower_bound: bool = False


def price_table(at: datetime) -> PriceTable:
    """The table that prices a request made at that time."""
    digest, dates = _table_facts()
    return PriceTable(
        package=_PACKAGE,
        version=version(_PACKAGE),
        data_sha256=digest,
        newest_price=max((date for date in dates if date <= at.date().isoformat()), default=None),
    )


@cache
def _table_facts() -> tuple[str | None, frozenset[str]]:
    hashes = [each.hash for each in files(_PACKAGE) or () if each.name == "data.py" and each.hash is not None]
    dates = {
        price.constraint.start_date.isoformat()
        for provider in get_snapshot().providers
        for model in provider.models
        if isinstance(model.prices, list)
        for price in model.prices
        if isinstance(price.constraint, StartDateConstraint)
    }
    return (hashes[0].value if hashes else None), frozenset(dates)


def price_request(
    usage: TokenUsage | None,
    model: str | None,
    *,
    at: datetime,
    provider: str | None = None,
    context: Mapping[str, str] = NO_CONTEXT,
) -> Price:
    """Price one request.

    Args:
        usage: What it used; None when that is unknown.
        model: The model that answered, or else the one requested.
        at: When it was made, with its time zone.
        provider: The table's name of the provider; None to tell it by the model's name.
        context: What the reply said of the terms that set the price, in the table's words:
            `{"service_tier": "flex"}`. Where the table has no price for such terms the cost is unknown.
    """
    if model is None:
        return _unknown("the reply names no model")
    snapshot = get_snapshot()
    found = _find(snapshot, model, provider)
    if found is None or not _is_of_that_model(snapshot, model, provider, found):
        return _unknown(f"model {model[:80]!r} is not in the price table")
    owner, info = found
    if usage is None:
        return _unknown("the usage is unknown", found)
    terms = special_terms(context)
    prices = info.get_prices(at, terms)
    if reason := _unpriced(info, terms) or _missing(info, prices, usage):
        return _unknown(reason, found)
    try:
        cost, without_cache = (
            info.calc_price(each, owner, genai_request_timestamp=at, price_context=terms).total_price
            for each in (_usage_of(usage), _usage_without_cache(usage))
        )
    except ValueError as error:
        return _unknown(f"the price table cannot price it: {error}", found)
    return Price(
        cost_usd=cost,
        cost_without_cache_usd=without_cache,
        reason=None,
        provider=owner.id,
        model=info.id,
        is_lower_bound=usage.is_lower_bound,
    )


def special_terms(context: Mapping[str, str]) -> dict[str, str]:
    """The terms that are not those of the list price."""
    return {name: value for name, value in context.items() if value not in _USUAL}


def _unpriced(info: ModelInfo, terms: Mapping[str, str]) -> str | None:
    """Say which of the terms the table has no price for; it would take the list price in silence."""
    for name, value in terms.items():
        if not any(variant.when.get(name) == value for variant in info.price_variants or ()):
            return f"the price table has no price for the {name} {value[:40]!r} of this model"
    return None


def _find(snapshot: DataSnapshot, model: str, provider: str | None) -> tuple[Provider, ModelInfo] | None:
    try:
        return snapshot.find_provider_model(model, None, provider, None)
    except LookupError:
        return None


def _is_of_that_model(
    snapshot: DataSnapshot, name: str, provider: str | None, found: tuple[Provider, ModelInfo]
) -> bool:
    """Whether a name is of the model found for it, or merely begins as one: the table knows many by a prefix alone."""

    def is_found(other: str) -> bool:
        return _find(snapshot, other, provider) == found

    while is_found(f"{name}-other"):
        cut = max((each.start() for each in _SEPARATOR.finditer(name)), default=0)
        if not is_found(name[:cut]):
            return True
        if not _VERSION.fullmatch(name[cut + 1 :]):
            return False
        name = name[:cut]
    return True


def _unknown(reason: str, found: tuple[Provider, ModelInfo] | None = None) -> Price:
    provider, model = (found[0].id, found[1].id) if found is not None else (None, None)
    return Price(cost_usd=None, cost_without_cache_usd=None, reason=reason, provider=provider, model=model)


def _missing(info: ModelInfo, prices: ModelPrice, usage: TokenUsage) -> str | None:
    """Why the sum would be wrong, or None. The library counts what has no price as free."""
    if usage.total is None:
        return "part of the usage is unknown"
    if not any(value is not None for value in vars(prices).values()):
        return None if info.id.endswith(_FREE) else "the price table lists the model without a price"
    if usage.output and prices.output_mtok is None:
        return "the price table has no price for output"
    if usage.total != usage.output and prices.input_mtok is None:
        return "the price table has no price for input"
    return None


def _usage_of(usage: TokenUsage) -> Usage:
    """In the library's words, where the input holds what went through the cache."""
    return Usage(
        input_tokens=(usage.uncached_input or 0) + (usage.cache_write or 0) + (usage.cache_read or 0),
        cache_write_tokens=usage.cache_write or 0,
        cache_write_1h_tokens=usage.cache_write_1h or 0,
        cache_read_tokens=usage.cache_read or 0,
        output_tokens=usage.output or 0,
        output_reasoning_tokens=usage.reasoning or 0,
    )


def _usage_without_cache(usage: TokenUsage) -> Usage:
    return Usage(
        input_tokens=(usage.uncached_input or 0) + (usage.cache_write or 0) + (usage.cache_read or 0),
        output_tokens=usage.output or 0,
        output_reasoning_tokens=usage.reasoning or 0,
    )
