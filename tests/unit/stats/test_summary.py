import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.stats.summary import Spread, median, percent_saved, spread, total

numbers = st.floats(min_value=-1e9, max_value=1e9) | st.integers(min_value=-(10**9), max_value=10**9)


@given(st.lists(numbers, min_size=1))
def test_the_median_is_that_of_the_standard_library(values: list[float]) -> None:
    assert median(values) == statistics.median(values)


def test_the_median_of_nothing_is_unknown() -> None:
    assert median([]) is None


@given(st.lists(numbers), st.integers(min_value=0))
def test_one_unmeasured_value_makes_median_and_total_unknown(values: list[float], place: int) -> None:
    with_hole: list[float | None] = [*values]
    with_hole.insert(place % (len(values) + 1), None)
    assert median(with_hole) is None
    assert total(with_hole) is None


def test_a_total_of_integers_stays_an_integer_and_one_of_nothing_is_unknown() -> None:
    assert total([1, 2]) == 3
    assert isinstance(total([1, 2]), int)
    assert total([0.1] * 10) == 1.0
    assert total([]) is None


@pytest.mark.parametrize(
    ("base", "value", "percent"),
    [
        (10.0, 9.5, 5.0),
        (10.0, 12.0, -20.0),
        (3, 2, 33.3),
        (10, 0, 100.0),
        (None, 1, None),
        (1, None, None),
        (0, 1, None),
        (5e-324, 1e15, None),
    ],
)
def test_percent_saved_is_to_one_decimal_or_unknown(
    base: float | None, value: float | None, percent: float | None
) -> None:
    assert percent_saved(base, value) == percent


def test_a_spread_is_the_largest_and_the_median_absolute_difference() -> None:
    assert spread([(1, 2), (5, 1), (3, 3)]) == Spread(n_pairs=3, largest=4, median=1)


@pytest.mark.parametrize("pairs", [[], [(1, None)], [(1, 2), (None, 2)]])
def test_a_spread_without_pairs_or_with_an_unmeasured_side_is_unknown(
    pairs: list[tuple[float | None, float | None]],
) -> None:
    assert spread(pairs) == Spread(n_pairs=len(pairs), largest=None, median=None)
