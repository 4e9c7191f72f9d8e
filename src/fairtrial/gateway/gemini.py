"""Gemini generateContent: requests.

Source: Google's API reference and the types of its Python SDK 3.6; what gemini-cli sends was seen on the wire. Google's
servers read JSON by the rules of protobuf: a field may be written as `cachedContent` or as `cached_content`.
"""

import re
from collections.abc import Mapping
from typing import ClassVar, Final
from urllib.parse import parse_qsl

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
from fairtrial.gateway.egress_gemini import check_gemini
from fairtrial.gateway.fields import as_object, list_in, object_in, objects_in, render_compact, text_in
from fairtrial.gateway.gemini_reply import GeminiReader, error_object, render_reply
from fairtrial.gateway.http import bearer_token, render_event, render_json, split_target
from fairtrial.gateway.meter import meter_for

__all__ = ["Gemini"]

_PATH: Final = re.compile(
    r"/(?:v1|v1beta|v1alpha)/models/(?P<model>[A-Za-z0-9._-]{1,100})"
    r":(?P<method>generateContent|streamGenerateContent|countTokens)"
)
_LIST: Final = re.compile(r"/(?:v1|v1beta|v1alpha)/models")


class Gemini:
    """The generateContent API."""

    name: ClassVar[str] = "gemini"
    models_path: ClassVar[str] = "/v1beta/models"
    passed_headers: ClassVar[frozenset[str]] = frozenset(("accept", "content-type", "user-agent", "x-goog-api-client"))

    def route(self, method: str, target: str) -> Route | None:
        """Read a request line; a key in the query is taken out."""
        path, query = split_target(target)
        fields = parse_qsl(query, keep_blank_values=True)
        alts = [value for name, value in fields if name == "alt"]
        if any(name not in {"alt", "key"} for name, _ in fields) or len(alts) > 1 or not set(alts) <= {"sse", "json"}:
            return None
        if method == "GET" and _LIST.fullmatch(path):
            return Route(ask=Ask.MODELS, path=path)
        found = _PATH.fullmatch(path)
        if method != "POST" or found is None:
            return None
        return Route(
            ask=Ask.COUNT if found["method"] == "countTokens" else Ask.GENERATE,
            path=path,
            query=f"alt={alts[0]}" if alts else "",
            model=found["model"],
            stream=found["method"] == "streamGenerateContent",
        )

    def read_token(self, target: str, headers: Mapping[str, str]) -> str | None:
        """The key header, else the key of the query, else the bearer token."""
        query = dict(parse_qsl(split_target(target)[1]))
        return headers.get("x-goog-api-key") or query.get("key") or bearer_token(headers)

    def auth_headers(self, key: str) -> Mapping[str, str]:
        """The key header."""
        return {"x-goog-api-key": key}

    def read_request(self, route: Route, headers: Mapping[str, str], body: JsonObject) -> Call:
        """Read a request. The client tells no session."""
        del headers
        if inner := object_in(body, "generateContentRequest"):
            body = inner
        system = _text_of(object_in(body, "systemInstruction") or object_in(body, "system_instruction"))
        contents = list_in(body, "contents")
        tools = tuple(
            text_in(function, "name") or ""
            for tool in objects_in(body, "tools")
            for key in ("functionDeclarations", "function_declarations")
            for function in objects_in(tool, key)
        )
        return Call(
            route=route,
            requested_model=route.model,
            stream=route.stream is True,
            reports_usage=True,
            session_claim=None,
            agent_claim=None,
            parent_claim=None,
            system=system,
            turns=_read_turns(contents),
            tools=tools,
            digest=digest_of(self.name, route.model, system, tools, contents),
            effort=text_in(object_in(body, "generationConfig", "thinkingConfig"), "thinkingLevel"),
        )

    def check(self, route: Route, body: JsonObject) -> tuple[Refusal, ...]:
        """Every part of a body that could make the provider fetch something."""
        return check_gemini(route.model, body)

    def with_usage_reported(self, body: JsonObject) -> JsonObject | None:
        """Always reported."""
        del body
        return None

    def meter(self, content_type: str) -> ReplyMeter:
        """A meter for a reply of this content type."""
        return meter_for(GeminiReader(), content_type)

    def render(self, reply: ScriptedReply, call: Call) -> Rendered:
        """Write a scripted reply."""
        return render_reply(reply, call)

    def render_count(self, n_tokens: int) -> Rendered:
        """Answer a count."""
        return render_json(200, {"totalTokens": n_tokens})

    def render_models(self, models: tuple[str, ...]) -> Rendered:
        """List models."""
        methods = ["generateContent", "countTokens"]
        data = [
            {"name": f"models/{model}", "displayName": model, "supportedGenerationMethods": methods} for model in models
        ]
        return render_json(200, {"models": data})

    def render_error(self, status: int, kind: ErrorKind, message: str) -> Rendered:
        """Write an error."""
        return render_json(status, error_object(status, kind, message))

    def render_stream_error(self, kind: ErrorKind, message: str) -> bytes:
        """Write an error event."""
        return render_event(error_object(500, kind, message))


def _text_of(content: JsonObject) -> str:
    texts = [text_in(part, "text") for part in objects_in(content, "parts") if part.get("thought") is not True]
    return "\n".join(text for text in texts if text)


def _read_turns(contents: list[object]) -> tuple[Turn, ...]:
    builder = ConversationBuilder()
    for content in contents:
        if (found := as_object(content)) is None:
            continue
        parts = objects_in(found, "parts")
        builder.add(
            Role.ASSISTANT if found.get("role") == "model" else Role.USER,
            _text_of(found),
            tool_calls=[
                ToolCall(id=text_in(call, "id"), name=text_in(call, "name") or "", input=object_in(call, "args"))
                for part in parts
                if (call := object_in(part, "functionCall"))
            ],
            tool_results=[
                ToolResult(
                    call_id=text_in(result, "id"),
                    name=text_in(result, "name"),
                    text=_result_text(object_in(result, "response")),
                    is_error="error" in object_in(result, "response"),
                )
                for part in parts
                if (result := object_in(part, "functionResponse"))
            ],
        )
    return builder.turns()


def _result_text(response: JsonObject) -> str:
    for key in ("output", "error", "content", "result"):
        if (text := text_in(response, key)) is not None:
            return text
    return render_compact(response).decode() if response else ""
