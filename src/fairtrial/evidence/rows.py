"""Reading fields of rows that may have been written by anybody.

A row is a mapping decoded from one JSON line. Its envelope is checked where it is read (`store`); what a field holds
is judged here: a value that is no measurement (a boolean, a string, NaN, an infinity) is unmeasured, never zero.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from fairtrial.errors import UsageError

__all__ = ["Row", "flag", "measured", "number", "required_text", "text", "whole"]

Row: TypeAlias = Mapping[str, object]

LARGEST: Final = 2**53
"""Beyond it a float no longer holds every integer; nothing that we measure comes near (9 PB, 285,000 years in ms)."""


def number(value: object) -> float | None:
    """Give a finite number of either sign, or None."""
    if type(value) is int or type(value) is float:  # exactly these: a boolean is an int to isinstance
        return value if -LARGEST <= value <= LARGEST else None
    return None


def measured(value: object) -> float | None:
    """Give a finite number that is not negative, or None: a count, a size, a duration or a price."""
    if type(value) is int or type(value) is float:
        return value if 0 <= value <= LARGEST else None
    return None


def whole(value: object) -> int | None:
    """Give an integer, or None."""
    return value if type(value) is int and -LARGEST <= value <= LARGEST else None


def flag(value: object) -> bool | None:
    """Give a boolean, or None for anything else: 1 is not true."""
    return value if isinstance(value, bool) else None


def text(value: object) -> str | None:
    """Give a string, or None."""
    return value if isinstance(value, str) else None


def required_text(row: Row, field: str, *, index: int) -> str:
    """Give a string that the row must have.

    Args:
        row: The row.
        field: The field's name.
        index: Position of the row among those read, counted from 0, for the message.

    Raises:
        UsageError: The field is missing, not a string, or empty.
    """
    value = row.get(field)
    if not isinstance(value, str) or not value:
        message = f"row {index + 1}: '{field}' must be a nonempty string, not {value!r:.60}; is this a file of rows?"
        raise UsageError(message)
    return value
