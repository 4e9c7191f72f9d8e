"""OpenAI Chat Completions: replies, read and written.

Usage: cached tokens stand inside `prompt_tokens`, reasoning inside `completion_tokens`. A stream says its usage in a
last chunk, and only when asked to; some servers repeat it in every chunk, cumulative: the last one counts.
"""

from typing import Final

from fairtrial.gateway.dialect import Call, JsonObject, Rendered, ScriptedReply, Stop
from fairtrial.gateway.fields import as_object, object_in, objects_in, render_compact, text_in
from fairtrial.gateway.http import render_event, render_json, render_stream, text_pieces
from fairtrial.gateway.meter import Found, OpenCall
from fairtrial.gateway.openai import read_split_usage, split_usage_object
from fairtrial.model.usage import TokenUsage

__all__ = ["ChatReader", "render_reply"]

_STOPS: Final = {
    Stop.END: "stop",
    Stop.TOOL_CALLS: "tool_calls",
    Stop.MAX_TOKENS: "length",
    Stop.REFUSAL: "content_filter",
}


class ChatReader:
    """Reads one reply."""

    def __init__(self) -> None:
        self.found = Found()
        self._usage: JsonObject | None = None

    def take_event(self, value: JsonObject) -> None:
        """Read one chunk."""
        if not self._take_head(value):
            return
        for choice in objects_in(value, "choices"):
            self._take_message(choice, object_in(choice, "delta"))
        if self.found.stop_reason is not None and self._usage is not None:
            self.found.ended = True

    def take_done(self) -> None:
        """The end of the stream."""
        self._close()

    def take_body(self, value: object) -> None:
        """Read a whole reply."""
        body = as_object(value)
        if body is None or not (isinstance(body.get("choices"), list) or "error" in body):
            self.found.complain("the body is no completion")
        elif self._take_head(body):
            for choice in objects_in(body, "choices"):
                self._take_message(choice, object_in(choice, "message"))
            self._close()
        else:
            self._close()

    def usage(self) -> TokenUsage | None:
        """The last account."""
        if self._usage is None:
            return None
        return read_split_usage(self._usage, read="prompt", written="completion")

    def _take_head(self, value: JsonObject) -> bool:
        """Read what is beside the choices; False for an error."""
        if (error := value.get("error")) is not None:
            found = as_object(error) or {}
            code = text_in(found, "code") or text_in(found, "type")
            self.found.fail(code, text_in(found, "message") or (error if isinstance(error, str) else None))
            return False
        self.found.reply_id = text_in(value, "id") or self.found.reply_id
        self.found.served_model = text_in(value, "model") or self.found.served_model
        if usage := as_object(value.get("usage")):
            self._usage = usage
        if "service_tier" in value:
            self.found.take_terms(value)
        return True

    def _take_message(self, choice: JsonObject, message: JsonObject) -> None:
        found = self.found
        found.keep(found.text, text_in(message, "content"))
        found.keep(found.thinking, text_in(message, "reasoning_content") or text_in(message, "reasoning"))
        for position, call in enumerate(objects_in(message, "tool_calls")):
            self._take_call((_place(choice, 0), _place(call, position)), call)
        if (reason := text_in(choice, "finish_reason")) is not None:
            found.stop_reason = reason
            for open_call in found.calls.values():
                open_call.closed = True

    def _take_call(self, key: object, call: JsonObject) -> None:
        part = object_in(call, "custom" if call.get("type") == "custom" else "function")
        name = text_in(part, "name")
        known = self.found.calls.get(key)
        if known is None:
            known = self.found.calls[key] = OpenCall(id=text_in(call, "id"), name="")
        known.name = known.name or name or ""
        if (text := text_in(part, "input")) is not None:
            known.input = {"input": str((known.input or {}).get("input", "")) + text}
        self.found.keep(known.arguments, text_in(part, "arguments"))

    def _close(self) -> None:
        self.found.ended = True
        for call in self.found.calls.values():
            call.closed = True


def _place(source: JsonObject, default: int) -> int:
    index = source.get("index")
    return index if isinstance(index, int) else default


def _call_objects(reply: ScriptedReply) -> list[JsonObject]:
    return [
        {
            "id": f"call_{reply.id}_{index}",
            "type": "function",
            "function": {"name": tool.name, "arguments": render_compact(tool.input or {}).decode()},
        }
        for index, tool in enumerate(reply.tool_calls)
    ]


def render_reply(reply: ScriptedReply, call: Call) -> Rendered:
    """A scripted reply, streamed or not."""
    head: JsonObject = {
        "id": f"chatcmpl-{reply.id}",
        "object": "chat.completion.chunk" if call.stream else "chat.completion",
        "created": 0,
        "model": reply.model or call.requested_model or "scripted",
    }
    usage = None
    if reply.usage is not None:
        usage = split_usage_object(reply.usage, read="prompt", written="completion")
    finish = _STOPS[reply.stop_or_default]
    if call.stream:
        return _render_chunks(reply, call, head, usage, finish)
    message: JsonObject = {"role": "assistant", "content": reply.text or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.tool_calls:
        message["tool_calls"] = _call_objects(reply)
    body: JsonObject = {**head, "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    if usage is not None:
        body["usage"] = usage
    return render_json(200, body, delay_s=reply.first_delay_s)


def _render_chunks(
    reply: ScriptedReply, call: Call, head: JsonObject, usage: JsonObject | None, finish: str
) -> Rendered:
    deltas: list[JsonObject] = [{"role": "assistant", "content": ""}]
    deltas.extend({"reasoning_content": part} for part in text_pieces(reply.thinking, reply.piece_characters))
    deltas.extend({"content": part} for part in text_pieces(reply.text, reply.piece_characters))
    for index, tool in enumerate(_call_objects(reply)):
        function = object_in(tool, "function")
        deltas.append({"tool_calls": [{**tool, "index": index, "function": {**function, "arguments": ""}}]})
        parts = text_pieces(str(function["arguments"]), reply.piece_characters)
        deltas.extend({"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in parts)
    choices: list[JsonObject] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    events = [render_event({**head, "choices": [choice]}) for choice in choices]
    if usage is not None and call.reports_usage:
        events.append(render_event({**head, "choices": [], "usage": usage}))
    events.append(b"data: [DONE]\n\n")
    return render_stream(events, first_delay_s=reply.first_delay_s, piece_delay_s=reply.piece_delay_s)
