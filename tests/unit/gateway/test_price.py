"""Costs are exact, dated, and unknown where they are unknown (B28, B29)."""

import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from fairtrial.gateway.price import price_request, price_table
from fairtrial.gateway.rates import price_quickly
from fairtrial.model.usage import TokenUsage

AT = datetime(2026, 11, 29, tzinfo=UTC)


def usage(uncached: int = 0, write: int = 0, read: int = 0, output: int = 0) -> TokenUsage:
    return TokenUsage(uncached_input=uncached, cache_write=write, cache_read=read, output=output)


def test_a_session_costs_what_claude_code_said_that_it_cost() -> None:
    # The wire's sum of a measured session with a subagent, at 3, 15, 3.75 and 0.30 USD a million tokens.
    found = price_request(usage(2220, 16003, 58003, 6106), "claude-sonnet-4-5", at=AT)
    assert found.cost_usd == Decimal("0.17566215")
    assert found.cost_without_cache_usd == Decimal(2220 + 16003 + 58003) * 3 / 10**6 + Decimal(6106) * 15 / 10**6
    assert (found.provider, found.model, found.reason) == ("anthropic", "claude-sonnet-4-5", None)


def test_a_cache_that_is_kept_for_an_hour_costs_more_to_write() -> None:
    short = TokenUsage(uncached_input=0, cache_write=10**6, cache_read=0, output=0, cache_write_1h=0)
    long = TokenUsage(uncached_input=0, cache_write=10**6, cache_read=0, output=0, cache_write_1h=10**6)
    costs = [price_request(each, "claude-haiku-4-5", at=AT).cost_usd for each in (short, long)]
    assert costs == [Decimal("1.25"), Decimal(2)]


def test_prices_add_up_over_requests_without_rounding() -> None:
    parts = [price_request(usage(1, 0, 0, 1), "claude-haiku-4-5", at=AT).cost_usd for _ in range(1000)]
    assert (
        sum(each or 0 for each in parts) == price_request(usage(1000, 0, 0, 1000), "claude-haiku-4-5", at=AT).cost_usd
    )


def test_the_terms_of_a_reply_set_its_price_and_terms_without_a_price_make_it_unknown() -> None:
    used = usage(10**6, output=10**6)
    plain, flex = (
        price_quickly(used, "gpt-5", at=AT, context={"service_tier": tier}).cost_usd for tier in ("default", "flex")
    )
    assert plain == price_request(used, "gpt-5", at=AT).cost_usd
    assert plain is not None
    assert flex == plain / 2
    small = usage(100, output=10)
    assert price_quickly(small, "gpt-5", at=AT, context={"service_tier": "flex"}).cost_usd == Decimal("0.0001125")
    unknown = price_quickly(small, "claude-sonnet-4-5", at=AT, context={"service_tier": "priority"})
    assert (unknown.cost_usd, unknown.cost_without_cache_usd) == (None, None)
    assert unknown.reason == "the price table has no price for the service_tier 'priority' of this model"


@pytest.mark.parametrize(
    "model",
    [
        "my-local-model",
        "claude-fake-9",
        "gpt-5x-turbo-nonsense",
        "",
        "claude-sonnet-4-5-local",
        "claude-sonnet-4-5-local-20250929",
        "gemini-2.5-pro-local",
    ],
)
def test_an_unknown_model_costs_nothing_known(model: str) -> None:
    found = price_request(usage(10, 0, 0, 10), model, at=AT)
    assert found.cost_usd is None
    assert found.cost_without_cache_usd is None
    assert found.reason is not None


@pytest.mark.parametrize(
    ("model", "listed"),
    [
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5-latest", "claude-sonnet-4-5"),
        ("gemini-2.5-pro-preview-05-06", "gemini-2.5-pro"),
        ("gpt-5-nano-2025-08-07", "gpt-5-nano"),
        ("gpt-5-codex", "gpt-5"),
        ("gpt-5.2-20251211", "gpt-5.2"),
    ],
)
def test_a_dated_name_and_a_listed_one_are_of_their_model(model: str, listed: str) -> None:
    found = price_request(usage(10, 0, 0, 10), model, at=AT)
    assert (found.cost_usd is not None, found.model) == (True, listed)


@pytest.mark.parametrize(
    ("used", "model"),
    [
        (None, "claude-sonnet-4-5"),
        (TokenUsage(uncached_input=1, cache_write=None, cache_read=0, output=1), "claude-sonnet-4-5"),
        (usage(1), None),
    ],
)
def test_an_unknown_usage_costs_nothing_known(used: TokenUsage | None, model: str | None) -> None:
    found = price_request(used, model, at=AT)
    assert found.cost_usd is None
    assert found.reason is not None


def test_a_free_model_costs_zero_and_nothing_used_costs_zero() -> None:
    found = price_request(usage(10, 0, 0, 10), "devstral-small:free", at=AT, provider="mistral")
    assert (found.cost_usd, found.reason) == (Decimal(0), None)
    assert price_request(usage(), "claude-sonnet-4-5", at=AT).cost_usd == 0


def test_a_model_that_is_listed_without_a_price_is_not_free() -> None:
    found = price_request(usage(10, 0, 0, 10), "gpt-4o", at=AT, provider="github-copilot")
    assert found.cost_usd is None
    assert found.reason == "the price table lists the model without a price"


def test_the_cost_of_a_lower_bound_is_one() -> None:
    used = TokenUsage(uncached_input=1, cache_write=0, cache_read=0, output=1, is_lower_bound=True)
    assert price_request(used, "claude-sonnet-4-5", at=AT).is_lower_bound


def test_a_provider_that_the_table_does_not_know_has_no_prices() -> None:
    assert price_request(usage(1), "claude-sonnet-4-5", at=AT, provider="nobody").cost_usd is None


def test_the_table_says_which_it_is_and_how_new() -> None:
    table = price_table(AT)
    assert table.package == "genai-prices"
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", table.version)
    assert table.data_sha256
    assert table.newest_price is not None
    assert "2026-09-01" < table.newest_price <= "2026-11-29"
    assert table.version in str(table)
    assert price_table(datetime(2026, 1, 1, tzinfo=UTC)).newest_price != table.newest_price
