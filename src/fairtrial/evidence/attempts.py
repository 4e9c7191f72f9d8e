"""Which attempt of a trial counts: the first that is no void, else the last void one.

An attempt is never overwritten; a retry is a new attempt under the same key. Whoever folds rows keeps one attempt a
key and asks here which of two that is.
"""

from dataclasses import dataclass
from enum import Enum, auto

from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evidence.rows import Row, text, whole

__all__ = ["Attempt", "Choice", "attempt_of", "choose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The identity of one execution of a trial.

    Attributes:
        key: The trial's key.
        number: Which execution it was; higher is later.
    """

    key: str
    number: int


class Choice(Enum):
    """Which of two attempts of one key counts."""

    HELD = auto()
    NEW = auto()


def attempt_of(row: Row, *, index: int) -> Attempt | None:
    """Give the row's key and attempt; None for a bare row, which has no key and counts by itself.

    Args:
        row: The row.
        index: Position of the row among those read, counted from 0, for the message.

    Raises:
        UsageError: There is a key but no attempt number beside it.
    """
    key = text(row.get("key"))
    if key is None:
        return None
    number = whole(row.get("attempt"))
    if number is None:
        message = f"row {index + 1}: 'attempt' must be an integer beside key {key!r:.60}; is this a file of rows?"
        raise UsageError(message)
    return Attempt(key=key, number=number)


def choose(*, held_number: int, held_void: bool, new: Attempt, new_void: bool) -> Choice:
    """Decide which attempt of a key counts.

    Raises:
        IntegrityError: Both have the same number: a row was duplicated.
    """
    if held_number == new.number:
        message = f"attempt {new.number} of trial {new.key!r:.100} ended twice: run `fairtrial audit` on its directory"
        raise IntegrityError(message)
    if held_void != new_void:
        return Choice.NEW if held_void else Choice.HELD
    new_is_later = new.number > held_number
    return Choice.NEW if new_is_later == held_void else Choice.HELD
