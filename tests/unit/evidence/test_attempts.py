from itertools import permutations

import pytest

from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evidence.attempts import Attempt, Choice, attempt_of, choose


def counting(attempts: tuple[tuple[int, bool], ...]) -> int:
    held_number, held_void = attempts[0]
    for number, void in attempts[1:]:
        new = Attempt(key="k", number=number)
        if choose(held_number=held_number, held_void=held_void, new=new, new_void=void) is Choice.NEW:
            held_number, held_void = number, void
    return held_number


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([(1, True), (2, True), (3, True)], 3),
        ([(1, True), (2, False), (3, True)], 2),
        ([(1, True), (2, False), (3, False)], 2),
        ([(1, False), (2, True)], 1),
    ],
)
def test_the_first_valid_attempt_counts_or_the_last_void_one_whatever_the_order_of_rows(
    attempts: list[tuple[int, bool]], expected: int
) -> None:
    assert {counting(order) for order in permutations(attempts)} == {expected}


def test_one_attempt_that_ends_twice_is_an_integrity_error() -> None:
    with pytest.raises(IntegrityError, match="attempt 1 of trial 'k' ended twice"):
        choose(held_number=1, held_void=False, new=Attempt(key="k", number=1), new_void=False)


def test_a_bare_row_has_no_attempt_and_a_key_needs_a_number() -> None:
    assert attempt_of({}, index=0) is None
    assert attempt_of({"key": "k", "attempt": 2}, index=0) == Attempt(key="k", number=2)
    with pytest.raises(UsageError, match="row 1: 'attempt' must be an integer beside key 'k'"):
        attempt_of({"key": "k"}, index=0)
