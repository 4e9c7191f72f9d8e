"""Gemini generateContent: replies, read and written.

Usage: `usageMetadata` is repeated in each chunk, the last one counts. `cachedContentTokenCount` stands inside
`promptTokenCount`; `toolUsePromptTokenCount` and `thoughtsTokenCount` stand beside `promptTokenCount` and
`candidatesTokenCount`. By the rules of protobuf a count that is zero is left out.
"""

from typing import Final, cast

from fairtrial.gateway.dialect import Call, ErrorKind, JsonObject, Rendered, ScriptedReply, Stop
from fairtrial.gateway.fields import as_object, count_in, object_in, objects_in, text_in
from fairtrial.gateway.http import render_event, render_json, render_stream, text_pieces
from fairtrial.gateway.meter import Found, OpenCall
from fairtrial.model.usage import TokenUsage

__all__ = ["GeminiReader", "error_object", "render_reply"]

_STOPS: Final = {Stop.END: "STOP", Stop.TOOL_CALLS: "STOP", Stop.MAX_TOKENS: "MAX_TOKENS", Stop.REFUSAL: "SAFETY"}
_ERRORS: Final = {
    ErrorKind.BAD_REQUEST: "INVALID_ARGUMENT",
    ErrorKind.UNAUTHORIZED: "UNAUTHENTICATED",
    ErrorKind.FORBIDDEN: "PERMISSION_DENIED",
    ErrorKind.NOT_FOUND: "NOT_FOUND",
    ErrorKind.TOO_LARGE: "INVALID_ARGUMENT",
    ErrorKind.RATE_LIMITED: "RESOURCE_EXHAUSTED",
    ErrorKind.OVERLOADED: "UNAVAILABLE",
    ErrorKind.TIMEOUT: "DEADLINE_EXCEEDED",
    ErrorKind.PROVIDER: "INTERNAL",
    ErrorKind.OTHER: "UNKNOWN",
}


class GeminiReader:
    """Reads one reply."""

    def __init__(self) -> None:
        self.found = Found()
        self._usage: JsonObject | None = None

    def take_event(self, value: JsonObject) -> None:
        """Read one chunk."""
        found = self.found
        if "error" in value:
            error = object_in(value, "error")
            found.fail(text_in(error, "status"), text_in(error, "message"))
            return
        self._usage = as_object(value.get("usageMetadata")) or self._usage
        found.served_model = text_in(value, "modelVersion") or found.served_model
        found.reply_id = text_in(value, "responseId") or found.reply_id
        for candidate in objects_in(value, "candidates"):
            for part in objects_in(object_in(candidate, "content"), "parts"):
                self._take_part(part)
            if (reason := text_in(candidate, "finishReason")) is not None:
                found.stop_reason, found.ended = reason, True
        if (reason := text_in(object_in(value, "promptFeedback"), "blockReason")) is not None:
            found.stop_reason, found.ended = reason, True

    def take_done(self) -> None:
        """No part of this API; some servers send it all the same."""

    def take_body(self, value: object) -> None:
        """Read a whole reply: one object, or (a stream without `alt=sse`) a list of chunks."""
        chunks = cast("list[object]", value) if isinstance(value, list) else [value]
        for chunk in map(as_object, chunks):
            if chunk is None or not {"candidates", "usageMetadata", "promptFeedback", "error"} & chunk.keys():
                self.found.complain("the body is no generated content")
            else:
                self.take_event(chunk)

    def usage(self) -> TokenUsage | None:
        """The last account."""
        usage = self._usage
        if usage is None:
            return None
        prompt, cached, tool = (
            _count(usage, name) for name in ("promptTokenCount", "cachedContentTokenCount", "toolUsePromptTokenCount")
        )
        written, thought = (_count(usage, name) for name in ("candidatesTokenCount", "thoughtsTokenCount"))
        uncached = None
        if prompt is not None and cached is not None and tool is not None and prompt >= cached:
            uncached = prompt - cached + tool
        return TokenUsage(
            uncached_input=uncached,
            cache_write=0,  # what is written to this cache is written by requests of their own, which are not passed
            cache_read=cached,
            output=None if written is None or thought is None else written + thought,
            reasoning=thought,
        )

    def _take_part(self, part: JsonObject) -> None:
        found = self.found
        found.keep(found.thinking if part.get("thought") is True else found.text, text_in(part, "text"))
        if call := object_in(part, "functionCall"):
            found.calls[len(found.calls)] = OpenCall(
                id=text_in(call, "id"), name=text_in(call, "name") or "", input=object_in(call, "args"), closed=True
            )
        for hosted in ("executableCode", "toolCall"):
            if given := object_in(part, hosted):
                found.calls[len(found.calls)] = OpenCall(
                    id=text_in(given, "id"), name=hosted, namespace="hosted", input=given, closed=True
                )


def _count(usage: JsonObject, name: str) -> int | None:
    return 0 if usage.get(name) is None else count_in(usage, name)


def error_object(status: int, kind: ErrorKind, message: str) -> JsonObject:
    """An error as this API writes it."""
    return {"error": {"code": status, "message": message, "status": _ERRORS[kind]}}


def _usage_object(usage: TokenUsage) -> JsonObject:
    reasoning = usage.reasoning or 0
    prompt = None
    if usage.uncached_input is not None and usage.cache_read is not None:
        prompt = usage.uncached_input + usage.cache_read + (usage.cache_write or 0)
    written: dict[str, int | None] = {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": None if usage.output is None else usage.output - reasoning,
        "thoughtsTokenCount": reasoning,
    }
    if prompt is not None and usage.output is not None:
        written["totalTokenCount"] = prompt + usage.output
    # An account of nothing at all would read as none.
    return {name: count for name, count in written.items() if count or (name == "promptTokenCount" and count == 0)}


def _parts(reply: ScriptedReply) -> list[JsonObject]:
    parts: list[JsonObject] = [
        {"text": text, "thought": True} for text in text_pieces(reply.thinking, reply.piece_characters)
    ]
    parts.extend({"text": text} for text in text_pieces(reply.text, reply.piece_characters))
    for index, tool in enumerate(reply.tool_calls):
        call: JsonObject = {"id": f"call_{reply.id}_{index}", "name": tool.name, "args": tool.input or {}}
        parts.append({"functionCall": call})
    return parts


def render_reply(reply: ScriptedReply, call: Call) -> Rendered:
    """A scripted reply, streamed or not."""
    head: JsonObject = {
        "responseId": f"resp_{reply.id}",
        "modelVersion": reply.model or call.requested_model or "scripted",
    }
    usage: JsonObject = {} if reply.usage is None else {"usageMetadata": _usage_object(reply.usage)}
    parts = _parts(reply)
    chunks: list[JsonObject] = []
    for position, part in enumerate(parts or [{"text": ""}]):
        is_last = position >= len(parts) - 1
        candidate: JsonObject = {"index": 0, "content": {"role": "model", "parts": [part]}}
        if is_last:
            candidate["finishReason"] = _STOPS[reply.stop_or_default]
        chunks.append({"candidates": [candidate], **(usage if is_last else {}), **head})
    if not call.stream:
        whole: JsonObject = {
            "index": 0,
            "content": {"role": "model", "parts": parts},
            "finishReason": _STOPS[reply.stop_or_default],
        }
        return render_json(200, {"candidates": [whole], **usage, **head}, delay_s=reply.first_delay_s)
    if call.route.query != "alt=sse":
        return render_json(200, chunks, delay_s=reply.first_delay_s)
    events = [render_event(chunk) for chunk in chunks]
    return render_stream(events, first_delay_s=reply.first_delay_s, piece_delay_s=reply.piece_delay_s)
