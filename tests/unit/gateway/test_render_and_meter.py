"""What the scripted model says is what the meter reads: in every dialect, streaming or not, split anywhere."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairtrial.gateway.dialect import Call, ReplyReading, ScriptedReply, Stop, ToolCall
from fairtrial.gateway.dialects import DIALECTS
from fairtrial.gateway.meter import MAX_BODY_BYTES
from fairtrial.model.usage import TokenUsage

COUNTS = st.integers(0, 10**9)


@st.composite
def usages(draw: st.DrawFn) -> TokenUsage:
    output = draw(COUNTS)
    return TokenUsage(
        uncached_input=draw(COUNTS),
        cache_write=draw(COUNTS),
        cache_read=draw(COUNTS),
        output=output,
        reasoning=draw(st.integers(0, output)),
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(
    ToolCall,
    id=st.none(),
    name=st.sampled_from(["Bash", "exec_command", "Skill"]),
    input=st.dictionaries(st.text(max_size=8), JSON, max_size=4),
)
REPLIES = st.builds(
    ScriptedReply,
    id=st.just("ft0t0xabcdef01"),
    text=st.text(max_size=300),
    thinking=st.text(max_size=100),
    tool_calls=st.lists(CALLS, max_size=3).map(tuple),
    usage=st.none() | usages(),
    piece_characters=st.integers(1, 50),
)


def expected_usage(name: str, usage: TokenUsage | None) -> TokenUsage | None:
    """What a dialect has words for."""
    if usage is None or name != "gemini":
        return usage
    uncached = (usage.uncached_input or 0) + (usage.cache_write or 0)
    return replace(usage, uncached_input=uncached, cache_write=0)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("name", list(DIALECTS))
@given(reply=REPLIES, size=st.integers(1, 400))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_meter_reads_back_exactly_what_was_scripted(
    name: str,
    stream: bool,
    reply: ScriptedReply,
    size: int,
    call_of: Callable[..., Call],
    read: Callable[..., ReplyReading],
) -> None:
    dialect = DIALECTS[name]
    call = call_of(name, stream=stream)
    rendered = dialect.render(reply, call)
    found = read(dialect, rendered, size=size)
    assert found == read(dialect, rendered)
    assert found.problem is None
    assert found.error is None
    assert found.is_complete
    assert found.usage == expected_usage(name, reply.usage)
    assert (found.text, found.thinking) == (reply.text, reply.thinking)
    assert [(each.name, each.input, each.is_partial) for each in found.tool_calls] == [
        (each.name, each.input, False) for each in reply.tool_calls
    ]
    assert found.served_model == "m-1"
    assert (len(rendered.pieces) > 1) >= stream or name == "gemini"


@pytest.mark.parametrize("name", list(DIALECTS))
@given(reply=REPLIES, cut=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stream_cut_anywhere_is_a_lower_bound_or_unknown_and_never_more(
    name: str, reply: ScriptedReply, cut: int, call_of: Callable[..., Call]
) -> None:
    dialect = DIALECTS[name]
    body = dialect.render(reply, call_of(name)).body
    meter = dialect.meter("text/event-stream")
    meter.feed(body[: cut % len(body)])
    found = meter.finish(body_ended=False)
    assert found.problem is None
    whole = expected_usage(name, reply.usage)
    if found.usage is not None and not found.is_complete:
        assert found.usage.is_lower_bound
        assert whole is not None
        for bucket in ("uncached_input", "cache_write", "cache_read", "output"):
            assert (getattr(found.usage, bucket) or 0) <= getattr(whole, bucket)
    if found.is_complete:
        assert found.usage == whole
    for call, scripted in zip(found.tool_calls, reply.tool_calls, strict=False):
        assert call.name == scripted.name
        assert call.is_partial or call.input == scripted.input


@pytest.mark.parametrize("name", list(DIALECTS))
@given(events=st.lists(st.binary(max_size=60) | JSON, max_size=10), ended=st.booleans())
@settings(max_examples=30, deadline=None)
def test_a_meter_never_raises_whatever_comes(name: str, events: list[Any], ended: bool) -> None:
    import json

    for content_type in ("text/event-stream", "application/json", ""):
        meter = DIALECTS[name].meter(content_type)
        for event in events:
            meter.feed(event if isinstance(event, bytes) else b"data: " + json.dumps(event).encode() + b"\n\n")
        meter.finish(body_ended=ended)


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json"])
@pytest.mark.parametrize("is_too_large", [False, True])
def test_a_reply_that_a_meter_cannot_read_for_its_size_is_told_from_one_that_broke(
    content_type: str, is_too_large: bool
) -> None:
    meter = DIALECTS["openai-responses"].meter(content_type)
    half = MAX_BODY_BYTES // 2
    for data in (b"data: ", b" " * half, b" " * half) if is_too_large else (b"data: ",):
        meter.feed(data)
    found = meter.finish(body_ended=True)
    assert (found.is_complete, found.is_too_large) == (False, is_too_large)


KINDS = st.sampled_from(
    [
        *("message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta", "error"),
        *("content_block_stop", "response.created", "response.output_item.added", "response.output_item.done"),
        *("response.completed", "response.function_call_arguments.delta", "tool_use", "function_call", "text_delta"),
        *("input_json_delta", "message", "text", "function"),
    ]
)
KEYS = st.sampled_from(
    [
        *("type", "index", "delta", "usage", "message", "content_block", "error", "choices", "tool_calls", "function"),
        *("arguments", "response", "item", "output_index", "candidates", "content", "parts", "usageMetadata", "id"),
        *("functionCall", "input_tokens", "output_tokens", "iterations", "finish_reason", "output", "prompt_tokens"),
        *("prompt_tokens_details", "cached_tokens", "promptTokenCount", "name", "args", "model", "custom", "input"),
    ]
)
NEAR = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | KINDS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)


@pytest.mark.parametrize("name", list(DIALECTS))
@given(events=st.lists(st.dictionaries(KEYS, NEAR, max_size=5), max_size=5))
@settings(max_examples=50, deadline=None)
def test_a_meter_never_raises_on_events_that_almost_read_right(name: str, events: list[dict[str, Any]]) -> None:
    import json

    meter = DIALECTS[name].meter("text/event-stream")
    for event in events:
        meter.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
        whole = DIALECTS[name].meter("application/json")
        whole.feed(json.dumps(event).encode())
        whole.finish(body_ended=True)
    meter.finish(body_ended=True)


@pytest.mark.parametrize("name", list(DIALECTS))
def test_a_reply_without_usage_is_unknown_and_not_zero(
    name: str, call_of: Callable[..., Call], read: Callable[..., ReplyReading]
) -> None:
    for stream in (True, False):
        rendered = DIALECTS[name].render(ScriptedReply(id="ft0t0xabcdef01", text="hi"), call_of(name, stream=stream))
        assert read(DIALECTS[name], rendered).usage is None


@pytest.mark.parametrize("stop", list(Stop))
@pytest.mark.parametrize("name", list(DIALECTS))
def test_why_the_model_stopped_is_said_in_the_dialects_own_word(
    name: str, stop: Stop, call_of: Callable[..., Call], read: Callable[..., ReplyReading]
) -> None:
    for stream in (True, False):
        reply = ScriptedReply(id="ft0t0xabcdef01", text="hi", stop=stop)
        found = read(DIALECTS[name], DIALECTS[name].render(reply, call_of(name, stream=stream)))
        assert found.stop_reason
        assert found.is_complete


@pytest.mark.parametrize("name", list(DIALECTS))
def test_errors_are_written_as_the_meter_reads_them(name: str, read: Callable[..., ReplyReading]) -> None:
    from fairtrial.gateway.dialect import ErrorKind

    dialect = DIALECTS[name]
    for kind in ErrorKind:
        rendered = dialect.render_error(529, kind, "not now")
        found = read(dialect, rendered)
        assert rendered.status == 529
        assert found.error is not None
        assert (found.error.message, found.usage, found.is_complete) == ("not now", None, False)
        assert found.error.kind
        meter = dialect.meter("text/event-stream")
        meter.feed(dialect.render_stream_error(kind, "not now"))
        found = meter.finish(body_ended=True)
        assert found.error is not None
        assert found.error.message == "not now"
        assert not found.is_complete


def test_a_call_of_free_text_is_written_as_one(call_of: Callable[..., Call], read: Callable[..., ReplyReading]) -> None:
    dialect = DIALECTS["openai-responses"]
    call = ToolCall(id=None, name="apply_patch", input={"input": "*** Begin"}, is_custom=True, namespace="n")
    reply = ScriptedReply(id="ft0t0xabcdef01", tool_calls=(call,), piece_characters=3)
    for stream in (True, False):
        rendered = dialect.render(reply, call_of("openai-responses", stream=stream))
        assert b"custom_tool_call" in rendered.body
        (found,) = read(dialect, rendered).tool_calls
        assert (found.name, found.input, found.is_custom, found.namespace) == (
            "apply_patch", {"input": "*** Begin"}, True, "n",
        )  # fmt: skip


def test_a_stream_of_gemini_without_events_is_written_as_a_list(read: Callable[..., ReplyReading]) -> None:
    dialect = DIALECTS["gemini"]
    route = dialect.route("POST", "/v1beta/models/m:streamGenerateContent")
    assert route is not None
    call = dialect.read_request(route, {}, {"contents": []})
    usage = TokenUsage(uncached_input=1, cache_write=0, cache_read=0, output=2, reasoning=0)
    rendered = dialect.render(ScriptedReply(id="ft0t0xabcdef01", text="ab", piece_characters=1, usage=usage), call)
    found = read(dialect, rendered)
    assert (found.text, found.usage, found.is_complete) == ("ab", usage, True)
