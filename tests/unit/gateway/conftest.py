"""Requests in each dialect that mean the same, to hold the dialects against each other."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fairtrial.gateway.dialect import Call, Dialect, Rendered, ReplyReading
from fairtrial.gateway.dialects import DIALECTS, find_route

NAMES = tuple(DIALECTS)


@pytest.fixture(params=NAMES)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return DIALECTS[request.param]


def _targets(name: str, *, stream: bool) -> str:
    gemini = "/v1beta/models/m-1:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")
    return {
        "anthropic-messages": "/v1/messages?beta=true",
        "openai-chat": "/v1/chat/completions",
        "openai-responses": "/v1/responses",
        "gemini": gemini,
    }[name]


def _body(name: str, prompt: str, *, stream: bool, turns: int) -> dict[str, Any]:
    """A request after so many turns, each of which called one tool and got `result N`."""
    if name == "gemini":
        contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": prompt}]}]
        for n in range(turns):
            contents.append({"role": "model", "parts": [{"functionCall": {"id": f"c{n}", "name": "sh", "args": {}}}]})
            result = {"id": f"c{n}", "name": "sh", "response": {"output": f"result {n}"}}
            contents.append({"role": "user", "parts": [{"functionResponse": result}]})
        tools = [{"functionDeclarations": [{"name": "sh"}]}]
        return {"contents": contents, "tools": tools, "systemInstruction": {"parts": [{"text": "Be good."}]}}
    if name == "openai-responses":
        items: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "input_text", "text": prompt}]}]
        for n in range(turns):
            items.append({"type": "function_call", "call_id": f"c{n}", "name": "sh", "arguments": "{}"})
            items.append({"type": "function_call_output", "call_id": f"c{n}", "output": f"result {n}"})
        tool = {"type": "function", "name": "sh", "parameters": {}}
        return {"model": "m-1", "instructions": "Be good.", "input": items, "tools": [tool], "stream": stream}
    if name == "openai-chat":
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "Be good."},
            {"role": "user", "content": prompt},
        ]
        for n in range(turns):
            call = {"id": f"c{n}", "type": "function", "function": {"name": "sh", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"result {n}"})
        body: dict[str, Any] = {"model": "m-1", "messages": messages, "stream": stream}
        body["tools"] = [{"type": "function", "function": {"name": "sh"}}]
        return body | ({"stream_options": {"include_usage": True}} if stream else {})
    messages = [{"role": "user", "content": prompt}]
    for n in range(turns):
        messages.append(
            {"role": "assistant", "content": [{"type": "tool_use", "id": f"c{n}", "name": "sh", "input": {}}]}
        )
        block = {"type": "tool_result", "tool_use_id": f"c{n}", "content": [{"type": "text", "text": f"result {n}"}]}
        messages.append({"role": "user", "content": [block]})
    tools = [{"name": "sh", "input_schema": {"type": "object"}}]
    return {
        "model": "m-1",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be good."}],
        "messages": messages,
        "tools": tools,
        "stream": stream,
    }


@pytest.fixture(scope="session")
def body_of() -> Callable[..., dict[str, Any]]:
    def make(name: str, prompt: str = "Fix it.", *, stream: bool = True, turns: int = 0) -> dict[str, Any]:
        return json.loads(json.dumps(_body(name, prompt, stream=stream, turns=turns)))

    return make


@pytest.fixture(scope="session")
def call_of() -> Callable[..., Call]:
    def make(
        name: str,
        prompt: str = "Fix it.",
        *,
        stream: bool = True,
        turns: int = 0,
        headers: dict[str, str] | None = None,
    ) -> Call:
        found = find_route("POST", _targets(name, stream=stream))
        assert found is not None
        dialect, route = found
        assert dialect.name == name
        return dialect.read_request(route, headers or {}, _body(name, prompt, stream=stream, turns=turns))

    return make


@pytest.fixture(scope="session")
def read() -> Callable[..., ReplyReading]:
    """Meter a rendered reply, in chunks of a size."""

    def meter(dialect: Dialect, rendered: Rendered, *, size: int = 1 << 20, body_ended: bool = True) -> ReplyReading:
        found = dialect.meter(rendered.headers["content-type"])
        body = rendered.body
        for start in range(0, len(body), size):
            found.feed(body[start : start + size])
        return found.finish(body_ended=body_ended)

    return meter
