"""Decisions before a request goes out."""

import pytest

from fairtrial.gateway.policy import (
    BudgetKind,
    Limits,
    ModelDecision,
    ServedModel,
    Spent,
    UnnamedModel,
    compare_models,
    decide_budget,
    decide_model,
)


def spent(**parts: float) -> Spent:
    return Spent(
        **({"tokens": 0, "cost_usd": 0.0, "n_unpriced": 0, "n_untold": 0, "requests": 0, "seconds": 0.0} | parts)
    )  # type: ignore[arg-type]


def test_a_model_that_the_arm_does_not_name_is_refused_or_recorded() -> None:
    named = ("claude-sonnet-4-5",)
    assert decide_model("claude-sonnet-4-5", named, UnnamedModel.REFUSE) is ModelDecision.PASS
    for model in ("claude-haiku-4-5-20251001", "claude-sonnet-4-5-20250929", "CLAUDE-SONNET-4-5", None):
        assert decide_model(model, named, UnnamedModel.REFUSE) is ModelDecision.REFUSE
        assert decide_model(model, named, UnnamedModel.RECORD) is ModelDecision.RECORD


@pytest.mark.parametrize(
    ("requested", "served", "expected"),
    [
        ("gpt-5", "gpt-5", ServedModel.SAME),
        ("gpt-5", "gpt-5-2025-08-07", ServedModel.SNAPSHOT),
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", ServedModel.SNAPSHOT),
        ("gemini-2.5-flash", "models/gemini-2.5-flash-001", ServedModel.SNAPSHOT),
        ("gpt-5", "gpt-5-mini", ServedModel.OTHER),
        ("gpt-5", "gpt-5-mini-2025-08-07", ServedModel.OTHER),
        ("claude-opus-4-8", "claude-haiku-4-5-20251001", ServedModel.OTHER),
        ("gpt-5-2025-08-07", "gpt-5", ServedModel.OTHER),
        (None, "gpt-5", ServedModel.UNKNOWN),
        ("gpt-5", None, ServedModel.UNKNOWN),
    ],
)
def test_the_model_that_answered_is_held_against_the_one_requested(
    requested: str | None, served: str | None, expected: ServedModel
) -> None:
    assert compare_models(requested, served) is expected


@pytest.mark.parametrize(
    ("limits", "below", "at", "kind"),
    [
        (Limits(requests=3), spent(requests=2), spent(requests=3), BudgetKind.REQUESTS),
        (Limits(tokens=100), spent(tokens=99), spent(tokens=100), BudgetKind.TOKENS),
        (Limits(seconds=9.5), spent(seconds=9.4), spent(seconds=9.5), BudgetKind.SECONDS),
        (Limits(cost_usd=0.5), spent(cost_usd=0.49), spent(cost_usd=0.5), BudgetKind.COST),
        (Limits(cost_usd=0.5), spent(cost_usd=0.1), spent(n_unpriced=1), BudgetKind.COST),
        (Limits(cost_usd=0.5), spent(cost_usd=0.1), spent(n_untold=1), BudgetKind.COST),
        (Limits(tokens=9), spent(n_unpriced=1), spent(n_untold=1), BudgetKind.TOKENS),
    ],
)
def test_a_budget_stops_the_request_that_would_go_beyond_it(
    limits: Limits, below: Spent, at: Spent, kind: BudgetKind
) -> None:
    assert decide_budget(limits, below) is None
    stop = decide_budget(limits, at)
    assert stop is not None
    assert stop.kind is kind
    assert decide_budget(Limits(), at) is None


def test_a_budget_of_nothing_lets_nothing_out() -> None:
    for limits in (Limits(requests=0), Limits(tokens=0), Limits(seconds=0), Limits(cost_usd=0)):
        assert decide_budget(limits, spent()) is not None
