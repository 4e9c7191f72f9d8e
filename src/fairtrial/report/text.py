"""Figures and foreign text made fit to print.

Text that came from outside (reasons, names, labels) may hold terminal commands, invisible characters or markup. Both
renderers print it only through `visible`, and the Markdown one also through `escape_markdown`.
"""

import re
import unicodedata
from typing import Final

__all__ = ["UNMEASURED", "escape_markdown", "figure", "shorten", "signed_figure", "visible", "yes_no"]

UNMEASURED: Final = "unmeasured"
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MARKUP: Final = re.compile(
    r"[\\`*\[\]|~$#&<>]"
    r"|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])"  # emphasis
    r"|:(?=//)|(?<=\bwww)\.",  # what renderers turn into links
    re.IGNORECASE,
)
_HTML: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def figure(value: float | None, decimals: int = 0) -> str:
    """Print a number with so many decimals, an integer without any, an unknown as unmeasured."""
    if value is None:
        return UNMEASURED
    if isinstance(value, int) or (decimals == 0 and value % 1 == 0):
        return str(int(value))
    return _without_negative_zero(f"{value:.{max(decimals, 1)}f}")


def signed_figure(value: float | None, decimals: int = 1) -> str:
    """Print a difference with its sign; zero has none."""
    if value is None:
        return UNMEASURED
    printed = _without_negative_zero(f"{value:.{decimals}f}")
    return printed if float(printed) <= 0 else f"+{printed}"


def yes_no(value: bool | None) -> str:  # noqa: FBT001 - the value to be printed
    """Print a fact that may be unknown."""
    return UNMEASURED if value is None else "yes" if value else "no"


def visible(foreign: str) -> str:
    r"""Give the text with every control, format, surrogate or unassigned character spelled out, as in `\x1b`."""
    if foreign.isprintable():
        return foreign
    return "".join(_spelled(c) if unicodedata.category(c) in _INVISIBLE else c for c in foreign)


def shorten(foreign: str, n_characters: int) -> str:
    """Give the first characters of a text, visibly cut."""
    shown = visible(foreign)
    return shown if len(shown) <= n_characters else f"{shown[: n_characters - 1]}…"


def escape_markdown(foreign: str) -> str:
    """Give the text such that Markdown shows it as it is: no markup, link, table border or HTML.

    An underscore between letters or digits is no markup and stays, so that names in a report can be searched for.
    """
    return _MARKUP.sub(lambda found: _HTML.get(found.group(), f"\\{found.group()}"), visible(foreign))


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _without_negative_zero(printed: str) -> str:
    return printed.removeprefix("-") if float(printed) == 0 else printed
