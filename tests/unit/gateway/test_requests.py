"""A request means the same in every dialect, and nothing that a client sends makes a reader raise."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.gateway.dialect import Ask, Call, Dialect, Role
from fairtrial.gateway.dialects import DIALECTS, find_route

NAMES = list(DIALECTS)


def test_one_conversation_reads_the_same_in_every_dialect(call_of: Callable[..., Call]) -> None:
    for name in NAMES:
        call = call_of(name, turns=2)
        assert call.requested_model == "m-1"
        assert call.stream
        assert call.system == "Be good."
        assert call.tools == ("sh",)
        assert [turn.role for turn in call.turns] == [
            Role.USER, Role.ASSISTANT, Role.USER, Role.ASSISTANT, Role.USER,
        ]  # fmt: skip
        assert call.turns[0].text == "Fix it."
        assert [(each.name, each.input) for each in call.turns[1].tool_calls] == [("sh", {})]
        assert [(each.call_id, each.name, each.text) for each in call.new_results] == [("c1", "sh", "result 1")]


@pytest.mark.parametrize("name", NAMES)
def test_a_retry_has_the_digest_of_its_first_try_and_the_next_turn_another(
    name: str, call_of: Callable[..., Call]
) -> None:
    assert call_of(name).digest == call_of(name).digest == call_of(name, stream=False).digest
    others = [call_of(name), call_of(name, turns=1), call_of(name, turns=2), call_of(name, "Break it.")]
    assert len({call.digest for call in others}) == 4


@pytest.mark.parametrize(
    ("method", "target", "dialect", "ask"),
    [
        ("HEAD", "/", "anthropic-messages", Ask.PROBE),
        ("POST", "/v1/messages", "anthropic-messages", Ask.GENERATE),
        ("POST", "/v1/messages?beta=true", "anthropic-messages", Ask.GENERATE),
        ("POST", "/v1/messages/count_tokens?beta=true", "anthropic-messages", Ask.COUNT),
        ("POST", "/v1/chat/completions", "openai-chat", Ask.GENERATE),
        ("POST", "/v1/responses", "openai-responses", Ask.GENERATE),
        ("POST", "/v1beta/models/gemini-2.5-pro:generateContent", "gemini", Ask.GENERATE),
        ("POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "gemini", Ask.GENERATE),
        ("POST", "/v1beta/models/gemini-2.5-pro:countTokens?key=abc", "gemini", Ask.COUNT),
        ("GET", "/v1/models", "anthropic-messages", Ask.MODELS),
        ("GET", "/v1beta/models", "gemini", Ask.MODELS),
    ],
)
def test_model_paths_are_known(method: str, target: str, dialect: str, ask: Ask) -> None:
    found = find_route(method, target)
    assert found is not None
    assert (found[0].name, found[1].ask) == (dialect, ask)


def test_a_key_in_the_query_is_read_as_the_token_and_does_not_go_upstream() -> None:
    target = "/v1beta/models/m:streamGenerateContent?key=sekret&alt=sse"
    found = find_route("POST", target)
    assert found is not None
    assert found[1].query == "alt=sse"
    assert (found[1].model, found[1].stream) == ("m", True)
    assert found[0].read_token(target, {}) == "sekret"


def test_claude_code_tells_session_and_subagent_by_headers(call_of: Callable[..., Call]) -> None:
    headers = {"x-claude-code-session-id": "s1", "x-claude-code-agent-id": "a1"}
    call = call_of("anthropic-messages", headers=headers)
    assert (call.session_claim, call.agent_claim) == ("s1", "a1")
    assert call_of("anthropic-messages").agent_claim is None


def test_claude_codes_billing_line_does_not_make_a_retry_another_request(body_of: Callable[..., Any]) -> None:
    found = find_route("POST", "/v1/messages")
    assert found is not None
    digests = set()
    for mark in ("cch=1", "cch=2"):
        body = body_of("anthropic-messages")
        body["system"].insert(0, {"type": "text", "text": f"x-anthropic-billing-header: {mark};"})
        digests.add(found[0].read_request(found[1], {}, body).digest)
    assert len(digests) == 1


def test_codex_tells_a_thread_and_its_parent(body_of: Callable[..., Any]) -> None:
    found = find_route("POST", "/v1/responses")
    assert found is not None
    body = body_of("openai-responses") | {"client_metadata": {"thread_id": "t1", "session_id": "t1"}}
    main = found[0].read_request(found[1], {"session-id": "t1"}, body)
    assert (main.session_claim, main.agent_claim) == ("t1", None)
    body["client_metadata"] = {"thread_id": "t2", "session_id": "t1"}
    child = found[0].read_request(found[1], {"x-codex-parent-thread-id": "t1"}, body)
    assert (child.session_claim, child.agent_claim, child.parent_claim) == ("t1", "t2", "t1")


def test_opencode_tells_a_child_session_by_its_parent(call_of: Callable[..., Call]) -> None:
    main = call_of("openai-chat", headers={"x-session-id": "s1", "x-session-affinity": "s1"})
    assert (main.session_claim, main.agent_claim) == ("s1", None)
    child = call_of("openai-chat", headers={"x-session-id": "s2", "x-parent-session-id": "s1"})
    assert (child.session_claim, child.agent_claim, child.parent_claim) == ("s2", "s2", "s1")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("anthropic-messages", {"output_config": {"effort": "high"}}),
        ("openai-chat", {"reasoning_effort": "high"}),
        ("openai-responses", {"reasoning": {"effort": "high", "summary": "auto"}}),
        ("gemini", {"generationConfig": {"thinkingConfig": {"thinkingLevel": "high"}}}),
    ],
)
def test_the_effort_is_read_where_each_api_has_it(
    name: str, told: dict[str, Any], call_of: Callable[..., Call], body_of: Callable[..., Any]
) -> None:
    plain = call_of(name)
    assert plain.effort is None
    assert DIALECTS[name].read_request(plain.route, {}, body_of(name) | told).effort == "high"


def test_only_a_chat_stream_that_does_not_ask_for_usage_is_changed_and_only_so(body_of: Callable[..., Any]) -> None:
    for name, dialect in DIALECTS.items():
        assert dialect.with_usage_reported(body_of(name)) is None
    chat = DIALECTS["openai-chat"]
    body = body_of("openai-chat", stream=False)
    assert chat.with_usage_reported(body) is None
    body = body_of("openai-chat") | {"stream_options": {"include_obfuscation": False}}
    changed = chat.with_usage_reported(body)
    assert changed == body | {"stream_options": {"include_obfuscation": False, "include_usage": True}}
    found = find_route("POST", "/v1/chat/completions")
    assert found is not None
    assert not chat.read_request(found[1], {}, body).reports_usage


def test_parallel_calls_of_one_reply_are_one_turn_of_the_assistant() -> None:
    found = find_route("POST", "/v1/responses")
    assert found is not None
    items = [
        {"type": "message", "role": "user", "content": "go"},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Both."}]},
        {"type": "function_call", "call_id": "a", "name": "x", "arguments": '{"k":1}', "namespace": "n"},
        {"type": "custom_tool_call", "call_id": "b", "name": "y", "input": "free"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "A"}]},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "B"},
    ]
    call = found[0].read_request(found[1], {}, {"model": "m", "input": items})
    assert [turn.role for turn in call.turns] == [Role.USER, Role.ASSISTANT, Role.USER]
    assert [(each.name, each.input, each.namespace) for each in call.turns[1].tool_calls] == [
        ("x", {"k": 1}, "n"),
        ("y", {"input": "free"}, None),
    ]
    assert [(each.name, each.text) for each in call.new_results] == [("x", "A"), ("y", "B")]


KEYS = st.sampled_from(
    [
        *(
            "model",
            "messages",
            "content",
            "role",
            "type",
            "tools",
            "tool_calls",
            "function",
            "arguments",
            "input",
            "id",
        ),
        *("contents", "parts", "functionCall", "functionResponse", "response", "system", "systemInstruction", "source"),
        *("tool_use_id", "stream_options", "client_metadata", "output", "instructions", "name", "custom", "text"),
        *("image_url", "generateContentRequest", "file_data", "fileData", "function_declarations", "audio", "tool"),
        *("environment", "background", "url"),
    ]
)
WORDS = st.sampled_from(
    [
        *(
            "user",
            "assistant",
            "model",
            "tool",
            "system",
            "text",
            "tool_use",
            "tool_result",
            "image",
            "document",
            "url",
        ),
        *("base64", "function", "namespace", "shell", "message", "function_call", "function_call_output", "custom"),
        *("tool_addition", "server_tool_use", "input_image", "input_file", "local_shell_call", "content"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)


@pytest.mark.parametrize("name", NAMES)
@given(body=st.dictionaries(KEYS, VALUES, max_size=6))
@settings(max_examples=60, deadline=None)
def test_no_body_makes_a_dialect_raise(name: str, body: dict[str, Any]) -> None:
    dialect: Dialect = DIALECTS[name]
    targets = ["/v1/messages", "/v1/chat/completions", "/v1/responses", "/v1beta/models/m:generateContent"]
    found = find_route("POST", targets[NAMES.index(name)], dialects=[dialect])
    assert found is not None
    body = json.loads(json.dumps(body))
    call = dialect.read_request(found[1], {}, body)
    assert len(call.digest) == 64
    for refusal in dialect.check(found[1], body):
        assert refusal.message.isprintable()
    dialect.with_usage_reported(body)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_shows_the_trials_token_where_its_dialect_puts_a_key(name: str) -> None:
    dialect = DIALECTS[name]
    (header,) = dialect.auth_headers("sekret")
    assert dialect.read_token("/", dict(dialect.auth_headers("sekret"))) == "sekret"
    assert dialect.read_token("/", {"authorization": "Bearer sekret"}) == "sekret"
    assert dialect.read_token("/", {"authorization": "Basic sekret"}) is None
    assert dialect.read_token("/", {header: ""}) is None
    assert dialect.read_token("/", {}) is None


@pytest.mark.parametrize("name", NAMES)
def test_lists_of_models_and_counts_are_answered_in_the_dialects_own_shape(name: str) -> None:
    dialect = DIALECTS[name]
    for models in ((), ("m-1", "m-2")):
        listed = json.loads(dialect.render_models(models).body)
        assert all(model in json.dumps(listed) for model in models)
        assert len(listed.get("data", listed.get("models"))) == len(models)
    assert 42 in json.loads(dialect.render_count(42).body).values()


def test_a_count_of_gemini_reads_the_request_inside_it(body_of: Callable[..., Any]) -> None:
    found = find_route("POST", "/v1beta/models/m-1:countTokens")
    assert found is not None
    inside = found[0].read_request(found[1], {}, {"generateContentRequest": body_of("gemini")})
    assert inside.turns == found[0].read_request(found[1], {}, body_of("gemini")).turns
    assert inside.tools == ("sh",)


def test_results_are_read_whatever_their_form() -> None:
    found = find_route("POST", "/v1beta/models/m-1:generateContent")
    assert found is not None
    responses = [{"output": "a"}, {"error": "b"}, {"rows": [1]}, {}]
    parts = [{"functionResponse": {"name": "n", "response": each}} for each in responses]
    call = found[0].read_request(found[1], {}, {"contents": [{"role": "user", "parts": parts}]})
    assert [(each.text, each.is_error) for each in call.new_results] == [
        ("a", False), ("b", True), ('{"rows":[1]}', False), ("", False),
    ]  # fmt: skip
    found = find_route("POST", "/v1/chat/completions")
    assert found is not None
    custom = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": "text"}}
    body = {"messages": [{"role": "assistant", "tool_calls": [custom]}]}
    (turn,) = found[0].read_request(found[1], {}, body).turns
    assert [(each.name, each.input) for each in turn.tool_calls] == [("patch", {"input": "text"})]


def test_a_prompt_in_one_piece_is_the_first_turn() -> None:
    found = find_route("POST", "/v1/responses")
    assert found is not None
    call = found[0].read_request(found[1], {}, {"model": "m", "input": "Fix it."})
    assert [(turn.role, turn.text) for turn in call.turns] == [(Role.USER, "Fix it.")]
    found = find_route("POST", "/v1/messages")
    assert found is not None
    call = found[0].read_request(found[1], {}, {"system": "Be good.", "messages": [{"role": "user", "content": "Hi"}]})
    assert (call.system, call.turns[0].text) == ("Be good.", "Hi")
