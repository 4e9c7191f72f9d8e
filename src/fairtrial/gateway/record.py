"""A script made of what was recorded, so that a live run can be played again without a provider.

What is kept is what a model said and did and what it cost; what a client sent is kept only as far as it tells one
conversation from another. Every text goes through the caller's redaction.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from pydantic import TypeAdapter

from fairtrial.gateway.dialect import Call, JsonObject, ReplyReading, Role
from fairtrial.gateway.script import (
    AgentMatch,
    AgentScript,
    CallScript,
    Claimed,
    FaultScript,
    Offered,
    Script,
    TurnScript,
    UsageScript,
)
from fairtrial.model.usage import TokenUsage
from fairtrial.wire.faults import FaultKind

__all__ = ["RecordedExchange", "render_script", "script_of"]

_MAX_PROMPT: Final = 200
_HOSTED: Final = frozenset(("hosted", "server_tool_use", "mcp_tool_use"))  # made and answered by the provider


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedExchange:
    """One request and what became of it.

    Attributes:
        call: The request.
        status: The status of its reply; None when there was none.
        reading: What the reply was seen to be.
        client_left: The client, or a fault of ours, ended it, so nothing is known of how it would have ended.
    """

    call: Call
    status: int | None
    reading: ReplyReading
    client_left: bool = False


def script_of(exchanges: Sequence[RecordedExchange], *, redact: Callable[[str], str]) -> Script:
    """Put recorded exchanges together as a script.

    Conversations are told apart by their first message, by whether they are a subagent's and by whether tools are
    offered. Turns keep the order of the conversation. What failed fails again when it is played: with its status (502
    where there was no reply), or broken off behind as much as had been said. A turn that failed before it succeeded
    fails as often; one that never succeeded holds what was seen of it and fails on every try. Where tries failed in
    different ways, the first way stands for all.

    Raises:
        ValueError: No exchange has an end of its own.
    """
    groups: dict[tuple[bool, bool, str], list[RecordedExchange]] = {}
    for exchange in exchanges:
        call = exchange.call
        key = (call.agent_claim is not None, bool(call.tools), _first_message(call))
        groups.setdefault(key, []).append(exchange)
    agents: list[AgentScript] = []
    # A conversation whose mark is longer is told first: another's mark may be a part of it.
    for key in sorted(groups, key=lambda each: len(_mark(each[2])), reverse=True):
        is_subagent, has_tools, prompt = key
        turns = _turns(groups[key], redact)
        if not turns:
            continue
        match = AgentMatch(
            claimed=Claimed.SUBAGENT if is_subagent else Claimed.MAIN,
            prompt_contains=_plain(_mark(prompt), redact) or None,
            tools=Offered.SOME if has_tools else Offered.NONE,
        )
        kind = "subagent" if is_subagent else "main" if has_tools else "side"
        agents.append(AgentScript(name=f"{kind}-{len(agents)}", match=match, turns=tuple(turns)))
    return Script(schema="script/1", agents=tuple(agents))


def render_script(script: Script) -> bytes:
    """Write a script as a file that `read_script` reads: JSON, which is YAML too."""
    value = TypeAdapter(Script).dump_python(script, mode="json", exclude_defaults=True)
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def _first_message(call: Call) -> str:
    return next((turn.text for turn in call.turns if turn.role is Role.USER), "")


def _mark(prompt: str) -> str:
    """What a conversation is known by: the end of its first message. What clients put before it differs by the run."""
    lines = [line for line in prompt.splitlines() if line.strip()]
    return lines[-1][-_MAX_PROMPT:] if lines else ""


def _plain(text: str, redact: Callable[[str], str]) -> str:
    """The text redacted, and without what no configuration file can hold."""
    return redact(text).replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _turns(exchanges: list[RecordedExchange], redact: Callable[[str], str]) -> list[TurnScript]:
    by_number: dict[int, list[RecordedExchange]] = {}
    for exchange in exchanges:
        number = sum(turn.role is Role.ASSISTANT for turn in exchange.call.turns)
        by_number.setdefault(number, []).append(exchange)
    turns: list[TurnScript] = []
    for number in sorted(by_number):
        tries = by_number[number]
        whole = next((index for index, each in enumerate(tries) if each.reading.is_complete), len(tries))
        failed = [each for each in tries[:whole] if not each.client_left]
        if whole < len(tries):
            reading = tries[whole].reading
            turns.append(_turn(reading, _fault(failed, reading, times=len(failed)) if failed else None, redact))
        elif failed:
            reading = max((each.reading for each in failed), key=_n_said)
            turns.append(_turn(reading, _fault(failed, reading, times=0), redact))
    return turns


def _fault(failed: list[RecordedExchange], played: ReplyReading, *, times: int) -> FaultScript:
    """The failure of a turn that plays a reading, as the first of its failures was."""
    first = failed[0]
    status = 502 if first.status is None else first.status
    if status >= 400:
        return FaultScript(kind=FaultKind.STATUS, parameter=status, times=times)
    # A reply is longer than what it says, so this cuts it however the dialect writes it.
    n_bytes = min(_n_said(first.reading), _n_said(played))
    return FaultScript(kind=FaultKind.TRUNCATE_REPLY, parameter=n_bytes, times=times)


def _n_said(reading: ReplyReading) -> int:
    """How much of it is played again."""
    return len(reading.text) + len(reading.thinking)


def _turn(reading: ReplyReading, fault: FaultScript | None, redact: Callable[[str], str]) -> TurnScript:
    calls = tuple(
        CallScript(
            tool=_plain(call.name, redact),
            input=_redacted_object(call.input or {}, redact),
            namespace=call.namespace,
            custom=call.is_custom,
        )
        for call in reading.tool_calls
        if not call.is_partial and call.namespace not in _HOSTED
    )
    return TurnScript(
        text=_plain(reading.text, redact),
        thinking=_plain(reading.thinking, redact),
        calls=calls,
        usage=_usage(reading.usage),
        fault=fault,
    )


def _usage(usage: TokenUsage | None) -> UsageScript | None:
    if usage is None or usage.total is None:
        return None  # the script has no default, so the replay says nothing either
    return UsageScript(
        uncached_input=usage.uncached_input or 0,
        cache_write=usage.cache_write or 0,
        cache_read=usage.cache_read or 0,
        output=usage.output or 0,
        reasoning=usage.reasoning,
        cache_write_1h=usage.cache_write_1h,
    )


def _redacted_object(value: JsonObject, redact: Callable[[str], str]) -> JsonObject:
    return {_plain(key, redact): _redacted(each, redact) for key, each in value.items()}


def _redacted(value: object, redact: Callable[[str], str]) -> object:
    match value:
        case str():
            return _plain(value, redact)
        case dict():
            return _redacted_object(cast("JsonObject", value), redact)
        case list():
            return [_redacted(each, redact) for each in cast("list[object]", value)]
        case _:
            return value
