"""Reading what a CLI prints: JSON, one object a line, none of it trusted."""

from collections.abc import Iterable, Iterator
from typing import Final, cast

from fairtrial.model.usage import TokenUsage
from fairtrial.store.strict_json import JsonObject, MalformedJsonError, parse_object

__all__ = [
    "Events",
    "cost_of",
    "count_of",
    "items_of",
    "member_of",
    "members_of",
    "objects_of",
    "shortened",
    "text_of",
    "truth_of",
    "usage_of",
]

LONGEST_TEXT: Final = 500
SHOWN_CHARACTERS: Final = 80


class Events:
    """The events of an output, in order; what is no event is left out and the first such thing remembered.

    Attributes:
        problem: The first line that was no event, and why; None while there was none.
        n_events: Events so far.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self.problem: str | None = None
        self.n_events = 0

    def __iter__(self) -> Iterator[JsonObject]:
        for number, line in enumerate(self._lines, start=1):
            text = line.strip()
            if not text:
                continue
            try:
                event = parse_object(text)
            except MalformedJsonError as problem:
                shown = text[:SHOWN_CHARACTERS].decode("utf-8", "replace")
                self.note(f"line {number}: {problem}: {shown!r}")
                continue
            self.n_events += 1
            yield event

    def note(self, problem: str) -> None:
        """Remember a problem, if it is the first."""
        if self.problem is None:
            self.problem = shortened(problem)


def member_of(value: object, *names: str) -> object:
    """What stands under these keys, one below the other; None where there is nothing."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = cast("JsonObject", value).get(name)
    return value


def members_of(value: object, *names: str) -> JsonObject:
    """The object under these keys; an empty one where there is none."""
    found = member_of(value, *names)
    return cast("JsonObject", found) if isinstance(found, dict) else {}


def items_of(value: object, *names: str) -> list[object]:
    """The list under these keys; an empty one where there is none."""
    found = member_of(value, *names)
    return cast("list[object]", found) if isinstance(found, list) else []


def objects_of(value: object, *names: str) -> list[JsonObject]:
    """The objects of a list under these keys; what else is in it is left out."""
    return [cast("JsonObject", each) for each in items_of(value, *names) if isinstance(each, dict)]


def text_of(value: object, *names: str) -> str | None:
    """A text under these keys, or None."""
    found = member_of(value, *names)
    return found if isinstance(found, str) else None


def truth_of(value: object, *names: str) -> bool | None:
    """A true or false under these keys, or None."""
    found = member_of(value, *names)
    return found if isinstance(found, bool) else None


def count_of(value: object, *names: str) -> int | None:
    """A count under these keys; a number that cannot be one is None."""
    found = member_of(value, *names)
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        return None
    return found


def cost_of(value: object, *names: str) -> float | None:
    """An amount under these keys; 0.0 is one, a negative number is none."""
    found = member_of(value, *names)
    if isinstance(found, bool) or not isinstance(found, int | float) or found < 0:
        return None
    return float(found)


def usage_of(
    *,
    total_input: int | None,
    cache_read: int | None,
    output: int | None,
    cache_write: int | None = 0,
    reasoning: int | None = None,
) -> TokenUsage:
    """Usage in disjoint buckets from an input count that has the cached tokens inside."""
    uncached = None
    if total_input is not None and cache_read is not None and cache_write is not None:
        uncached = total_input - cache_read - cache_write
        if uncached < 0:
            uncached = None  # the parts are more than the whole: neither can be believed
    return TokenUsage(
        uncached_input=uncached, cache_write=cache_write, cache_read=cache_read, output=output, reasoning=reasoning
    )


def shortened(text: str) -> str:
    """The beginning of a text, for a record."""
    return text[:LONGEST_TEXT]
