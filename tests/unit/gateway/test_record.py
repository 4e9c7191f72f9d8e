"""A live run, recorded and redacted, plays again: the same replies, the same figures."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.gateway.dialect import Call, Dialect, ReplyReading, ScriptedReply, ToolCall
from fairtrial.gateway.dialects import DIALECTS
from fairtrial.gateway.play import Selection, select_reply
from fairtrial.gateway.record import RecordedExchange, render_script, script_of
from fairtrial.gateway.script import Script, UsageScript, read_script
from fairtrial.model.usage import TokenUsage
from fairtrial.wire.faults import FaultKind

NAMES = list(DIALECTS)
KEY = "sk-live-0123456789"


def redact(text: str) -> str:
    return text.replace(KEY, "[key]")


def usage(n: int) -> TokenUsage:
    return TokenUsage(uncached_input=n, cache_write=0, cache_read=2 * n, output=3 * n, reasoning=n)


def reply(n: int) -> ScriptedReply:
    calls = (ToolCall(id=None, name="sh", input={"cmd": f"echo {KEY}", "more": [n, {KEY: None}]}),) if n < 2 else ()
    return ScriptedReply(id=f"live{n}", text=f"{n}: it is {KEY}\0", thinking="hm", tool_calls=calls, usage=usage(n + 1))


def live_run(
    dialect: Dialect, call_of: Callable[..., Call], read: Callable[..., ReplyReading]
) -> list[RecordedExchange]:
    calls = [call_of(dialect.name, f"today\nFix it with {KEY}.", turns=n) for n in range(3)]
    whole = [
        RecordedExchange(call=call, status=200, reading=read(dialect, dialect.render(reply(n), call)))
        for n, call in enumerate(calls)
    ]
    busy = RecordedExchange(call=calls[1], status=529, reading=ReplyReading(usage=None))
    return [whole[0], busy, busy, whole[1], whole[2]]


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_plays_again_with_the_same_replies_and_figures(
    name: str, call_of: Callable[..., Call], read: Callable[..., ReplyReading], tmp_path: Path
) -> None:
    dialect = DIALECTS[name]
    recorded = live_run(dialect, call_of, read)
    path = tmp_path / "recorded.yaml"
    path.write_bytes(render_script(script_of(recorded, redact=redact)))
    assert KEY.encode() not in path.read_bytes()
    script = read_script(path)
    for n in range(3):
        # Another day: what the client puts before the prompt differs.
        call = call_of(name, "tomorrow\nFix it with [key].", turns=n)
        found = select_reply(script, call, name)
        assert isinstance(found, Selection)
        again = read(dialect, dialect.render(found.reply, call))
        assert again.usage == usage(n + 1)
        assert again.text == f"{n}: it is [key]\ufffd"
        assert again.thinking == "hm"
        inputs = [each.input for each in again.tool_calls]
        assert inputs == ([{"cmd": "echo [key]", "more": [n, {"[key]": None}]}] if n < 2 else [])
        assert (found.fault is None) is (n != 1)
        if found.fault is not None:
            assert (found.fault.kind, found.fault.parameter, found.fault.times) == (FaultKind.STATUS, 529, 2)


def test_the_main_loop_and_its_subagents_become_agents_of_their_own(
    call_of: Callable[..., Call], read: Callable[..., ReplyReading]
) -> None:
    dialect = DIALECTS["anthropic-messages"]
    calls = [
        call_of(dialect.name, "Fix it."),
        call_of(dialect.name, "Look around.", headers={"x-claude-code-agent-id": "a1"}),
    ]
    recorded = [
        RecordedExchange(call=call, status=200, reading=read(dialect, dialect.render(reply(n), call)))
        for n, call in enumerate(calls)
    ]
    script = script_of(recorded, redact=redact)
    for n, call in enumerate(calls):
        found = select_reply(script, call, dialect.name)
        assert isinstance(found, Selection)
        assert found.agent.startswith(("main", "subagent")[n])
        assert found.reply.usage == usage(n + 1)


def test_a_run_that_its_client_ended_before_any_reply_makes_no_script(call_of: Callable[..., Call]) -> None:
    exchange = RecordedExchange(
        call=call_of("gemini"), status=200, reading=ReplyReading(usage=None, text="half"), client_left=True
    )
    with pytest.raises(ValueError, match="at least one agent"):
        script_of([exchange], redact=redact)


def played_fault(script: Script, call: Call, name: str) -> tuple[str, FaultKind, int | None, int]:
    found = select_reply(script, call, name)
    assert isinstance(found, Selection)
    assert found.fault is not None
    return found.reply.text, found.fault.kind, found.fault.parameter, found.fault.times


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_reply_breaks_again_inside_itself_and_a_try_later_it_is_whole(
    name: str, call_of: Callable[..., Call], read: Callable[..., ReplyReading]
) -> None:
    dialect = DIALECTS[name]
    call = call_of(name)
    whole = read(dialect, dialect.render(reply(2), call))
    broken = ReplyReading(usage=None, text=whole.text[:3])
    recorded = [RecordedExchange(call=call, status=200, reading=each) for each in (broken, broken, whole)]
    script = script_of(recorded, redact=redact)
    text, kind, n_bytes, times = played_fault(script, call, name)
    assert (text, kind, n_bytes, times) == ("2: it is [key]\ufffd", FaultKind.TRUNCATE_REPLY, 3, 2)
    longer = ReplyReading(usage=None, text="x" * 5000)  # what was cut later than the whole reply's end
    script = script_of([replace(recorded[0], reading=longer), recorded[2]], redact=redact)
    _, kind, n_bytes, times = played_fault(script, call, name)
    found = select_reply(script, call, name)
    assert isinstance(found, Selection)
    assert (kind, times) == (FaultKind.TRUNCATE_REPLY, 1)
    assert n_bytes is not None
    assert n_bytes < len(dialect.render(found.reply, call).body)


def test_a_turn_that_never_had_a_whole_reply_keeps_its_place_and_fails_on_every_try(
    call_of: Callable[..., Call],
) -> None:
    calls = [call_of("anthropic-messages", turns=n) for n in range(3)]
    lower = replace(usage(1), is_lower_bound=True)
    recorded = [
        RecordedExchange(call=calls[0], status=None, reading=ReplyReading(usage=None)),
        RecordedExchange(call=calls[1], status=200, reading=ReplyReading(usage=None)),
        RecordedExchange(call=calls[1], status=200, reading=ReplyReading(usage=lower, text="half a")),
        RecordedExchange(call=calls[1], status=200, reading=ReplyReading(usage=None, text="x"), client_left=True),
        RecordedExchange(call=calls[2], status=500, reading=ReplyReading(usage=None)),
    ]
    script = script_of(recorded, redact=redact)
    found = [played_fault(script, call, "anthropic-messages") for call in calls]
    assert found == [
        ("", FaultKind.STATUS, 502, 0),
        ("half a", FaultKind.TRUNCATE_REPLY, 0, 0),
        ("", FaultKind.STATUS, 500, 0),
    ]
    assert script.agents[0].turns[1].usage == UsageScript(uncached_input=1, cache_read=2, output=3, reasoning=1)
