"""OpenAI Chat Completions: requests. The same API is spoken by most other providers and by local servers.

Source: OpenAI's API reference and the types of its Python SDK 3.57; what opencode and mini-swe-agent send was seen.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from fairtrial.gateway.conversation import ConversationBuilder, digest_of
from fairtrial.gateway.dialect import (
    Ask,
    Call,
    ErrorKind,
    JsonObject,
    Refusal,
    Rendered,
    ReplyMeter,
    Role,
    Route,
    ScriptedReply,
    ToolCall,
    ToolResult,
    Turn,
)
from fairtrial.gateway.egress_openai import check_chat
from fairtrial.gateway.fields import as_object, joined_text, list_in, object_in, objects_in, parse_arguments, text_in
from fairtrial.gateway.http import bearer_token, render_event, render_json, split_target
from fairtrial.gateway.meter import meter_for
from fairtrial.gateway.openai import PASSED_HEADERS, error_object, read_claims, render_models
from fairtrial.gateway.openai_chat_reply import ChatReader, render_reply

__all__ = ["OpenAIChat"]

_PATHS: Final = {
    ("POST", "/v1/chat/completions"): Ask.GENERATE,
    ("GET", "/v1/models"): Ask.MODELS,
}


class OpenAIChat:
    """The Chat Completions API."""

    name: ClassVar[str] = "openai-chat"
    models_path: ClassVar[str] = "/v1/models"
    passed_headers: ClassVar[frozenset[str]] = PASSED_HEADERS

    def route(self, method: str, target: str) -> Route | None:
        """Read a request line."""
        path, query = split_target(target)
        ask = _PATHS.get((method, path))
        return None if ask is None or query else Route(ask=ask, path=path)

    def read_token(self, target: str, headers: Mapping[str, str]) -> str | None:
        """The bearer token."""
        del target
        return bearer_token(headers)

    def auth_headers(self, key: str) -> Mapping[str, str]:
        """The bearer token."""
        return {"authorization": f"Bearer {key}"}

    def read_request(self, route: Route, headers: Mapping[str, str], body: JsonObject) -> Call:
        """Read a request; opencode's own headers tell session and parent."""
        model = text_in(body, "model")
        stream = body.get("stream") is True
        messages = list_in(body, "messages")
        system, turns = _read_messages(messages)
        tools = tuple(
            text_in(object_in(tool, text_in(tool, "type") or ""), "name") or "" for tool in objects_in(body, "tools")
        )
        claims = read_claims(headers, body)
        return Call(
            route=route,
            requested_model=model,
            stream=stream,
            reports_usage=not stream or object_in(body, "stream_options").get("include_usage") is True,
            session_claim=claims.session,
            agent_claim=claims.agent,
            parent_claim=claims.parent,
            system=system,
            turns=turns,
            tools=tools,
            digest=digest_of(self.name, model, tools, messages),
            effort=text_in(body, "reasoning_effort"),
        )

    def check(self, route: Route, body: JsonObject) -> tuple[Refusal, ...]:
        """Every part of a body that could make the provider fetch something."""
        del route
        return check_chat(body)

    def with_usage_reported(self, body: JsonObject) -> JsonObject | None:
        """A stream says its usage only when it is asked to."""
        options = object_in(body, "stream_options")
        if body.get("stream") is not True or options.get("include_usage") is True:
            return None
        return {**body, "stream_options": {**options, "include_usage": True}}

    def meter(self, content_type: str) -> ReplyMeter:
        """A meter for a reply of this content type."""
        return meter_for(ChatReader(), content_type)

    def render(self, reply: ScriptedReply, call: Call) -> Rendered:
        """Write a scripted reply."""
        return render_reply(reply, call)

    def render_count(self, n_tokens: int) -> Rendered:
        """Answer a count (no part of this API)."""
        return render_json(200, {"total_tokens": n_tokens})

    def render_models(self, models: tuple[str, ...]) -> Rendered:
        """List models."""
        return render_models(models)

    def render_error(self, status: int, kind: ErrorKind, message: str) -> Rendered:
        """Write an error."""
        return render_json(status, error_object(kind, message))

    def render_stream_error(self, kind: ErrorKind, message: str) -> bytes:
        """Write an error event."""
        return render_event(error_object(kind, message))


def _read_messages(messages: list[object]) -> tuple[str, tuple[Turn, ...]]:
    system: list[str] = []
    builder = ConversationBuilder()
    for message in messages:
        if (found := as_object(message)) is None:
            continue
        text = joined_text(found.get("content"), "text")
        match found.get("role"):
            case "system" | "developer":
                system.append(text)
            case "assistant":
                builder.add(
                    Role.ASSISTANT, text, tool_calls=[_read_call(each) for each in objects_in(found, "tool_calls")]
                )
            case "tool":
                result = ToolResult(call_id=text_in(found, "tool_call_id"), name=None, text=text, is_error=None)
                builder.add(Role.USER, tool_results=[result])
            case _:
                builder.add(Role.USER, text)
    return "\n".join(system), builder.turns()


def _read_call(call: JsonObject) -> ToolCall:
    if call.get("type") == "custom":
        custom = object_in(call, "custom")
        given: JsonObject | None = {"input": text_in(custom, "input") or ""}
        name = text_in(custom, "name") or ""
    else:
        function = object_in(call, "function")
        given = parse_arguments(text_in(function, "arguments") or "")
        name = text_in(function, "name") or ""
    return ToolCall(id=text_in(call, "id"), name=name, input=given)
