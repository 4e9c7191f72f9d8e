"""Lines of text to entries."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal


@dataclass(frozen=True)
class Entry:
    """One expense."""

    day: date
    amount: Decimal
    category: str
    note: str


class BadLine(ValueError):
    """A line that is no entry."""


def parse_line(line):
    """Read one line; None for a blank one or a comment."""
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    parts = text.split(None, 3)
    if len(parts) < 3:
        raise BadLine(f"not an entry: {text!r}")
    day, amount, category = parts[:3]
    note = parts[3] if len(parts) == 4 else ""
    try:
        return Entry(date.fromisoformat(day), Decimal(amount), category, note)
    except (ValueError, ArithmeticError):
        raise BadLine(f"not an entry: {text!r}") from None


def parse(lines):
    """Read all lines."""
    return [entry for entry in map(parse_line, lines) if entry is not None]
