import pytest

from fairtrial.errors import UsageError
from fairtrial.evidence.rows import flag, measured, number, required_text, text, whole

NO_NUMBERS = [None, True, False, "1", [1], {}, float("nan"), float("inf"), float("-inf"), 10**400, -(10**400), 1e300]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_measurement_is_unmeasured(value: object) -> None:
    assert number(value) is None
    assert measured(value) is None
    assert whole(value) is None


def test_a_difference_may_be_negative_but_a_measurement_may_not() -> None:
    assert number(-1.5) == -1.5
    assert measured(-1.5) is None
    assert measured(0) == 0
    assert measured(0.0) == 0.0


def test_only_an_integer_is_whole() -> None:
    assert whole(3) == 3
    assert whole(3.0) is None


def test_one_is_not_true_and_a_number_is_no_text() -> None:
    assert flag(1) is None
    assert flag(False) is False
    assert text(1) is None
    assert text("a") == "a"


@pytest.mark.parametrize("value", [None, "", 3])
def test_a_row_without_a_required_text_is_refused_by_its_place(value: object) -> None:
    with pytest.raises(UsageError, match="row 8: 'task' must be a nonempty string"):
        required_text({"task": value}, "task", index=7)
    assert required_text({"task": "t"}, "task", index=7) == "t"
