"""Anthropic Messages: replies, read and written.

Usage: `input_tokens`, `cache_creation_input_tokens` and `cache_read_input_tokens` are disjoint. `message_start` carries
a first account and each `message_delta` a later one, cumulative; what a later one leaves out or sets to null stands as
it was. Cache fields that are left out altogether are those of a server without a cache: zero. A compaction that the
server makes on the way is billed too, and stands only in `usage.iterations`.
"""

from typing import Final

from fairtrial.gateway.dialect import Call, ErrorKind, JsonObject, Rendered, ScriptedReply, Stop
from fairtrial.gateway.fields import as_object, count_in, object_in, objects_in, render_compact, text_in
from fairtrial.gateway.http import render_event, render_json, render_stream, text_pieces
from fairtrial.gateway.meter import Found, OpenCall
from fairtrial.model.usage import TokenUsage, sum_usage

__all__ = ["AnthropicReader", "error_object", "render_error_event", "render_reply"]

_ERRORS: Final = {
    ErrorKind.BAD_REQUEST: "invalid_request_error",
    ErrorKind.UNAUTHORIZED: "authentication_error",
    ErrorKind.FORBIDDEN: "permission_error",
    ErrorKind.NOT_FOUND: "not_found_error",
    ErrorKind.TOO_LARGE: "request_too_large",
    ErrorKind.RATE_LIMITED: "rate_limit_error",
    ErrorKind.OVERLOADED: "overloaded_error",
    ErrorKind.TIMEOUT: "timeout_error",
    ErrorKind.PROVIDER: "api_error",
    ErrorKind.OTHER: "api_error",
}
_STOPS: Final = {
    Stop.END: "end_turn",
    Stop.TOOL_CALLS: "tool_use",
    Stop.MAX_TOKENS: "max_tokens",
    Stop.REFUSAL: "refusal",
}
_CALLS: Final = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))


class AnthropicReader:
    """Reads one reply."""

    def __init__(self) -> None:
        self.found = Found()
        self._usage: JsonObject = {}

    def take_event(self, value: JsonObject) -> None:
        """Read one event; its type stands in its data."""
        found = self.found
        match value.get("type"):
            case "content_block_delta":
                self._take_delta(value.get("index"), object_in(value, "delta"))
            case "content_block_start":
                self._take_block(value.get("index"), object_in(value, "content_block"))
            case "content_block_stop":
                if (call := found.calls.get(_index(value.get("index")))) is not None:
                    call.closed = True
            case "message_start":
                self._take_message(object_in(value, "message"))
            case "message_delta":
                found.stop_reason = text_in(object_in(value, "delta"), "stop_reason") or found.stop_reason
                self._take_usage(object_in(value, "usage"))
            case "message_stop":
                found.ended = True
            case "error":
                self._take_error(value)
            case "ping":
                pass
            case kind:
                found.complain(f"an event of unknown type {kind!r:.60}")

    def take_done(self) -> None:
        """No part of this API; some servers send it all the same."""

    def take_body(self, value: object) -> None:
        """Read a whole reply."""
        body = as_object(value)
        kind = None if body is None else text_in(body, "type")
        if body is None or kind not in {"message", "error"}:
            self.found.complain("the body is no message")
        elif kind == "error":
            self._take_error(body)
            self.found.ended = True
        else:
            self._take_message(body)
            for index, block in enumerate(objects_in(body, "content")):
                self._take_block(index, block)
                if (call := self.found.calls.get(index)) is not None:
                    call.closed = True
            self.found.ended = True

    def usage(self) -> TokenUsage | None:
        """The last account of each field, and what compactions on the way took."""
        if not self._usage:
            return None
        compactions = [
            _read_usage(each)
            for each in objects_in(self._usage, "iterations")
            if text_in(each, "type") not in {"message", "fallback_message"}
        ]
        last = _read_usage(self._usage)
        return sum_usage((last, *compactions)) if compactions else last

    def _take_message(self, message: JsonObject) -> None:
        self.found.reply_id = text_in(message, "id")
        self.found.served_model = text_in(message, "model")
        self.found.stop_reason = text_in(message, "stop_reason")
        self._take_usage(object_in(message, "usage"))

    def _take_usage(self, usage: JsonObject) -> None:
        self._usage.update((key, value) for key, value in usage.items() if value is not None)
        self.found.take_terms(usage)

    def _take_block(self, index: object, block: JsonObject) -> None:
        found = self.found
        match block.get("type"):
            case "text":
                found.keep(found.text, text_in(block, "text"))
            case "thinking":
                found.keep(found.thinking, text_in(block, "thinking"))
            case str(kind) if kind in _CALLS:
                given = as_object(block.get("input"))
                found.calls[_index(index)] = OpenCall(
                    id=text_in(block, "id"),
                    name=text_in(block, "name") or "",
                    namespace=None if kind == "tool_use" else kind,
                    # A stream begins each call with an empty input, whose text follows.
                    input=given or None,
                )
            case _:
                pass

    def _take_delta(self, index: object, delta: JsonObject) -> None:
        found = self.found
        match delta.get("type"):
            case "text_delta":
                found.keep(found.text, text_in(delta, "text"))
            case "thinking_delta":
                found.keep(found.thinking, text_in(delta, "thinking"))
            case "input_json_delta":
                call = found.calls.get(_index(index))
                if call is None:
                    found.complain("arguments of a call that never began")
                else:
                    found.keep(call.arguments, text_in(delta, "partial_json"))
            case _:
                pass

    def _take_error(self, value: JsonObject) -> None:
        error = object_in(value, "error")
        self.found.fail(text_in(error, "type"), text_in(error, "message"))


def _index(value: object) -> object:
    """What a block is known by; anything but a number stands for one block."""
    return value if isinstance(value, int) else None


def _read_usage(usage: JsonObject) -> TokenUsage:
    detail = object_in(usage, "cache_creation")
    return TokenUsage(
        uncached_input=count_in(usage, "input_tokens"),
        cache_write=_count_or_zero(usage, "cache_creation_input_tokens"),
        cache_read=_count_or_zero(usage, "cache_read_input_tokens"),
        output=count_in(usage, "output_tokens"),
        reasoning=count_in(object_in(usage, "output_tokens_details"), "thinking_tokens"),
        cache_write_1h=count_in(detail, "ephemeral_1h_input_tokens"),
    )


def _count_or_zero(usage: JsonObject, name: str) -> int | None:
    return 0 if usage.get(name) is None else count_in(usage, name)


def error_object(kind: ErrorKind, message: str) -> JsonObject:
    """An error as this API writes it."""
    return {"type": "error", "error": {"type": _ERRORS[kind], "message": message}}


def render_error_event(kind: ErrorKind, message: str) -> bytes:
    """An error in the middle of a stream."""
    return render_event(error_object(kind, message), name="error")


def _usage_object(usage: TokenUsage) -> JsonObject:
    written: JsonObject = {
        "input_tokens": usage.uncached_input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }
    if usage.cache_write_1h is not None and usage.cache_write is not None:
        written["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write - usage.cache_write_1h,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        }
    if usage.reasoning is not None:
        written["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return written


def _message(reply: ScriptedReply, call: Call, content: list[JsonObject]) -> JsonObject:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model or call.requested_model or "scripted",
        "content": content,
        "stop_reason": _STOPS[reply.stop_or_default],
        "stop_sequence": None,
    }


def _blocks(reply: ScriptedReply) -> list[JsonObject]:
    blocks: list[JsonObject] = []
    if reply.thinking:
        blocks.append({"type": "thinking", "thinking": reply.thinking, "signature": "c2NyaXB0ZWQ="})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    blocks.extend(
        {"type": "tool_use", "id": f"toolu_{reply.id}_{index}", "name": tool.name, "input": tool.input or {}}
        for index, tool in enumerate(reply.tool_calls)
    )
    return blocks


def render_reply(reply: ScriptedReply, call: Call) -> Rendered:
    """A scripted reply, streamed or not."""
    blocks = _blocks(reply)
    message = _message(reply, call, blocks)
    if not call.stream:
        if reply.usage is not None:
            message["usage"] = _usage_object(reply.usage)
        return render_json(200, message, delay_s=reply.first_delay_s)
    begun: JsonObject = {**message, "content": [], "stop_reason": None}
    ended: JsonObject = {
        "type": "message_delta",
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
    }
    if reply.usage is not None:
        # As the real service does: what was read is known at the start, what was written only at the end.
        usage = _usage_object(reply.usage)
        begun["usage"] = {**usage, "output_tokens": min(1, reply.usage.output or 0)}
        ended["usage"] = {key: value for key, value in usage.items() if key != "cache_creation"}
    events = [render_event({"type": "message_start", "message": begun}, name="message_start")]
    for index, block in enumerate(blocks):
        events.extend(_block_events(index, block, reply.piece_characters))
    events.append(render_event(ended, name="message_delta"))
    events.append(render_event({"type": "message_stop"}, name="message_stop"))
    return render_stream(events, first_delay_s=reply.first_delay_s, piece_delay_s=reply.piece_delay_s)


def _block_events(index: int, block: JsonObject, n_characters: int) -> list[bytes]:
    start: JsonObject
    deltas: list[JsonObject]
    match block["type"]:
        case "text":
            start = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in text_pieces(str(block["text"]), n_characters)]
        case "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            parts = text_pieces(str(block["thinking"]), n_characters)
            deltas = [{"type": "thinking_delta", "thinking": part} for part in parts]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case _:
            start = {**block, "input": {}}
            parts = text_pieces(render_compact(block["input"]).decode(), n_characters)
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
    name = "content_block_delta"
    return [
        render_event(
            {"type": "content_block_start", "index": index, "content_block": start}, name="content_block_start"
        ),
        *(render_event({"type": name, "index": index, "delta": delta}, name=name) for delta in deltas),
        render_event({"type": "content_block_stop", "index": index}, name="content_block_stop"),
    ]
