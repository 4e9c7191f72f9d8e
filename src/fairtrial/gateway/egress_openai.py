"""What a request to OpenAI's two APIs may hold. Source: the request types of OpenAI's Python SDK 3.57, and codex."""

from typing import Final

from fairtrial.gateway.dialect import JsonObject, Refusal
from fairtrial.gateway.egress import Finder, Grant, is_remote
from fairtrial.gateway.fields import as_object, object_in

__all__ = ["check_chat", "check_responses"]

_SHARED_KEYS: Final = (
    *("model", "stream", "stream_options", "temperature", "top_p", "top_logprobs", "tools", "tool_choice"),
    *("parallel_tool_calls", "metadata", "store", "user", "service_tier", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "prompt_cache_options", "reasoning"),
)
_CHAT_KEYS: Final = frozenset(
    (
        *_SHARED_KEYS,
        *("messages", "max_tokens", "max_completion_tokens", "n", "stop", "seed", "logit_bias", "logprobs"),
        *("frequency_penalty", "presence_penalty", "response_format", "reasoning_effort", "verbosity", "modalities"),
        *("prediction", "audio", "functions", "function_call"),
        # of other providers and local servers that speak this API
        *("top_k", "min_p", "repetition_penalty", "thinking", "enable_thinking", "chat_template_kwargs", "usage"),
        *("include_reasoning", "cache_control"),
    )
)
_RESPONSES_KEYS: Final = frozenset(
    (
        *_SHARED_KEYS,
        *("input", "instructions", "include", "max_output_tokens", "max_tool_calls", "text", "truncation"),
        *("context_management", "client_metadata", "access_programs"),
    )
)
_REFUSED_KEYS: Final = {
    "web_search_options": Grant.WEB_SEARCH,
    "search_parameters": Grant.WEB_SEARCH,
    "plugins": Grant.WEB_SEARCH,
    "mcp_servers": Grant.MCP,
    "models": Grant.OTHER_MODEL,
    "route": Grant.OTHER_MODEL,
    "provider": Grant.OTHER_MODEL,
    "fallbacks": Grant.OTHER_MODEL,
    "previous_response_id": Grant.STORED_ID,
    "conversation": Grant.STORED_ID,
    "prompt": Grant.STORED_ID,
    "container": Grant.CONTAINER,
}
_HOSTED: Final = (
    ("web_search", Grant.WEB_SEARCH),
    ("openrouter:web_search", Grant.WEB_SEARCH),
    ("openrouter:web_fetch", Grant.WEB_FETCH),
    ("browser_search", Grant.WEB_SEARCH),
    ("file_search", Grant.FILE_SEARCH),
    ("code_interpreter", Grant.CODE_EXECUTION),
    ("programmatic_tool_calling", Grant.CODE_EXECUTION),
    ("program", Grant.CODE_EXECUTION),
    ("shell", Grant.CODE_EXECUTION),
    ("image_generation", Grant.IMAGE_GENERATION),
    ("mcp", Grant.MCP),
    ("item_reference", Grant.STORED_ID),
)
_CLIENT_TOOLS: Final = frozenset(
    # `tool_search` searches the tools that the request itself defines.
    ("function", "custom", "local_shell", "apply_patch", "tool_search", "computer", "computer_use_preview")
)
_HARMLESS_ITEMS: Final = frozenset(
    (
        *("reasoning", "function_call", "custom_tool_call", "local_shell_call", "local_shell_call_output"),
        *("shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output", "tool_search_call"),
        *("computer_call", "compaction", "compaction_summary", "compaction_trigger", "context_compaction"),
        *("configuration_update", "ghost_snapshot"),
    )
)
_HARMLESS_PARTS: Final = frozenset(
    ("text", "refusal", "input_text", "output_text", "summary_text", "reasoning_text", "encrypted_content", "thinking")
)

_Path = tuple[str | int, ...]


def check_chat(body: JsonObject) -> tuple[Refusal, ...]:
    """Every part of a Chat Completions request that could make the provider fetch something."""
    finder = Finder()
    finder.check_keys(body, _CHAT_KEYS, _REFUSED_KEYS)
    finder.check_model(body.get("model"), ("model",))
    for path, tool in finder.items(body, "tools"):
        kind = (as_object(tool) or {}).get("type")
        if kind not in ("function", "custom"):
            _refuse_hosted(finder, "tool", kind, path)
    for path, message in finder.items(body, "messages"):
        if (found := as_object(message)) is None:
            finder.refuse_unknown("content", message, path)
            continue
        _check_parts(finder, found, "content", path)
        if (as_object(found.get("audio")) or {}).get("id") is not None:
            finder.refuse(Grant.STORED_ID, (*path, "audio"), "audio stored at the provider")
    return finder.found()


def check_responses(body: JsonObject) -> tuple[Refusal, ...]:
    """Every part of a Responses request that could make the provider fetch something."""
    finder = Finder()
    finder.check_keys(body, _RESPONSES_KEYS | {"background"}, _REFUSED_KEYS)
    finder.check_model(body.get("model"), ("model",))
    if body.get("background") not in (None, False):
        finder.refuse(Grant.BACKGROUND, ("background",), "an answer out of the meter's sight")
    _check_tools(finder, body, ())
    if not isinstance(body.get("input"), str):
        for path, item in finder.items(body, "input"):
            _check_item(finder, item, path)
    return finder.found()


def _refuse_hosted(finder: Finder, word: str, kind: object, path: _Path) -> None:
    for start, grant in _HOSTED:
        if isinstance(kind, str) and kind.startswith(start):
            finder.refuse(grant, path, f"hosted {word} {kind[:40]!r}")
            return
    finder.refuse_unknown(word, kind, path)


def _check_tools(finder: Finder, source: JsonObject, path: _Path) -> None:
    for place, tool in finder.items(source, "tools", path):
        found = as_object(tool) or {}
        match found.get("type"):
            case str(kind) if kind in _CLIENT_TOOLS:
                pass
            case "namespace":
                _check_tools(finder, found, place)
            case "shell" if object_in(found, "environment").get("type") == "local":
                pass  # anywhere else it runs at the provider
            case kind:
                _refuse_hosted(finder, "tool", kind, place)


def _check_item(finder: Finder, item: object, path: _Path) -> None:
    found = as_object(item) or {}
    kind = found.get("type")
    if kind is None and isinstance(found.get("role"), str):
        kind = "message"
    match kind:
        case str() if kind in _HARMLESS_ITEMS:
            pass
        case "message" | "agent_message":
            _check_parts(finder, found, "content", path)
        case "function_call_output" | "custom_tool_call_output" | "computer_call_output":
            _check_parts(finder, found, "output", path)
        case "tool_search_output" | "additional_tools":
            _check_tools(finder, found, path)
        case None:  # an item of nothing but an id is a reference
            finder.refuse(Grant.STORED_ID, path, "an item without a type")
        case _:
            _refuse_hosted(finder, "content", kind, path)


def _check_parts(finder: Finder, source: JsonObject, key: str, path: _Path) -> None:
    value = source.get(key)
    if value is None or isinstance(value, str):
        return
    if (single := as_object(value)) is not None:  # a screenshot stands alone
        _check_part(finder, single, (*path, key))
        return
    for place, part in finder.items(source, key, path):
        _check_part(finder, as_object(part) or {}, place)


def _check_part(finder: Finder, part: JsonObject, path: _Path) -> None:
    match part.get("type"):
        case str(kind) if kind in _HARMLESS_PARTS:
            pass
        case "image_url" | "input_image" | "computer_screenshot" | "video_url" | "input_file" | "file" | "input_audio":
            _check_addresses(finder, part, path)
        case kind:
            _refuse_hosted(finder, "content", kind, path)


def _check_addresses(finder: Finder, part: JsonObject, path: _Path) -> None:
    """Look for addresses and ids in a part of media and in the object inside it."""
    for key, value in part.items():
        place = (*path, key)
        if (inside := as_object(value)) is not None:
            _check_addresses(finder, inside, place)
        elif value is None:
            pass
        elif key == "url" or key.endswith("_url"):
            if is_remote(value):
                finder.refuse(Grant.REMOTE_URL, place, "a remote URL")
        elif key == "file_id" or key.endswith("_id"):
            finder.refuse(Grant.FILE_ID, place, "a file stored at the provider")
        elif key in ("file_data", "data") and is_remote(value) and ":" in str(value)[:100]:  # base64 has no colon
            finder.refuse(Grant.REMOTE_URL, place, "a remote URL")
