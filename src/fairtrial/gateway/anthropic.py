"""Anthropic Messages: requests, and how its errors and side answers read.

Source: Anthropic's API reference and the types of its Python SDK 2.14; what Claude Code sends was seen on the wire.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from fairtrial.gateway.anthropic_reply import AnthropicReader, error_object, render_error_event, render_reply
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
from fairtrial.gateway.egress_anthropic import check_anthropic
from fairtrial.gateway.fields import as_object, joined_text, list_in, object_in, objects_in, text_in
from fairtrial.gateway.http import bearer_token, render_json, split_target
from fairtrial.gateway.meter import meter_for

__all__ = ["AnthropicMessages"]

_PATHS: Final = {
    ("POST", "/v1/messages"): Ask.GENERATE,
    ("POST", "/v1/messages/count_tokens"): Ask.COUNT,
    ("GET", "/v1/models"): Ask.MODELS,
    ("HEAD", "/"): Ask.PROBE,
    ("GET", "/"): Ask.PROBE,
}
_QUERIES: Final = frozenset(("", "beta=true"))

_BILLING: Final = "x-anthropic-billing-header:"
"""Claude Code puts a line of this name before its system text; it may differ from try to try."""


class AnthropicMessages:
    """The Messages API."""

    name: ClassVar[str] = "anthropic-messages"
    models_path: ClassVar[str] = "/v1/models"
    passed_headers: ClassVar[frozenset[str]] = frozenset(
        ("accept", "content-type", "user-agent", "anthropic-version", "anthropic-beta", "x-app", "x-stainless-*")
    )

    def route(self, method: str, target: str) -> Route | None:
        """Read a request line."""
        path, query = split_target(target)
        ask = _PATHS.get((method, path))
        if ask is None or query not in _QUERIES:
            return None
        return Route(ask=ask, path=path, query=query)

    def read_token(self, target: str, headers: Mapping[str, str]) -> str | None:
        """The key header, else the bearer token."""
        del target
        return headers.get("x-api-key") or bearer_token(headers)

    def auth_headers(self, key: str) -> Mapping[str, str]:
        """The key header."""
        return {"x-api-key": key}

    def read_request(self, route: Route, headers: Mapping[str, str], body: JsonObject) -> Call:
        """Read a request; Claude Code's own headers tell session and subagent."""
        system = "\n".join(text for text in _system_texts(body) if not text.startswith(_BILLING))
        model = text_in(body, "model")
        tools = tuple(text_in(tool, "name") or text_in(tool, "type") or "" for tool in objects_in(body, "tools"))
        messages = list_in(body, "messages")
        return Call(
            route=route,
            requested_model=model,
            stream=body.get("stream") is True,
            reports_usage=True,
            session_claim=headers.get("x-claude-code-session-id"),
            agent_claim=headers.get("x-claude-code-agent-id"),
            parent_claim=headers.get("x-claude-code-parent-agent-id"),
            system=system,
            turns=_read_turns(messages),
            tools=tools,
            digest=digest_of(self.name, model, system, tools, messages),
            effort=text_in(object_in(body, "output_config"), "effort"),
        )

    def check(self, route: Route, body: JsonObject) -> tuple[Refusal, ...]:
        """Every part of a body that could make the provider fetch something."""
        del route
        return check_anthropic(body)

    def with_usage_reported(self, body: JsonObject) -> JsonObject | None:
        """Always reported."""
        del body
        return None

    def meter(self, content_type: str) -> ReplyMeter:
        """A meter for a reply of this content type."""
        return meter_for(AnthropicReader(), content_type)

    def render(self, reply: ScriptedReply, call: Call) -> Rendered:
        """Write a scripted reply."""
        return render_reply(reply, call)

    def render_count(self, n_tokens: int) -> Rendered:
        """Answer a count."""
        return render_json(200, {"input_tokens": n_tokens})

    def render_models(self, models: tuple[str, ...]) -> Rendered:
        """List models."""
        data = [
            {"type": "model", "id": model, "display_name": model, "created_at": "1970-01-01T00:00:00Z"}
            for model in models
        ]
        first, last = (models[0], models[-1]) if models else (None, None)
        return render_json(200, {"data": data, "has_more": False, "first_id": first, "last_id": last})

    def render_error(self, status: int, kind: ErrorKind, message: str) -> Rendered:
        """Write an error."""
        return render_json(status, error_object(kind, message))

    def render_stream_error(self, kind: ErrorKind, message: str) -> bytes:
        """Write an error event."""
        return render_error_event(kind, message)


def _system_texts(body: JsonObject) -> list[str]:
    system = body.get("system")
    if isinstance(system, str):
        return [system]
    return [text for block in objects_in(body, "system") if (text := text_in(block, "text"))]


def _read_turns(messages: list[object]) -> tuple[Turn, ...]:
    builder = ConversationBuilder()
    for message in messages:
        if (found := as_object(message)) is None:
            continue
        role = Role.ASSISTANT if found.get("role") == "assistant" else Role.USER
        blocks = objects_in(found, "content")
        builder.add(
            role,
            joined_text(found.get("content"), "text"),
            tool_calls=[
                ToolCall(
                    id=text_in(block, "id"), name=text_in(block, "name") or "", input=as_object(block.get("input"))
                )
                for block in blocks
                if block.get("type") == "tool_use"
            ],
            tool_results=[
                ToolResult(
                    call_id=text_in(block, "tool_use_id"),
                    name=None,
                    text=joined_text(block.get("content"), "text"),
                    is_error=block.get("is_error") is True,
                )
                for block in blocks
                if block.get("type") == "tool_result"
            ],
        )
    return builder.turns()
