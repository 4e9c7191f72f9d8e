from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.gateway.price import price_request
from fairtrial.gateway.rates import price_quickly
from fairtrial.model.usage import TokenUsage

AT = datetime(2026, 11, 29, 13, 7, tzinfo=UTC)
MODELS = ["claude-sonnet-4-5", "claude-opus-4-1", "gpt-5", "gpt-4o", "gemini-2.5-pro", "deepseek-chat", "no-such-model"]
COUNT = st.one_of(st.integers(0, 5), st.integers(0, 30_000), st.integers(0, 600_000))


@st.composite
def _usages(draw: st.DrawFn) -> TokenUsage:
    written, output = draw(COUNT), draw(COUNT)
    return TokenUsage(
        uncached_input=draw(COUNT),
        cache_write=written,
        cache_read=draw(st.one_of(st.none(), COUNT)),
        output=output,
        reasoning=draw(st.one_of(st.none(), st.integers(0, output))),
        cache_write_1h=draw(st.one_of(st.none(), st.integers(0, written))),
        is_lower_bound=draw(st.booleans()),
    )


@pytest.mark.parametrize("model", MODELS)
@given(usage=_usages())
def test_the_quick_price_is_the_tables_price(model: str, usage: TokenUsage) -> None:
    assert price_quickly(usage, model, at=AT) == price_request(usage, model, at=AT)
