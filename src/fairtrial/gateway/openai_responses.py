"""OpenAI Responses: requests.

Source: OpenAI's API reference and the types of its Python SDK 3.57; what codex sends was seen on the wire.
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
    ToolResult,
    Turn,
)
from fairtrial.gateway.egress_openai import check_responses
from fairtrial.gateway.fields import as_object, joined_text, object_in, objects_in, text_in
from fairtrial.gateway.http import bearer_token, render_json, split_target
from fairtrial.gateway.meter import meter_for
from fairtrial.gateway.openai import PASSED_HEADERS, error_object, read_claims, render_models
from fairtrial.gateway.openai_responses_reply import ResponsesReader, read_call, render_error_event, render_reply

__all__ = ["OpenAIResponses"]

_PATHS: Final = {
    ("POST", "/v1/responses"): Ask.GENERATE,
    ("POST", "/v1/responses/input_tokens"): Ask.COUNT,
    ("GET", "/v1/models"): Ask.MODELS,
}
_TEXTS: Final = ("input_text", "output_text", "text", "refusal")


class OpenAIResponses:
    """The Responses API."""

    name: ClassVar[str] = "openai-responses"
    models_path: ClassVar[str] = "/v1/models"
    passed_headers: ClassVar[frozenset[str]] = PASSED_HEADERS

    def route(self, method: str, target: str) -> Route | None:
        """Read a request line. A query is dropped for lists alone: codex sends its version with them."""
        path, query = split_target(target)
        ask = _PATHS.get((method, path))
        return None if ask is None or (query and ask is not Ask.MODELS) else Route(ask=ask, path=path)

    def read_token(self, target: str, headers: Mapping[str, str]) -> str | None:
        """The bearer token."""
        del target
        return bearer_token(headers)

    def auth_headers(self, key: str) -> Mapping[str, str]:
        """The bearer token."""
        return {"authorization": f"Bearer {key}"}

    def read_request(self, route: Route, headers: Mapping[str, str], body: JsonObject) -> Call:
        """Read a request; codex's headers and `client_metadata` tell session, thread and parent."""
        model = text_in(body, "model")
        system, turns = _read_input(body)
        tools = tuple(_tool_names(body, ""))
        claims = read_claims(headers, body)
        return Call(
            route=route,
            requested_model=model,
            stream=body.get("stream") is True,
            reports_usage=True,
            session_claim=claims.session,
            agent_claim=claims.agent,
            parent_claim=claims.parent,
            system=system,
            turns=turns,
            tools=tools,
            digest=digest_of(self.name, model, body.get("instructions"), tools, body.get("input")),
            effort=text_in(object_in(body, "reasoning"), "effort"),
        )

    def check(self, route: Route, body: JsonObject) -> tuple[Refusal, ...]:
        """Every part of a body that could make the provider fetch something."""
        del route
        return check_responses(body)

    def with_usage_reported(self, body: JsonObject) -> JsonObject | None:
        """Always reported."""
        del body
        return None

    def meter(self, content_type: str) -> ReplyMeter:
        """A meter for a reply of this content type."""
        return meter_for(ResponsesReader(), content_type)

    def render(self, reply: ScriptedReply, call: Call) -> Rendered:
        """Write a scripted reply."""
        return render_reply(reply, call)

    def render_count(self, n_tokens: int) -> Rendered:
        """Answer a count."""
        return render_json(200, {"object": "response.input_tokens", "input_tokens": n_tokens})

    def render_models(self, models: tuple[str, ...]) -> Rendered:
        """List models."""
        return render_models(models)

    def render_error(self, status: int, kind: ErrorKind, message: str) -> Rendered:
        """Write an error."""
        return render_json(status, error_object(kind, message))

    def render_stream_error(self, kind: ErrorKind, message: str) -> bytes:
        """Write a response that failed."""
        return render_error_event(kind, message)


def _tool_names(source: JsonObject, prefix: str) -> list[str]:
    names: list[str] = []
    for tool in objects_in(source, "tools"):
        name = prefix + (text_in(tool, "name") or text_in(tool, "type") or "")
        if tool.get("type") == "namespace":
            names.extend(_tool_names(tool, f"{name}."))
        else:
            names.append(name)
    return names


def _read_input(body: JsonObject) -> tuple[str, tuple[Turn, ...]]:
    system = [text_in(body, "instructions") or ""]
    builder = ConversationBuilder()
    if (whole := text_in(body, "input")) is not None:
        builder.add(Role.USER, whole)
    for item in objects_in(body, "input"):
        kind = text_in(item, "type") or "message"
        if kind == "message":
            text = joined_text(item.get("content"), *_TEXTS)
            if item.get("role") in ("system", "developer"):
                system.append(text)
            else:
                builder.add(Role.ASSISTANT if item.get("role") == "assistant" else Role.USER, text)
        elif kind == "reasoning":
            pass  # before what it led to; a turn of its own would be counted
        elif (call := read_call(item)) is not None:
            builder.add(Role.ASSISTANT, tool_calls=[call])
        elif kind.endswith("_output"):
            result = ToolResult(
                call_id=text_in(item, "call_id"), name=None, text=_output_text(item.get("output")), is_error=None
            )
            builder.add(Role.USER, tool_results=[result])
    return "\n".join(text for text in system if text), builder.turns()


def _output_text(output: object) -> str:
    found = as_object(output)
    return text_in(found, "content") or "" if found is not None else joined_text(output, *_TEXTS)
