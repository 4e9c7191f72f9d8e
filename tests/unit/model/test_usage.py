"""Sums of usage: unknown is never zero, and a lower bound says that it is one."""

import pytest

from fairtrial.model.usage import NOTHING_USED, TokenUsage, at_least, sum_usage

ONE = TokenUsage(uncached_input=1, cache_write=2, cache_read=3, output=4, reasoning=1, cache_write_1h=2)


def test_the_four_buckets_are_disjoint_and_add_up_to_the_total() -> None:
    assert ONE.total == 10
    assert sum_usage([ONE, ONE]).total == 20
    assert sum_usage([ONE, ONE]).reasoning == 2


def test_what_is_unknown_in_one_usage_is_unknown_in_the_sum_and_nothing_else_is() -> None:
    part = TokenUsage(uncached_input=1, cache_write=None, cache_read=3, output=4)
    found = sum_usage([ONE, part])
    assert (found.uncached_input, found.cache_write, found.cache_read, found.output) == (2, None, 6, 8)
    assert found.total is None
    assert found.reasoning is None


def test_a_reply_that_did_not_say_makes_all_of_the_sum_unknown() -> None:
    assert sum_usage([ONE, None]) == TokenUsage(uncached_input=None, cache_write=None, cache_read=None, output=None)


def test_the_sum_of_nothing_is_a_known_zero() -> None:
    assert sum_usage([]) == NOTHING_USED
    assert NOTHING_USED.total == 0


def test_a_sum_with_a_lower_bound_in_it_is_one() -> None:
    part = TokenUsage(uncached_input=1, cache_write=0, cache_read=0, output=0, is_lower_bound=True)
    assert sum_usage([ONE, part]).is_lower_bound
    assert not sum_usage([ONE]).is_lower_bound


def test_what_was_spent_at_least_leaves_the_unknown_out_and_says_so() -> None:
    found = at_least([ONE, None])
    assert found.total == 10
    assert found.is_lower_bound
    assert not at_least([ONE]).is_lower_bound


def test_fewer_tokens_than_none_are_refused() -> None:
    with pytest.raises(ValueError, match="output is -1"):
        TokenUsage(uncached_input=1, cache_write=0, cache_read=0, output=-1)
