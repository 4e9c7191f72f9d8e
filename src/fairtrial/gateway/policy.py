"""Which model a request may name, whether a budget still allows it, and whether the model that answered is that model.

Pure decisions, made before a request goes out (or, for the last one, when its reply is over).
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = [
    "BudgetKind",
    "BudgetStop",
    "Limits",
    "ModelDecision",
    "ServedModel",
    "Spent",
    "UnnamedModel",
    "compare_models",
    "decide_budget",
    "decide_model",
]


class UnnamedModel(StrEnum):
    """What is done with a request for a model that the arm does not name."""

    REFUSE = "refuse"
    RECORD = "record"


class ModelDecision(StrEnum):
    """What is done with a request because of its model."""

    PASS = "pass"  # noqa: S105 -- the arm names it
    RECORD = "record"  # it is passed, and its row is marked
    REFUSE = "refuse"


def decide_model(requested: str | None, named: Collection[str], policy: UnnamedModel) -> ModelDecision:
    """Decide about a request by its model; one that names none may be answered by any, so it is not named."""
    if requested is not None and requested in named:
        return ModelDecision.PASS
    return ModelDecision.RECORD if policy is UnnamedModel.RECORD else ModelDecision.REFUSE


class ServedModel(StrEnum):
    """How the model that answered relates to the one requested."""

    SAME = "same"
    SNAPSHOT = "snapshot"  # a dated form of it, as providers name what an alias stands for
    OTHER = "other"
    UNKNOWN = "unknown"


_DATE: Final = re.compile(r"-([0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{3,4}|latest)")


def compare_models(requested: str | None, served: str | None) -> ServedModel:
    """Compare the two names."""
    if requested is None or served is None:
        return ServedModel.UNKNOWN
    plain, shown = (name.lower().removeprefix("models/") for name in (requested, served))
    if plain == shown:
        return ServedModel.SAME
    if shown.startswith(plain) and _DATE.fullmatch(shown[len(plain) :]):
        return ServedModel.SNAPSHOT
    return ServedModel.OTHER


class BudgetKind(StrEnum):
    """What a trial can run out of."""

    TOKENS = "tokens"
    COST = "cost"
    REQUESTS = "requests"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A trial's budget; None for no limit.

    Attributes:
        tokens: Tokens of all four buckets.
        cost_usd: List price.
        requests: Requests that went out.
        seconds: Wall clock since the trial was opened, in seconds.
    """

    tokens: int | None = None
    cost_usd: float | None = None
    requests: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a trial has spent at least.

    Attributes:
        tokens: Tokens of all four buckets, as far as they are known.
        cost_usd: List price of the requests that could be priced.
        n_unpriced: Requests whose model has no price. (Broken ones whose usage is unknown do not count here.)
        n_untold: Replies that were whole and did not tell what they used, or that the client left before they had told
            it. What the provider broke off is not the session's doing, and does not count here.
        requests: Requests that went out.
        seconds: Wall clock since the trial was opened, in seconds.
    """

    tokens: int
    cost_usd: float
    n_unpriced: int
    n_untold: int
    requests: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStop:
    """Why no further request goes out.

    Attributes:
        kind: The budget that is used up.
        message: What was spent of what, in one line.
    """

    kind: BudgetKind
    message: str


def decide_budget(limits: Limits, spent: Spent) -> BudgetStop | None:
    """Decide whether one more request may go out; None when it may.

    A limit on tokens or cost stops a trial whose replies do not tell what they used, and one on cost a trial whose
    model has no price: what cannot be counted cannot be kept to.
    """
    if limits.requests is not None and spent.requests >= limits.requests:
        return BudgetStop(kind=BudgetKind.REQUESTS, message=f"{spent.requests} of {limits.requests} requests")
    untold = f"{spent.n_untold} replies did not tell what they used, or were left before they did, so a limit of"
    if limits.tokens is not None:
        if spent.tokens >= limits.tokens:
            return BudgetStop(kind=BudgetKind.TOKENS, message=f"{spent.tokens} of {limits.tokens} tokens")
        if spent.n_untold:
            return BudgetStop(kind=BudgetKind.TOKENS, message=f"{untold} {limits.tokens} tokens cannot be kept")
    if limits.seconds is not None and spent.seconds >= limits.seconds:
        return BudgetStop(kind=BudgetKind.SECONDS, message=f"{spent.seconds:.1f} of {limits.seconds:.1f} s")
    if limits.cost_usd is not None:
        if spent.n_untold:
            return BudgetStop(kind=BudgetKind.COST, message=f"{untold} {limits.cost_usd} USD cannot be kept")
        if spent.n_unpriced:
            message = f"{spent.n_unpriced} requests have no price, so a limit of {limits.cost_usd} USD cannot be kept"
            return BudgetStop(kind=BudgetKind.COST, message=message)
        if spent.cost_usd >= limits.cost_usd:
            return BudgetStop(kind=BudgetKind.COST, message=f"{spent.cost_usd:.6f} of {limits.cost_usd} USD")
    return None
