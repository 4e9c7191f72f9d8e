"""What each provider means by its figures: one traffic, four disjoint buckets, whatever the dialect (B27)."""

import json
from typing import Any

import pytest

from fairtrial.gateway.dialect import ReplyReading, ToolCall
from fairtrial.gateway.dialects import DIALECTS
from fairtrial.model.usage import TokenUsage

TRAFFIC = TokenUsage(uncached_input=100, cache_write=0, cache_read=900, output=50, reasoning=20)


def whole(name: str, body: object) -> ReplyReading:
    meter = DIALECTS[name].meter("application/json; charset=utf-8")
    meter.feed(json.dumps(body).encode())
    return meter.finish(body_ended=True)


def stream(name: str, *events: dict[str, Any] | str, body_ended: bool = True) -> ReplyReading:
    meter = DIALECTS[name].meter("text/event-stream")
    for event in events:
        text = event if isinstance(event, str) else json.dumps(event)
        meter.feed(f"data: {text}\n\n".encode())
    return meter.finish(body_ended=body_ended)


BODIES: dict[str, Any] = {
    "anthropic-messages": {
        "type": "message",
        "content": [],
        "usage": {
            "input_tokens": 100,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 900,
            "output_tokens": 50,
            "output_tokens_details": {"thinking_tokens": 20},
        },
    },
    "openai-chat": {
        "choices": [],
        "usage": {
            "prompt_tokens": 1000,
            "prompt_tokens_details": {"cached_tokens": 900},
            "completion_tokens": 50,
            "completion_tokens_details": {"reasoning_tokens": 20},
        },
    },
    "openai-responses": {
        "output": [],
        "usage": {
            "input_tokens": 1000,
            "input_tokens_details": {"cached_tokens": 900},
            "output_tokens": 50,
            "output_tokens_details": {"reasoning_tokens": 20},
        },
    },
    "gemini": {
        "candidates": [{"finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 990,
            "toolUsePromptTokenCount": 10,
            "cachedContentTokenCount": 900,
            "candidatesTokenCount": 30,
            "thoughtsTokenCount": 20,
            "totalTokenCount": 1050,
        },
    },
}


@pytest.mark.parametrize("name", list(BODIES))
def test_the_same_traffic_gives_the_same_buckets_in_every_dialect(name: str) -> None:
    found = whole(name, BODIES[name])
    assert found.usage == TRAFFIC
    assert found.is_complete


@pytest.mark.parametrize("name", list(BODIES))
def test_a_cut_body_in_one_piece_is_unknown(name: str) -> None:
    meter = DIALECTS[name].meter("application/json")
    meter.feed(json.dumps(BODIES[name]).encode()[:-5])
    assert meter.finish(body_ended=False).usage is None


def test_anthropics_later_account_is_cumulative_and_its_nulls_erase_nothing() -> None:
    start = {"input_tokens": 7, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 1}
    found = stream(
        "anthropic-messages",
        {"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": start}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 10, "input_tokens": None}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 25}},
        {"type": "message_stop"},
    )
    assert found.usage == TokenUsage(uncached_input=7, cache_write=5, cache_read=3, output=25)
    assert (found.reply_id, found.served_model, found.stop_reason) == ("msg_1", "m", "end_turn")


def test_anthropics_hour_long_cache_is_told_apart() -> None:
    usage = {
        "input_tokens": 1,
        "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        "output_tokens": 2,
    }
    found = whole("anthropic-messages", {"type": "message", "content": [], "usage": usage})
    assert found.usage is not None
    assert (found.usage.cache_write, found.usage.cache_write_1h) == (30, 20)


def test_a_compaction_that_anthropic_makes_on_the_way_is_counted_once() -> None:
    own = {"input_tokens": 100, "output_tokens": 10}
    compaction = {"type": "compaction", "input_tokens": 5000, "output_tokens": 300}
    usage = {**own, "iterations": [compaction, {"type": "message", **own}]}
    found = whole("anthropic-messages", {"type": "message", "content": [], "usage": usage})
    assert found.usage == TokenUsage(uncached_input=5100, cache_write=0, cache_read=0, output=310)


def test_an_anthropic_stream_that_breaks_after_a_finished_call_keeps_the_call_and_a_lower_bound() -> None:
    found = stream(
        "anthropic-messages",
        {"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "Bash"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"c":1}'}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "b", "name": "Edit"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"c"'}},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    )
    assert found.tool_calls == (
        ToolCall(id="a", name="Bash", input={"c": 1}),
        ToolCall(id="b", name="Edit", input=None, is_partial=True),
    )
    assert found.error is not None
    assert found.error.kind == "overloaded_error"
    assert found.usage == TokenUsage(uncached_input=7, cache_write=0, cache_read=0, output=1, is_lower_bound=True)
    assert not found.is_complete


def test_a_chat_stream_says_its_usage_last_and_repeated_accounts_are_not_added() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 3}
    found = stream(
        "openai-chat",
        {"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 10, "completion_tokens": 1}},
        {"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}], "usage": None},
        {"choices": [], "usage": usage},
        "[DONE]",
    )
    assert found.usage == TokenUsage(uncached_input=10, cache_write=0, cache_read=0, output=3)
    assert found.text == "ab"
    assert found.is_complete


def test_a_chat_stream_that_was_not_asked_for_usage_is_complete_and_unknown() -> None:
    found = stream("openai-chat", {"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]")
    assert found.is_complete
    assert found.usage is None


def test_a_written_cache_stands_inside_openais_input() -> None:
    details = {"cached_tokens": 20, "cache_write_tokens": 30}
    found = whole("openai-chat", {"choices": [], "usage": {"prompt_tokens": 100, "prompt_tokens_details": details}})
    assert found.usage == TokenUsage(uncached_input=50, cache_write=30, cache_read=20, output=None)


def test_more_cached_than_read_is_no_account_of_the_input() -> None:
    usage = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 20}, "completion_tokens": 1}
    found = whole("openai-chat", {"choices": [], "usage": usage})
    assert found.usage is not None
    assert found.usage.uncached_input is None


def test_a_response_that_failed_tells_why_and_what_it_cost() -> None:
    error = {"code": "server_error", "message": "sorry"}
    response = {"status": "failed", "error": error, "usage": {"input_tokens": 5, "output_tokens": 0}}
    found = stream("openai-responses", {"type": "response.failed", "response": response})
    assert found.error is not None
    assert (found.error.kind, found.error.message) == ("server_error", "sorry")
    assert found.usage is not None
    assert (found.usage.total, found.is_complete) == (5, False)


def test_a_response_cut_short_by_its_limit_is_whole() -> None:
    response = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "usage": {"input_tokens": 5, "output_tokens": 9},
    }
    found = stream("openai-responses", {"type": "response.incomplete", "response": response})
    assert (found.stop_reason, found.is_complete) == ("max_output_tokens", True)


def test_a_responses_stream_that_breaks_has_said_nothing_of_its_cost() -> None:
    found = stream("openai-responses", {"type": "response.created", "response": {"model": "m"}}, body_ended=False)
    assert found.usage is None
    assert found.served_model == "m"


def test_geminis_last_account_counts_and_thoughts_are_added_to_the_output() -> None:
    found = stream(
        "gemini",
        {"candidates": [{"content": {"parts": [{"text": "a"}]}}], "usageMetadata": {"promptTokenCount": 10}},
        {
            "candidates": [
                {"content": {"parts": [{"functionCall": {"name": "sh", "args": {"c": 1}}}]}, "finishReason": "STOP"}
            ],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 4, "thoughtsTokenCount": 6},
            "modelVersion": "g-1",
        },
    )
    assert found.usage == TokenUsage(uncached_input=10, cache_write=0, cache_read=0, output=10, reasoning=6)
    assert found.tool_calls == (ToolCall(id=None, name="sh", input={"c": 1}),)
    assert (found.served_model, found.is_complete) == ("g-1", True)


def test_a_gemini_stream_without_events_is_a_list_of_chunks() -> None:
    chunks = [{"candidates": [{"content": {"parts": [{"text": "a"}]}}]}, BODIES["gemini"]]
    found = whole("gemini", chunks)
    assert (found.text, found.usage, found.is_complete) == ("a", TRAFFIC, True)


def test_a_prompt_that_gemini_blocks_is_a_whole_reply() -> None:
    found = stream("gemini", {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}})
    assert (found.stop_reason, found.is_complete) == ("SAFETY", True)


@pytest.mark.parametrize("name", list(BODIES))
def test_a_page_in_place_of_a_reply_is_named_and_costs_nothing_known(name: str) -> None:
    meter = DIALECTS[name].meter("text/html")
    meter.feed(b"<html>busy</html>")
    found = meter.finish(body_ended=True)
    assert (found.usage, found.problem, found.is_complete) == (None, "the body is not JSON", False)


@pytest.mark.parametrize("name", list(BODIES))
def test_a_broken_event_is_named_and_the_others_are_read(name: str) -> None:
    found = stream(name, "{not json", "[1,2]")
    assert found.problem == "an event whose data is no JSON object"
    assert found.n_events == 2


def test_what_is_kept_of_an_endless_reply_is_bounded() -> None:
    meter = DIALECTS["openai-chat"].meter("text/event-stream")
    chunk = json.dumps({"choices": [{"delta": {"content": "x" * 100_000}}]})
    for _ in range(100):
        meter.feed(f"data: {chunk}\n\n".encode())
    found = meter.finish(body_ended=True)
    assert len(found.text) <= 4 << 20
    assert found.problem is not None


def test_the_terms_that_set_the_price_are_kept() -> None:
    usage = {"input_tokens": 1, "output_tokens": 1, "service_tier": "standard", "speed": "fast"}
    found = whole("anthropic-messages", {"type": "message", "content": [], "usage": usage})
    assert found.price_context == {"service_tier": "standard", "speed": "fast"}
    assert whole("openai-chat", {"choices": [], "service_tier": "flex"}).price_context == {"service_tier": "flex"}
    assert whole("openai-responses", {"output": [], "service_tier": "flex"}).price_context == {"service_tier": "flex"}
    assert whole("openai-chat", {"choices": [], "service_tier": None}).price_context == {}


def test_calls_of_a_free_text_and_calls_that_the_provider_ran_itself_are_told_apart() -> None:
    items = [
        {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** Begin"},
        {"type": "web_search_call", "id": "w", "action": {"query": "q"}},
        {"type": "local_shell_call", "call_id": "s", "action": {"command": ["ls"]}},
        {"type": "tool_search_call", "call_id": "t", "arguments": {"query": "x"}},
        {"type": "apply_patch_call", "call_id": "p", "operation": {"path": "f"}},
        {"type": "function_call", "call_id": "f", "name": "x", "arguments": "[not an object]"},
        {"type": "message", "content": [{"type": "output_text", "text": "hi"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    ]
    found = whole("openai-responses", {"output": items})
    assert [(call.id, call.name, call.input, call.namespace, call.is_custom) for call in found.tool_calls] == [
        ("a", "apply_patch", {"input": "*** Begin"}, None, True),
        ("w", "web_search_call", {"query": "q"}, "hosted", False),
        ("s", "shell", {"command": ["ls"]}, None, False),
        ("t", "tool_search", {"query": "x"}, None, False),
        ("p", "apply_patch", {"path": "f"}, None, False),
        ("f", "x", None, None, False),
    ]
    assert (found.text, found.thinking) == ("hi", "hm")
    block = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    (call,) = whole("anthropic-messages", {"type": "message", "content": [block]}).tool_calls
    assert (call.name, call.namespace) == ("web_search", "server_tool_use")


def test_a_body_above_the_limit_is_passed_on_unread() -> None:
    meter = DIALECTS["openai-chat"].meter("application/json")
    for _ in range(65):
        meter.feed(b" " * (1 << 20))
    found = meter.finish(body_ended=True)
    assert found.usage is None
    assert found.problem is not None
    assert "it was not read" in found.problem


def test_an_empty_body_says_nothing() -> None:
    for name in BODIES:
        found = whole(name, {})
        assert (found.usage, found.is_complete) == (None, False)
        meter = DIALECTS[name].meter("application/json")
        found = meter.finish(body_ended=True)
        assert (found.usage, found.problem, found.is_complete) == (None, None, False)
