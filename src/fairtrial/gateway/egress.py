"""What may leave a trial: strict JSON, and nothing that lets the provider fetch the answer for the model.

The rule is an allow-list at each place where an API takes something that acts: top-level keys, types of tools, types of
content, kinds of sources. What is not known there is refused by its name, because a provider adds such things every
month, and a new one must not open a way out. Free text is never looked into: a URL in a prompt fetches nothing.

A client header that switches a beta on is let through: a beta opens fields of the body, and those fields are checked.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache, lru_cache
from typing import Final, cast

from fairtrial.gateway.dialect import Dialect, JsonObject, Refusal, Route
from fairtrial.store.strict_json import MalformedJsonError, parse_object

__all__ = [
    "BadRequestError",
    "Finder",
    "Grant",
    "check_request",
    "fetching_model",
    "is_remote",
    "read_body",
    "refusal_text",
    "require_plain_head",
    "upstream_headers",
]


class Grant(StrEnum):
    """Names that an arm may grant. `field:NAME`, `tool:TYPE` and `content:TYPE` grant what has no name of its own."""

    WEB_SEARCH = "web-search"
    WEB_FETCH = "web-fetch"
    CODE_EXECUTION = "code-execution"
    FILE_SEARCH = "file-search"
    IMAGE_GENERATION = "image-generation"
    MAPS = "maps"
    MCP = "mcp"
    ADVISOR = "advisor"  # another model, called by the provider
    OTHER_MODEL = "other-model"  # the provider may answer with a model that the request does not name
    REMOTE_URL = "remote-url"
    FILE_ID = "file-id"
    STORED_ID = "stored-id"
    CONTAINER = "container"
    BACKGROUND = "background"  # answered later, out of the meter's sight


class BadRequestError(ValueError):
    """A request that is not passed on, whatever was granted; the message says what is wrong with it."""


_MAX_REFUSALS: Final = 20
_MAX_SHOWN: Final = 40
_MAX_PATH: Final = 200

_FETCHING_MODEL: Final = re.compile(
    r"search-preview|search-api|[-/]search$|:online|deep-research|^(perplexity/)?sonar|^(groq/)?compound", re.IGNORECASE
)


class Finder:
    """Collects what is refused, with its place."""

    def __init__(self) -> None:
        self._found: list[Refusal] = []

    def refuse(self, grant: str, path: tuple[str | int, ...], what: str) -> None:
        """Note one thing."""
        if len(self._found) < _MAX_REFUSALS:
            shown = "".join(f"[{part}]" if isinstance(part, int) else f".{_shown(part)}" for part in path)
            shown = shown.removeprefix(".") or "body"
            shown = shown if len(shown) <= _MAX_PATH else f"{shown[:_MAX_PATH]}…"
            self._found.append(Refusal(grant=str(grant), path=shown, what=what))

    def refuse_unknown(self, kind: str, name: object, path: tuple[str | int, ...]) -> None:
        """Note something that is not known to be harmless; `kind` is field, tool or content."""
        shown = _shown(name)
        self.refuse(f"{kind}:{shown}", path, f"{kind} {shown!r}, which is not known to be harmless,")

    def check_keys(self, body: JsonObject, known: Collection[str], refused: Mapping[str, Grant]) -> None:
        """Hold the top-level keys against those that are known; null says nothing and passes."""
        for key, value in body.items():
            if value is None or key in known:
                continue
            if (grant := refused.get(key)) is not None:
                self.refuse(grant, (key,), f"{key!r}")
            else:
                self.refuse_unknown("field", key, (key,))

    def check_model(self, model: object, path: tuple[str | int, ...]) -> None:
        """Refuse a model that fetches by itself."""
        if isinstance(model, str) and fetching_model(model):
            self.refuse(Grant.WEB_SEARCH, path, f"model {_shown(model)!r}, which searches by itself,")

    def items(
        self, source: JsonObject, key: str, path: tuple[str | int, ...] = ()
    ) -> Iterator[tuple[tuple[str | int, ...], object]]:
        """Each item of a list with its place. A lenient server may read something else as a list, so it is refused."""
        value = source.get(key)
        if isinstance(value, list):
            yield from (((*path, key, index), item) for index, item in enumerate(cast("list[object]", value)))
        elif value is not None:
            self.refuse_unknown("field", key, (*path, key))

    def found(self) -> tuple[Refusal, ...]:
        """What was refused."""
        return tuple(self._found)


def _shown(name: object) -> str:
    text = name if isinstance(name, str) else f"of type {type(name).__name__}"
    text = "".join(each if each.isprintable() else "?" for each in text[: _MAX_SHOWN + 1])
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


@lru_cache(maxsize=64)  # a session names the same few again and again
def fetching_model(model: str) -> bool:
    """Whether a model is one that searches the web by itself, as its name tells."""
    return _FETCHING_MODEL.search(model) is not None


def is_remote(url: object) -> bool:
    """Whether a URL (or what stands in its place) is anything but data that the request itself carries."""
    return not (isinstance(url, str) and url[:5].lower() == "data:")


def read_body(data: bytes, *, max_bytes: int) -> JsonObject:
    """Read a request's body, decoded of any transfer coding.

    Raises:
        BadRequestError: It is too large, or no strict JSON object (UTF-8, no duplicate key or NaN, at most 200 levels).
    """
    if len(data) > max_bytes:
        message = f"the body has {len(data)} bytes, more than {max_bytes}"
        raise BadRequestError(message)
    try:
        return parse_object(data)
    except MalformedJsonError as error:
        message = f"the body is no strict JSON object: {error}"
        raise BadRequestError(message) from None
    except ValueError as error:  # json.loads on a number of more digits than Python converts
        message = f"the body is no strict JSON object: {type(error).__name__}"
        raise BadRequestError(message) from None


def require_plain_head(headers: Mapping[str, str]) -> None:
    """Check that a body with these headers (names lower case) is JSON as it stands.

    Raises:
        BadRequestError: It is coded, or of another type or character set.
    """
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"", "identity"}:
        message = f"content-encoding {_shown(coding)!r}; send the body as it is"
        raise BadRequestError(message)
    kind, _, parameters = headers.get("content-type", "").partition(";")
    if kind.strip().lower() != "application/json":
        message = f"content-type {_shown(kind.strip())!r}; send application/json"
        raise BadRequestError(message)
    parameter = parameters.replace('"', "").replace(" ", "").lower()
    if parameter not in {"", "charset=utf-8", "charset=utf8"}:
        message = f"content-type parameter {_shown(parameter)!r}; send UTF-8"
        raise BadRequestError(message)


def check_request(dialect: Dialect, route: Route, body: JsonObject, *, grants: Collection[str]) -> tuple[Refusal, ...]:
    """What of a request may not go out, given what the arm grants; empty when all of it may."""
    return tuple(each for each in dialect.check(route, body) if each.grant not in grants)


@cache
def _beginnings(names: frozenset[str]) -> tuple[str, ...]:
    return tuple(name[:-1] for name in names if name.endswith("*"))


def upstream_headers(dialect: Dialect, headers: Mapping[str, str], *, key: str) -> dict[str, str]:
    """The headers that go upstream: those of the client that the dialect passes, and the provider's key."""
    known = dialect.passed_headers
    begun = _beginnings(known)
    passed = {name: value for name, value in headers.items() if name in known or name.startswith(begun)}
    return {**passed, **dialect.auth_headers(key)}


def refusal_text(refusals: Iterable[Refusal]) -> str:
    """All refusals in one line."""
    return "; ".join(each.message for each in refusals)
