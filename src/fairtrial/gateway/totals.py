"""What a trial's requests come to: a pure fold over its wire log, so that a resume or an audit gets the same."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from fairtrial.gateway.control import Spend, Totals
from fairtrial.gateway.ledger import Ending, WireRow
from fairtrial.gateway.pace import LIMITED_STATUS
from fairtrial.gateway.policy import ServedModel
from fairtrial.model.usage import NOTHING_USED, at_least, sum_usage

__all__ = ["MAIN", "SUBAGENT", "cost_at_least", "is_provider_fault", "provider_fault", "spend_of", "total_rows"]

MAIN: Final = "main"
SUBAGENT: Final = "subagent"
_UNTOLD: Final = frozenset({"gemini"})
"""Dialects whose client marks no request as a subagent's: there the wire does not know whose a request is."""

_FAILED: Final = frozenset({Ending.ERROR_STATUS, Ending.ERROR_EVENT, Ending.BROKEN, Ending.INTERNAL})
_BROKEN_OFF: Final = frozenset({Ending.BROKEN, Ending.CLIENT_GONE, Ending.STOPPED})
_PROVIDER_STATUS: Final = frozenset({429, *range(500, 600)})
# Of errors inside a stream, those that say that the provider failed; any other (a prompt too long) is the arm's doing.
_PROVIDER_KINDS: Final = frozenset(
    {
        "api_error", "deadline_exceeded", "internal", "internal_error", "internal_server_error", "overloaded",
        "overloaded_error", "rate_limit_error", "rate_limit_exceeded", "resource_exhausted", "server_error",
        "server_is_overloaded", "service_unavailable", "slow_down", "timeout", "timeout_error", "unavailable",
    }
)  # fmt: skip


def spend_of(rows: Iterable[WireRow]) -> Spend:
    """Add the spending of whole replies; unknown in one is unknown in the sum."""
    found = list(rows)
    return Spend(
        usage=sum_usage(row.usage for row in found),
        cost_usd=_sum(row.cost_usd for row in found),
        cost_without_cache_usd=_sum(row.cost_without_cache_usd for row in found),
    )


def _lower_bound(rows: Iterable[WireRow]) -> Spend:
    """Add what is known to have been spent by replies that broke.

    One that broke before it said anything of its usage may have cost something, and marks the sum; an error has not.
    """
    found = list(rows)
    told = [row for row in found if row.usage is not None]
    return Spend(
        usage=at_least(row.usage for row in found if row.usage is not None or row.ending in _BROKEN_OFF),
        cost_usd=_sum(row.cost_usd for row in told),
        cost_without_cache_usd=_sum(row.cost_without_cache_usd for row in told),
    )


def cost_at_least(rows: Iterable[WireRow]) -> float | None:
    """Add the cost of what is known to have been used; None when a whole reply, or known usage, has no price.

    Counts of tokens and errors cost nothing. A reply that broke before it said anything of its usage is left out.
    """
    calls = [row for row in rows if row.was_passed_on and (row.ask == "generate" or row.ask is None)]
    return _sum(row.cost_usd for row in calls if row.usage is not None or row.ending is Ending.ANSWERED)


def _sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def total_rows(rows: Iterable[WireRow]) -> Totals:
    """Fold a wire log. Counts of tokens that cost nothing (`COUNT`) are requests without spending."""
    found = list(rows)
    passed = [row for row in found if row.was_passed_on]
    calls = [row for row in passed if row.ask == "generate" or row.ask is None]
    whole = [row for row in calls if row.ending is Ending.ANSWERED]
    broken = [row for row in calls if row.ending is not Ending.ANSWERED]
    return Totals(
        requests=len(passed),
        failed_requests=sum(row.ending in _FAILED for row in passed),
        retries=sum(row.attempt > 1 for row in passed),
        refused=dict(Counter(row.refusal for row in found if row.refusal is not None)),
        spend=spend_of(whole),
        broken_spend=_lower_bound(broken) if broken else _NOTHING,
        by_model=_by(whole, [row.served_model or row.requested_model or "" for row in whole]),
        by_ending=dict(Counter(row.ending.value for row in passed)),
        limited_requests=sum(row.status in LIMITED_STATUS for row in passed),
        backed_off_ms=round(sum(row.backed_off_ms for row in found), 3),
        by_agent=_by_agent(whole),
        unmeasured_requests=sum(row.usage is None for row in whole),
        request_bytes=sum(row.request_bytes for row in passed),
        reply_bytes=sum(row.reply_bytes for row in passed),
        provider_ms=round(sum(row.provider_ms for row in passed), 3),
        other_models=_other_models(passed),
    )


_NOTHING: Final = Spend(usage=NOTHING_USED, cost_usd=0.0, cost_without_cache_usd=0.0)


def _by(rows: Sequence[WireRow], names: Sequence[str]) -> dict[str, Spend]:
    return {
        name: spend_of(row for row, own in zip(rows, names, strict=True) if own == name) for name in sorted(set(names))
    }


def _by_agent(rows: Sequence[WireRow]) -> dict[str, Spend] | None:
    if any(row.dialect in _UNTOLD for row in rows):
        return None
    return _by(rows, [MAIN if row.agent_claim is None else SUBAGENT for row in rows])


def _other_models(rows: Iterable[WireRow]) -> tuple[str, ...]:
    names = {row.requested_model for row in rows if row.model_allowed is False}
    names |= {row.served_model for row in rows if row.served_as is ServedModel.OTHER}
    return tuple(sorted(name for name in names if name is not None))


def provider_fault(rows: Iterable[WireRow]) -> str | None:
    """How the main loop's last request ended, when the provider was at fault; None when it was not.

    Requests that the gateway refused or answered itself do not count: they say nothing about the provider.
    """
    main = [row for row in rows if row.was_passed_on and row.agent_claim is None and row.ask != "count"]
    if not main:
        return None
    return _fault_of(main[-1])


def is_provider_fault(row: WireRow) -> bool:
    """A request ended otherwise than well, and that was the provider's doing."""
    return _fault_of(row) is not None


def _fault_of(row: WireRow) -> str | None:
    match row.ending:
        case Ending.ERROR_STATUS if row.status in _PROVIDER_STATUS:
            return f"status {row.status}"
        case Ending.ERROR_EVENT if (row.error_kind or "").lower() in _PROVIDER_KINDS:
            return f"error in the stream: {row.detail}"
        case Ending.BROKEN:
            return f"broken connection: {row.detail}"
        case _:
            return None
