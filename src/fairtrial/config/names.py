"""Names that a user types, against the names that exist."""

import difflib
from collections.abc import Iterable
from typing import Final

from fairtrial.errors import UsageError

__all__ = ["require_known", "show_name", "show_text", "suggest"]

_MAX_SHOWN: Final = 60


def require_known(name: str, known: Iterable[str], *, what: str, where: str) -> str:
    """Return the name if it is known.

    Args:
        name: What the user wrote.
        known: Every valid name.
        what: One word for what is named: `scenario`.
        where: Where it was written: `--scenarios`.

    Raises:
        UsageError: It is not known; the message has the near miss and the valid names.
    """
    valid = sorted(known)
    if name in valid:
        return name
    message = f"{where}: unknown {what} {show_name(name)}{suggest(name, valid)}"
    raise UsageError(message)


def show_name(name: str) -> str:
    """The name as a message quotes it: on one line, escaped and not too long."""
    return repr(name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}…")


def show_text(text: str) -> str:
    """The text on one line: what is not printable (controls, line breaks, unassigned characters) is escaped."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: `; did you mean 'http'? valid: file, http`."""
    valid = sorted(known)
    folded = {each.casefold(): each for each in reversed(valid)}
    near = difflib.get_close_matches(name[:_MAX_SHOWN].casefold(), folded, n=1)
    guess = f" did you mean {folded[near[0]]!r}?" if near else ""
    return f";{guess} valid: {', '.join(valid) or 'none'}"
