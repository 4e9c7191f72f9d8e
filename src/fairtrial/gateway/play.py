"""Playing a script: which answer a request gets, and what all answers cost together.

Nothing is remembered between requests: the turn is read off the conversation that a request brings, so a client that
tries again gets the same turn again. The ids of scripted tool calls carry their turn; where a turn made no calls, the
assistant's turns are counted. A client that throws its history away (compaction) therefore starts again at turn 0.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fairtrial.gateway.dialect import Call, JsonObject, Role, ScriptedReply, ToolCall
from fairtrial.gateway.script import Beyond, CallScript, CaseScript, ErrorEventScript, FaultScript, Script, TurnScript
from fairtrial.model.usage import NOTHING_USED, TokenUsage, sum_usage

__all__ = ["NoTurn", "Selection", "expected_usage", "select_reply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The answer to a request.

    Attributes:
        agent: Name of the agent's script.
        turn: Number of the turn, from 0.
        reply: What is answered.
        fault: What goes wrong with it, on the first `times` tries; None for nothing.
        error_event: The error that ends it in its middle, likewise.
        key: What tries of this turn in this conversation have in common, to count them by.
    """

    agent: str
    turn: int
    reply: ScriptedReply
    fault: FaultScript | None
    error_event: ErrorEventScript | None
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoTurn:
    """There is no answer to a request.

    Attributes:
        message: Why, for the client and the record.
    """

    message: str


_ID: Final = re.compile(r"ft([0-9]+)t([0-9]+)x[0-9a-f]{8}_[0-9]+$")


def select_reply(script: Script, call: Call, dialect: str) -> Selection | NoTurn:
    """The answer to a request: the same for the same request, always."""
    found = next(((place, agent) for place, agent in enumerate(script.agents) if agent.match.holds(call)), None)
    if found is None:
        return NoTurn(message="the script has no agent for this conversation")
    place, agent = found
    number = _turn_number(call, place)
    if number >= len(agent.turns) and agent.beyond is Beyond.FAIL:
        return NoTurn(message=f"the script of {agent.name!r} has {len(agent.turns)} turns; this is turn {number}")
    turn = agent.turns[min(number, len(agent.turns) - 1)]
    case = next((case for case in turn.cases if case.when.holds(call)), None)
    chosen = case or turn
    reply = ScriptedReply(
        id=f"ft{place}t{number}x{call.digest[:8]}",
        text=chosen.text,
        thinking=chosen.thinking,
        tool_calls=tuple(_tool_call(each) for each in chosen.calls if not each.only or dialect in each.only),
        usage=_usage(script, chosen),
        stop=chosen.stop,
        model=chosen.model,
        first_delay_s=turn.delay_s,
        piece_delay_s=turn.piece_delay_s,
        piece_characters=turn.piece_characters,
    )
    key = f"{agent.name}/{number}/{call.digest}"
    return Selection(
        agent=agent.name, turn=number, reply=reply, fault=turn.fault, error_event=turn.error_event, key=key
    )


def _turn_number(call: Call, place: int) -> int:
    """How many turns of this agent's script the conversation holds already."""
    number = 0
    for turn in call.turns:
        if turn.role is not Role.ASSISTANT:
            continue
        ids = [found for each in turn.tool_calls if (found := _ID.search(each.id or "")) is not None]
        own = [int(found[2]) for found in ids if int(found[1]) == place]
        if own:
            number = max(own) + 1
        elif ids:
            number = 0  # another agent's history, handed on to this one
        else:
            number += 1
    return number


def _tool_call(call: CallScript) -> ToolCall:
    given: JsonObject = dict(call.input)
    return ToolCall(id=None, name=call.tool, input=given, namespace=call.namespace, is_custom=call.custom)


def _usage(script: Script, answer: TurnScript | CaseScript) -> TokenUsage | None:
    chosen = answer.usage or script.usage
    return chosen.usage() if chosen is not None and answer.tells_usage else None


def expected_usage(script: Script, *, times: Mapping[str, int] | None = None, dialect: str | None = None) -> TokenUsage:
    """What all turns say they cost, together: what a client that plays each of them once must be seen to use.

    Args:
        script: The script.
        times: How often each agent is played through, by name; 1 where it is left out.
        dialect: Whose words the figures go through; None for as they stand. Gemini has none for a written cache: what
            went into one is input like any other there.

    Raises:
        ValueError: A turn has cases that do not say the same as the turn itself, so there is no one sum.
    """
    usages: list[TokenUsage | None] = [NOTHING_USED]
    for agent in script.agents:
        for number, turn in enumerate(agent.turns):
            choices = {_usage(script, turn), *(_usage(script, case) for case in turn.cases)}
            if len(choices) > 1:
                message = f"turn {number} of {agent.name!r} costs one thing or another, as its cases go"
                raise ValueError(message)
            usages.extend([*choices] * (times or {}).get(agent.name, 1))
    total = sum_usage(usages)
    if dialect != "gemini" or total.uncached_input is None or total.cache_write is None:
        return total
    return replace(total, uncached_input=total.uncached_input + total.cache_write, cache_write=0, cache_write_1h=None)
