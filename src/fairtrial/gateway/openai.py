"""What the two APIs of OpenAI share: sessions, errors, lists of models, and the split of their input."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from fairtrial.gateway.dialect import ErrorKind, JsonObject, Rendered
from fairtrial.gateway.fields import count_in, object_in, text_in
from fairtrial.gateway.http import render_json
from fairtrial.model.usage import TokenUsage

__all__ = [
    "PASSED_HEADERS",
    "Claims",
    "error_object",
    "read_claims",
    "read_split_usage",
    "render_models",
    "split_usage_object",
]

PASSED_HEADERS: Final = frozenset(
    ("accept", "content-type", "user-agent", "openai-beta", "originator", "x-stainless-*")
)

_ERRORS: Final = {
    ErrorKind.BAD_REQUEST: ("invalid_request_error", "invalid_request"),
    ErrorKind.UNAUTHORIZED: ("invalid_request_error", "invalid_api_key"),
    ErrorKind.FORBIDDEN: ("invalid_request_error", "forbidden"),
    ErrorKind.NOT_FOUND: ("invalid_request_error", "not_found"),
    ErrorKind.TOO_LARGE: ("invalid_request_error", "request_too_large"),
    ErrorKind.RATE_LIMITED: ("requests", "rate_limit_exceeded"),
    ErrorKind.OVERLOADED: ("server_error", "server_is_overloaded"),
    ErrorKind.TIMEOUT: ("server_error", "timeout"),
    ErrorKind.PROVIDER: ("server_error", "server_error"),
    ErrorKind.OTHER: ("server_error", "server_error"),
}


class Claims(NamedTuple):
    """What a client says of the session that a request belongs to."""

    session: str | None
    agent: str | None
    parent: str | None


def read_claims(headers: Mapping[str, str], body: JsonObject) -> Claims:
    """The claims of codex (a thread within a session) and of opencode (a session with a parent)."""
    metadata = object_in(body, "client_metadata")

    def first(*names: str) -> str | None:
        values = [headers.get(name) or text_in(metadata, name) for name in names]
        return next((value for value in values if value), None)

    thread = first("thread_id", "thread-id")
    session = first("session_id", "session-id", "x-session-id", "x-session-affinity", "conversation_id") or thread
    parent = first("x-codex-parent-thread-id", "parent_thread_id", "x-parent-session-id")
    if thread is not None and (parent is not None or thread != session):
        return Claims(session=session, agent=thread, parent=parent)
    return Claims(session=session, agent=session if parent is not None else None, parent=parent)


def read_split_usage(usage: JsonObject, *, read: str, written: str) -> TokenUsage:
    """Usage whose cached tokens stand inside the input, and whose reasoning stands inside the output.

    `read` and `written` are the names of input and output: `prompt` and `completion`, or `input` and `output`. A usage
    without details is one of a server without a cache.
    """
    details = object_in(usage, f"{read}_tokens_details")
    cache_read = 0 if details.get("cached_tokens") is None else count_in(details, "cached_tokens")
    if cache_read == 0 and "cached_tokens" not in details:
        cache_read = count_in(usage, "prompt_cache_hit_tokens") or 0  # DeepSeek's name for it
    cache_write = 0 if details.get("cache_write_tokens") is None else count_in(details, "cache_write_tokens")
    total = count_in(usage, f"{read}_tokens")
    uncached = None
    if total is not None and cache_read is not None and cache_write is not None and total >= cache_read + cache_write:
        uncached = total - cache_read - cache_write
    return TokenUsage(
        uncached_input=uncached,
        cache_write=cache_write,
        cache_read=cache_read,
        output=count_in(usage, f"{written}_tokens"),
        reasoning=count_in(object_in(usage, f"{written}_tokens_details"), "reasoning_tokens"),
    )


def split_usage_object(usage: TokenUsage, *, read: str, written: str) -> JsonObject:
    """Write usage in that form."""
    inputs = (usage.uncached_input, usage.cache_write, usage.cache_read)
    total_read = None if None in inputs else sum(each or 0 for each in inputs)
    total = None if total_read is None or usage.output is None else total_read + usage.output
    details: JsonObject = {"cached_tokens": usage.cache_read}
    if usage.cache_write:
        details["cache_write_tokens"] = usage.cache_write
    written_object: JsonObject = {
        f"{read}_tokens": total_read,
        f"{read}_tokens_details": details,
        f"{written}_tokens": usage.output,
        "total_tokens": total,
    }
    if usage.reasoning is not None:
        written_object[f"{written}_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return written_object


def error_object(kind: ErrorKind, message: str) -> JsonObject:
    """An error as these APIs write it."""
    type_, code = _ERRORS[kind]
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


def render_models(models: tuple[str, ...]) -> Rendered:
    """List models."""
    data = [{"id": model, "object": "model", "created": 0, "owned_by": "fairtrial"} for model in models]
    return render_json(200, {"object": "list", "data": data})
