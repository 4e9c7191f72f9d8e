"""OpenAI Responses: replies, read and written.

Usage: cached tokens stand inside `input_tokens`, reasoning inside `output_tokens`; a stream says it once, in the event
that ends it: `response.completed`, `.incomplete` or `.failed`. Before that, a broken stream has said nothing: unknown.
"""

from typing import Final

from fairtrial.gateway.dialect import Call, ErrorKind, JsonObject, Rendered, ScriptedReply, Stop, ToolCall
from fairtrial.gateway.fields import as_object, object_in, objects_in, parse_arguments, render_compact, text_in
from fairtrial.gateway.http import render_event, render_json, render_stream, text_pieces
from fairtrial.gateway.meter import Found, OpenCall
from fairtrial.gateway.openai import error_object, read_split_usage, split_usage_object
from fairtrial.model.usage import TokenUsage

__all__ = ["ResponsesReader", "read_call", "render_error_event", "render_reply"]

_ENDS: Final = frozenset(("response.completed", "response.incomplete", "response.failed"))


def read_call(item: JsonObject) -> ToolCall | None:
    """The tool call that an item is, in a reply or in a later request; None when it is none."""
    id_ = text_in(item, "call_id") or text_in(item, "id")
    match item.get("type"):
        case "function_call":
            given = parse_arguments(text_in(item, "arguments") or "")
            return ToolCall(id=id_, name=text_in(item, "name") or "", input=given, namespace=text_in(item, "namespace"))
        case "custom_tool_call":
            return ToolCall(
                id=id_,
                name=text_in(item, "name") or "",
                input={"input": text_in(item, "input") or ""},
                namespace=text_in(item, "namespace"),
                is_custom=True,
            )
        case "tool_search_call":
            return ToolCall(id=id_, name="tool_search", input=as_object(item.get("arguments")))
        case "local_shell_call" | "shell_call":
            return ToolCall(id=id_, name="shell", input=object_in(item, "action"))
        case "apply_patch_call":
            return ToolCall(id=id_, name="apply_patch", input=object_in(item, "operation"))
        case "web_search_call" | "file_search_call" | "code_interpreter_call" | "mcp_call" | "image_generation_call":
            return ToolCall(id=id_, name=str(item["type"]), input=object_in(item, "action"), namespace="hosted")
        case _:
            return None


class ResponsesReader:
    """Reads one reply."""

    def __init__(self) -> None:
        self.found = Found()
        self._usage: JsonObject | None = None

    def take_event(self, value: JsonObject) -> None:
        """Read one event; its type stands in its data."""
        found = self.found
        match value.get("type"):
            case "response.output_text.delta":
                found.keep(found.text, text_in(value, "delta"))
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                if (call := found.calls.get(_key(value))) is None:
                    found.complain("arguments of a call that never began")
                else:
                    found.keep(call.arguments, text_in(value, "delta"))
            case "response.output_item.added":
                self._begin(_key(value), object_in(value, "item"))
            case "response.output_item.done":
                self._complete(_key(value), object_in(value, "item"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                found.keep(found.thinking, text_in(value, "delta"))
            case str(kind) if kind in _ENDS:
                self._end(object_in(value, "response"))
            case "response.created" | "response.in_progress" | "response.queued":
                self._take_head(object_in(value, "response"))
            case "error":
                inside = object_in(value, "error") or value
                found.fail(text_in(inside, "code") or text_in(inside, "type"), text_in(inside, "message"))
            case str(kind) if kind.startswith("response.") or kind == "keepalive":
                pass
            case kind:
                found.complain(f"an event of unknown type {kind!r:.60}")

    def take_done(self) -> None:
        """No part of this API; some servers send it all the same."""

    def take_body(self, value: object) -> None:
        """Read a whole reply."""
        body = as_object(value)
        if body is None or not ("output" in body or body.get("error") is not None):
            self.found.complain("the body is no response")
            return
        for index, item in enumerate(objects_in(body, "output")):
            self._complete(index, item)
            kind = text_in(item, "type")
            if kind == "message":
                for part in objects_in(item, "content"):
                    self.found.keep(self.found.text, text_in(part, "text"))
            elif kind == "reasoning":
                for part in objects_in(item, "summary"):
                    self.found.keep(self.found.thinking, text_in(part, "text"))
        self._end(body)

    def usage(self) -> TokenUsage | None:
        """The account of the last event."""
        return None if self._usage is None else read_split_usage(self._usage, read="input", written="output")

    def _take_head(self, response: JsonObject) -> None:
        self.found.reply_id = text_in(response, "id") or self.found.reply_id
        self.found.served_model = text_in(response, "model") or self.found.served_model
        self.found.take_terms(response)

    def _begin(self, key: object, item: JsonObject) -> None:
        if (call := read_call(item)) is not None:
            self.found.calls[key] = OpenCall(
                id=call.id, name=call.name, namespace=call.namespace, is_custom=call.is_custom
            )

    def _complete(self, key: object, item: JsonObject) -> None:
        """An item that is done says all of itself again: that is what counts."""
        if (call := read_call(item)) is None:
            return
        self.found.n_kept += len(text_in(item, "arguments") or text_in(item, "input") or "")
        self.found.calls[key] = OpenCall(
            id=call.id,
            name=call.name,
            namespace=call.namespace,
            is_custom=call.is_custom,
            arguments=[text_in(item, "arguments") or ""],
            input=call.input,
            closed=True,
        )

    def _end(self, response: JsonObject) -> None:
        found = self.found
        self._take_head(response)
        self._usage = as_object(response.get("usage"))
        status = text_in(response, "status")
        found.stop_reason = text_in(object_in(response, "incomplete_details"), "reason") or status
        error = as_object(response.get("error"))
        if error is not None or status == "failed":
            error = error or {}
            found.fail(text_in(error, "code") or text_in(error, "type"), text_in(error, "message"))
        found.ended = True


def _key(value: JsonObject) -> object:
    """What an item is known by while it streams: its place, else its id."""
    index = value.get("output_index")
    return index if isinstance(index, int) else text_in(value, "item_id") or text_in(object_in(value, "item"), "id")


def render_error_event(kind: ErrorKind, message: str) -> bytes:
    """An error in the middle of a stream."""
    error = object_in(error_object(kind, message), "error")
    response: JsonObject = {
        "id": "resp_failed",
        "object": "response",
        "status": "failed",
        "error": {"code": error["code"], "message": message},
        "output": [],
        "usage": None,
    }
    return render_event({"type": "response.failed", "response": response}, name="response.failed")


def _items(reply: ScriptedReply) -> list[JsonObject]:
    items: list[JsonObject] = []
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        items.append({"type": "reasoning", "id": f"rs_{reply.id}", "summary": summary, "encrypted_content": "c2NyaXB0"})
    if reply.text:
        content: list[JsonObject] = [{"type": "output_text", "text": reply.text, "annotations": []}]
        items.append(
            {"type": "message", "id": f"msg_{reply.id}", "role": "assistant", "status": "completed", "content": content}
        )
    for index, tool in enumerate(reply.tool_calls):
        item: JsonObject = {"id": f"fc_{reply.id}_{index}", "call_id": f"call_{reply.id}_{index}", "name": tool.name}
        item["status"] = "completed"
        if tool.namespace is not None:
            item["namespace"] = tool.namespace
        given = tool.input or {}
        if tool.is_custom:
            items.append({"type": "custom_tool_call", **item, "input": given.get("input", "")})
        else:
            items.append({"type": "function_call", **item, "arguments": render_compact(given).decode()})
    return items


def render_reply(reply: ScriptedReply, call: Call) -> Rendered:
    """A scripted reply, streamed or not."""
    items = _items(reply)
    is_cut = reply.stop_or_default in {Stop.MAX_TOKENS, Stop.REFUSAL}
    reason = "max_output_tokens" if reply.stop_or_default is Stop.MAX_TOKENS else "content_filter"
    response: JsonObject = {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": 0,
        "model": reply.model or call.requested_model or "scripted",
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": reason} if is_cut else None,
        "error": None,
        "output": items,
        "usage": None if reply.usage is None else split_usage_object(reply.usage, read="input", written="output"),
    }
    if not call.stream:
        return render_json(200, response, delay_s=reply.first_delay_s)
    begun: JsonObject = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    bodies: list[JsonObject] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(items):
        bodies.extend(_item_events(index, item, reply.piece_characters))
    bodies.append({"type": "response.incomplete" if is_cut else "response.completed", "response": response})
    events = [
        render_event({**body, "sequence_number": number}, name=str(body["type"])) for number, body in enumerate(bodies)
    ]
    return render_stream(events, first_delay_s=reply.first_delay_s, piece_delay_s=reply.piece_delay_s)


def _item_events(index: int, item: JsonObject, n_characters: int) -> list[JsonObject]:
    place: JsonObject = {"item_id": item["id"], "output_index": index}
    begun: JsonObject = dict(item)
    match item["type"]:
        case "message":
            begun["content"] = []
            part: JsonObject = {"type": "output_text", "text": "", "annotations": []}
            text = str(objects_in(item, "content")[0]["text"])
            place["content_index"] = 0
            inner: list[JsonObject] = [{"type": "response.content_part.added", **place, "part": part}]
            inner.extend(
                {"type": "response.output_text.delta", **place, "delta": each}
                for each in text_pieces(text, n_characters)
            )
            inner.append({"type": "response.output_text.done", **place, "text": text})
            inner.append({"type": "response.content_part.done", **place, "part": {**part, "text": text}})
        case "reasoning":
            begun["summary"] = []
            text = str(objects_in(item, "summary")[0]["text"])
            place["summary_index"] = 0
            part = {"type": "summary_text", "text": ""}
            inner = [{"type": "response.reasoning_summary_part.added", **place, "part": part}]
            inner.extend(
                {"type": "response.reasoning_summary_text.delta", **place, "delta": each}
                for each in text_pieces(text, n_characters)
            )
            inner.append({"type": "response.reasoning_summary_text.done", **place, "text": text})
        case kind:
            key = "input" if kind == "custom_tool_call" else "arguments"
            stem = "response.custom_tool_call_input" if key == "input" else "response.function_call_arguments"
            begun[key], begun["status"] = "", "in_progress"
            text = str(item[key])
            inner = [{"type": f"{stem}.delta", **place, "delta": each} for each in text_pieces(text, n_characters)]
            inner.append({"type": f"{stem}.done", **place, key: text})
    return [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        *inner,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]
