"""What a generateContent request may hold. Source: the request types of Google's Python SDK 3.6."""

import re
from typing import Final

from fairtrial.gateway.dialect import JsonObject, Refusal
from fairtrial.gateway.egress import Finder, Grant
from fairtrial.gateway.fields import as_object

__all__ = ["check_gemini"]

_KEYS: Final = frozenset(
    (
        *("contents", "tools", "toolConfig", "safetySettings", "systemInstruction", "generationConfig", "labels"),
        *("model", "serviceTier", "store"),
    )
)
_REFUSED_KEYS: Final = {"cachedContent": Grant.STORED_ID}
_CLIENT_TOOLS: Final = frozenset(("functionDeclarations", "computerUse"))
_HOSTED_TOOLS: Final = {
    "googleSearch": Grant.WEB_SEARCH,
    "googleSearchRetrieval": Grant.WEB_SEARCH,
    "enterpriseWebSearch": Grant.WEB_SEARCH,
    "parallelAiSearch": Grant.WEB_SEARCH,
    "exaAiSearch": Grant.WEB_SEARCH,
    "urlContext": Grant.WEB_FETCH,
    "codeExecution": Grant.CODE_EXECUTION,
    "fileSearch": Grant.FILE_SEARCH,
    "retrieval": Grant.FILE_SEARCH,
    "googleMaps": Grant.MAPS,
    "mcpServers": Grant.MCP,
}
_HARMLESS_PARTS: Final = frozenset(
    (
        *("text", "inlineData", "functionCall", "thought", "thoughtSignature", "videoMetadata", "mediaResolution"),
        "partMetadata",
    )
)
_REFUSED_PARTS: Final = {
    "fileData": Grant.REMOTE_URL,
    "executableCode": Grant.CODE_EXECUTION,
    "codeExecutionResult": Grant.CODE_EXECUTION,
    "toolCall": Grant.WEB_SEARCH,
    "toolResponse": Grant.WEB_SEARCH,
}
_HUMP: Final = re.compile(r"_+([A-Za-z0-9])")

_Path = tuple[str | int, ...]


def check_gemini(model: str | None, body: JsonObject) -> tuple[Refusal, ...]:
    """Every part of a generateContent or countTokens request that could make the provider fetch something."""
    finder = Finder()
    finder.check_model(model, ("model",))
    _check_request(finder, body, ())
    return finder.found()


def _check_request(finder: Finder, body: JsonObject, path: _Path) -> None:
    camel = _as_camel(finder, body, path)
    if not path and (inner := camel.pop("generateContentRequest", None)) is not None:
        _check_request(finder, as_object(inner) or {"generateContentRequest": inner}, ("generateContentRequest",))
    finder.check_keys(camel, _KEYS, _REFUSED_KEYS)
    finder.check_model(camel.get("model"), (*path, "model"))
    for place, tool in finder.items(camel, "tools", path):
        _check_tool(finder, tool, place)
    for place, content in finder.items(camel, "contents", path):
        _check_content(finder, content, place)
    if (system := camel.get("systemInstruction")) is not None and not isinstance(system, str):
        _check_content(finder, system, (*path, "systemInstruction"))


def _as_camel(finder: Finder, source: JsonObject, path: _Path) -> JsonObject:
    """The object with its keys in the one form; two forms of one key at once say two things and are refused."""
    camel: JsonObject = {}
    for key, value in source.items():
        name = _HUMP.sub(lambda found: found[1].upper(), key)
        if name in camel:
            finder.refuse_unknown("field", key, (*path, key))
        camel[name] = value
    return camel


def _check_tool(finder: Finder, tool: object, path: _Path) -> None:
    if (found := as_object(tool)) is None:
        finder.refuse_unknown("tool", tool, path)
        return
    for kind, value in _as_camel(finder, found, path).items():
        if value is None or kind in _CLIENT_TOOLS:
            continue
        if (grant := _HOSTED_TOOLS.get(kind)) is not None:
            finder.refuse(grant, path, f"hosted tool {kind!r}")
        else:
            finder.refuse_unknown("tool", kind, path)


def _check_content(finder: Finder, content: object, path: _Path) -> None:
    if (found := as_object(content)) is None:
        finder.refuse_unknown("content", content, path)
        return
    for place, part in finder.items(found, "parts", path):
        _check_part(finder, part, place)


def _check_part(finder: Finder, part: object, path: _Path) -> None:
    if (found := as_object(part)) is None:
        finder.refuse_unknown("content", part, path)
        return
    for kind, value in _as_camel(finder, found, path).items():
        if value is None or kind in _HARMLESS_PARTS:
            continue
        if kind == "functionResponse":
            for place, inner in finder.items(as_object(value) or {"parts": value}, "parts", (*path, kind)):
                _check_part(finder, inner, place)
        elif (grant := _REFUSED_PARTS.get(kind)) is not None:
            finder.refuse(grant, (*path, kind), f"{kind!r}")
        else:
            finder.refuse_unknown("content", kind, (*path, kind))
