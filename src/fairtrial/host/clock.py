"""The only place that asks what time it is; everything else takes a time as an argument."""

import time
from datetime import UTC, datetime

__all__ = ["monotonic_s", "rfc3339", "stamp", "utc_now"]


def utc_now() -> datetime:
    """Return the present moment, in UTC."""
    return datetime.now(UTC)


def monotonic_s() -> float:
    """Return seconds on a clock that only moves forward; only differences mean something."""
    return time.monotonic()


def stamp(moment: datetime) -> str:
    """Render an aware moment for a file name, such as 20261129T130100Z."""
    return _in_utc(moment).strftime("%Y%m%dT%H%M%SZ")


def rfc3339(moment: datetime) -> str:
    """Render an aware moment for a record, such as 2026-11-29T13:01:00.000000Z; text order is time order."""
    return _in_utc(moment).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        message = f"a moment without a time zone cannot be rendered: {moment!r}"
        raise ValueError(message)
    return moment.astimezone(UTC)
