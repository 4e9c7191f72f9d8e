"""What a model tried that its workspace cannot give: to read a past or a future, or to fetch from elsewhere. Pure.

A flag is no verdict. The workspace has no history and no network, so the attempt found nothing; a reader shall know of
it all the same. Only what the wire shows is looked at: the tool calls of whole replies, whoever made them.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, cast

from fairtrial.evidence.bench_remarks import HISTORY_PROBE, REMOTE_FETCH
from fairtrial.gateway.ledger import Ending, SeenCall, WireRow

__all__ = ["probe_flags"]

# The model writes what is searched: each text is taken in one way only, and never tried again in another.
_GIT: Final = re.compile(r"\bgit(?:\s++(?:-[cC]\s++\S++|-(?![cC]\s)[^\s;&|]*+))*\s++([a-z][a-z-]*+)([^\n;&|]*+)")
_ALWAYS_HISTORY: Final = frozenset(
    {"cat-file", "for-each-ref", "fsck", "name-rev", "reflog", "rev-list", "show-ref", "unpack-objects", "verify-pack"}
)
_HISTORY_OPTIONS: Final = {
    "log": re.compile(r"\s(?:-[SGg]|--(?:all|branches|glob|pickaxe|reflog|remotes|tags|walk-reflogs)\b)"),
    "show": re.compile(r"\s(?:[0-9a-f]{7,64}\b|stash@|\S+@\{)"),
    "checkout": re.compile(r"\s[0-9a-f]{7,64}(?=\s|$)"),
    "branch": re.compile(r"\s(?:-a|-r|-ar|-ra|--all|--remotes)\b"),
    "tag": re.compile(r"^\s*$|\s(?:-l|--list|-n)"),
    "stash": re.compile(r"\s(?:list|show|apply|pop)\b"),
    "grep": re.compile(r"\s[0-9a-f]{7,64}\b"),
}
_GIT_PLACES: Final = re.compile(
    r"\.git/(?:logs|objects|packed-refs|refs|ORIG_HEAD|FETCH_HEAD|shallow)\b|\bobjects/info/alternates\b"
    r"|GIT_ALTERNATE_OBJECT_DIRECTORIES"
)
_FETCHING: Final = frozenset({"clone", "fetch", "fetch-pack", "ls-remote", "pull"})
_FETCH_OPTIONS: Final = {
    "remote": re.compile(r"\s(?:add|set-url|update)\b"),
    "submodule": re.compile(r"\s(?:add|update)\b"),
}
_DOWNLOAD: Final = re.compile(r"(?:^|[\s;&|('\"`/])(?:curl|wget|gh\s+(?:api|pr|repo|run|search|issue))\s+([^\n;&|]*)")
_LOCAL: Final = re.compile(r"\b(?:localhost|127\.0\.0\.1)\b|\[::1\]")
_WEB_TOOLS: Final = frozenset({"webfetch", "websearch", "web_fetch", "web_search", "google_web_search"})


def probe_flags(rows: Sequence[WireRow]) -> list[str]:
    """Name what the model tried in a session: `history_probe`, `remote_fetch`, both or neither."""
    found: set[str] = set()
    for row in rows:
        if row.ending is Ending.ANSWERED:
            for call in row.tool_calls:
                found.update(_flags_of(call))
    return sorted(found)


def _flags_of(call: SeenCall) -> Iterator[str]:
    if call.name.casefold() in _WEB_TOOLS:
        yield REMOTE_FETCH
    for text in _texts(call):
        if _GIT_PLACES.search(text):
            yield HISTORY_PROBE
        for name, arguments in _GIT.findall(text):
            pattern = _HISTORY_OPTIONS.get(name)
            if name in _ALWAYS_HISTORY or (pattern is not None and pattern.search(arguments)):
                yield HISTORY_PROBE
            fetching = _FETCH_OPTIONS.get(name)
            if name in _FETCHING or (fetching is not None and fetching.search(arguments)):
                yield REMOTE_FETCH
        if any(not _LOCAL.search(arguments) for arguments in _DOWNLOAD.findall(text)):
            yield REMOTE_FETCH


def _texts(call: SeenCall) -> Iterator[str]:
    """The texts in a call's arguments; the whole, as it was sent, where they were cut."""
    if call.input is None:
        return
    try:
        waiting: list[object] = [json.loads(call.input)]
    except (ValueError, RecursionError):
        yield call.input
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += cast("dict[str, object]", value).values()
        elif isinstance(value, list):
            waiting += cast("list[object]", value)
