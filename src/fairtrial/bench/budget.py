"""What is left of a trial's budget when another of its sessions begins. Pure."""

from collections.abc import Sequence

from fairtrial.bench.session import Session
from fairtrial.gateway.policy import Limits
from fairtrial.model.bench import Budget

__all__ = ["budget_left"]


def budget_left(budget: Budget, sessions: Sequence[Session]) -> Limits:
    """Take from a budget what sessions have spent, broken replies included as far as they are known.

    A part that is used up is 0, so that the next session's first request is refused. Tokens or a cost that cannot be
    told use a limit on them up: what cannot be counted cannot be kept to.
    """
    closed = [each.closed for each in sessions if each.closed is not None]
    spends = [spend for each in closed for spend in (each.totals.spend, each.totals.broken_spend)]
    costs = [spend.cost_usd for spend in spends]
    cost_usd = None if None in costs else sum(cost for cost in costs if cost is not None)
    is_untold = any(each.totals.unmeasured_requests for each in closed)
    tokens = 0
    for usage in (spend.usage for spend in spends):
        tokens += sum(n or 0 for n in (usage.uncached_input, usage.cache_write, usage.cache_read, usage.output))
    waited_s = sum(each.waited_ms for each in closed) / 1000
    seconds = sum(each.result.elapsed_ms for each in sessions) / 1000 - waited_s
    return Limits(
        tokens=None if budget.tokens is None else 0 if is_untold else max(0, budget.tokens - tokens),
        cost_usd=None if budget.cost_usd is None else 0.0 if cost_usd is None else max(0.0, budget.cost_usd - cost_usd),
        requests=None if budget.requests is None else max(0, budget.requests - sum(e.totals.requests for e in closed)),
        seconds=None if budget.seconds is None else max(0.0, budget.seconds - seconds),
    )
