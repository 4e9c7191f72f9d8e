"""What a Messages request may hold. Source: the request types of Anthropic's Python SDK 2.14."""

import re
from typing import Final

from fairtrial.gateway.dialect import JsonObject, Refusal
from fairtrial.gateway.egress import Finder, Grant, is_remote
from fairtrial.gateway.fields import as_object, object_in

__all__ = ["check_anthropic"]

_KEYS: Final = frozenset(
    (
        *("model", "messages", "max_tokens", "system", "stream", "stop_sequences", "temperature", "top_k", "top_p"),
        *("thinking", "tool_choice", "tools", "metadata", "cache_control", "service_tier", "speed", "inference_geo"),
        *("output_config", "output_format", "context_management", "compaction", "diagnostics", "betas"),
    )
)
_REFUSED_KEYS: Final = {
    "mcp_servers": Grant.MCP,
    "container": Grant.CONTAINER,
    "fallbacks": Grant.OTHER_MODEL,
    "thread": Grant.STORED_ID,
}

_CLIENT_TOOL: Final = re.compile(
    r"custom|(bash|text_editor|computer|memory|computer_toolset|browser_toolset)_[0-9]{8}"
    r"|tool_search_tool_(regex|bm25)(_[0-9]{8})?"  # searches the tools that the request itself defines
)
_HOSTED: Final = (
    ("web_search", Grant.WEB_SEARCH),
    ("web_fetch", Grant.WEB_FETCH),
    ("code_execution", Grant.CODE_EXECUTION),
    ("bash_code_execution", Grant.CODE_EXECUTION),
    ("text_editor_code_execution", Grant.CODE_EXECUTION),
    ("mcp", Grant.MCP),
    ("advisor", Grant.ADVISOR),
    ("container", Grant.FILE_ID),
)
_HARMLESS_CONTENT: Final = frozenset(
    (
        *("text", "thinking", "redacted_thinking", "tool_use", "tool_reference", "tool_removal", "compaction"),
        *("fallback", "search_result", "tool_search_tool_result", "browser_state"),
    )
)


def check_anthropic(body: JsonObject) -> tuple[Refusal, ...]:
    """Every part of a Messages request that could make the provider fetch something."""
    finder = Finder()
    finder.check_keys(body, _KEYS, _REFUSED_KEYS)
    finder.check_model(body.get("model"), ("model",))
    for path, tool in finder.items(body, "tools"):
        _check_tool(finder, tool, path)
    _check_content(finder, body.get("system"), ("system",))
    for path, message in finder.items(body, "messages"):
        if (found := as_object(message)) is None:
            finder.refuse_unknown("content", message, path)
        else:
            _check_content(finder, found.get("content"), (*path, "content"))
    return finder.found()


def _check_tool(finder: Finder, tool: object, path: tuple[str | int, ...]) -> None:
    found = as_object(tool)
    kind = "custom" if found is not None and found.get("type") is None else (found or {}).get("type")
    if isinstance(kind, str) and _CLIENT_TOOL.fullmatch(kind):
        return
    _refuse_hosted(finder, "tool", kind, path)


def _refuse_hosted(finder: Finder, word: str, kind: object, path: tuple[str | int, ...]) -> None:
    for start, grant in _HOSTED:
        if isinstance(kind, str) and kind.startswith(start):
            finder.refuse(grant, path, f"hosted {word} {kind[:40]!r}")
            return
    finder.refuse_unknown(word, kind, path)


def _check_content(finder: Finder, content: object, path: tuple[str | int, ...]) -> None:
    """Check blocks wherever they nest: messages, tool results, documents made of blocks."""
    if content is None or isinstance(content, str):
        return
    blocks: list[object] = content if isinstance(content, list) else [content]  # pyright: ignore[reportUnknownVariableType] -- JSON
    for index, block in enumerate(blocks):
        _check_block(finder, block, (*path, index))


def _check_block(finder: Finder, block: object, path: tuple[str | int, ...]) -> None:
    found = as_object(block)
    match (found or {}).get("type"):
        case str(kind) if kind in _HARMLESS_CONTENT:
            pass
        case "image" | "document":
            _check_source(finder, (found or {}).get("source"), (*path, "source"))
        case "tool_result":
            _check_content(finder, (found or {}).get("content"), (*path, "content"))
        case "tool_addition":
            _check_addition(finder, object_in(found or {}, "tool"), (*path, "tool"))
        case "server_tool_use":
            name = (found or {}).get("name")
            if not (isinstance(name, str) and _CLIENT_TOOL.fullmatch(name)):
                _refuse_hosted(finder, "tool", name, path)
        case kind:
            _refuse_hosted(finder, "content", kind, path)


def _check_addition(finder: Finder, tool: JsonObject, path: tuple[str | int, ...]) -> None:
    match tool.get("type"):
        case "tool_reference":
            pass
        case "tool_definition":
            _check_tool(finder, tool.get("definition"), (*path, "definition"))
        case kind:
            _refuse_hosted(finder, "tool", kind, path)


def _check_source(finder: Finder, source: object, path: tuple[str | int, ...]) -> None:
    found = as_object(source)
    match (found or {}).get("type"):
        case "base64" | "text":
            pass
        case "content":
            _check_content(finder, (found or {}).get("content"), (*path, "content"))
        case "url":
            if is_remote((found or {}).get("url")):
                finder.refuse(Grant.REMOTE_URL, path, "a source by URL")
        case "file":
            finder.refuse(Grant.FILE_ID, path, "a file stored at the provider")
        case kind:
            finder.refuse_unknown("content", kind, path)
