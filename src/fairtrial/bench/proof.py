"""What the wire proves of a session: that a skill was used, how many turns there were. Pure."""

import json
from collections.abc import Sequence
from typing import cast

from fairtrial.gateway.ledger import Ending, SeenCall, WireRow
from fairtrial.model.agent import SkillProof

__all__ = ["count_tool_calls", "count_turns", "names_skill", "prove_skill"]

_ANSWERING = frozenset({Ending.ANSWERED})


def prove_skill(
    rows: Sequence[WireRow], skill: str, proof: SkillProof, *, marker: str, tools: Sequence[str] = ()
) -> bool | None:
    """Tell whether a skill was used; None when that cannot be told.

    A call counts only with a result that a later request brings and does not mark as an error. Subagents' calls count
    too. Two calls or two results of one id prove nothing.

    Args:
        rows: The wire, request by request.
        skill: The skill.
        proof: What proves it for the agent.
        marker: The text that only this session's file of the skill holds.
        tools: What the agent calls its tools for skills, whatever their case.
    """
    if proof is SkillProof.PROMPT:
        return True
    if proof is SkillProof.FILE:
        return any(marker in row.markers for row in rows)
    if proof is SkillProof.NONE:
        return None
    names = frozenset(name.casefold() for name in tools)
    calls: dict[str, int] = {}
    results: dict[str, tuple[int, bool]] = {}
    for place, row in enumerate(rows):
        for result in row.tool_results:
            if result.call_id is None:
                continue
            if result.call_id in results:
                return None
            results[result.call_id] = (place, result.is_error is True)
        for call in row.tool_calls:
            if row.ending is Ending.ANSWERED and not call.is_partial and names_skill(call, skill, names):
                if call.id is None:
                    return _prove_without_id(rows, names)
                if call.id in calls:
                    return None
                calls[call.id] = place
    return any(call in results and results[call][0] > place and not results[call][1] for call, place in calls.items())


def _prove_without_id(rows: Sequence[WireRow], tools: frozenset[str]) -> bool | None:
    """Tell it of a call without an id, as Gemini may leave it; None unless one call and one result can be meant."""
    calls = [
        place
        for place, row in enumerate(rows)
        for call in row.tool_calls
        if row.ending is Ending.ANSWERED and call.name.casefold() in tools
    ]
    results = [
        (place, result.is_error is True)
        for place, row in enumerate(rows)
        for result in row.tool_results
        if result.name is not None and result.name.casefold() in tools
    ]
    if len(calls) != 1 or len(results) != 1 or results[0][0] <= calls[0]:
        return None
    return not results[0][1]


def names_skill(call: SeenCall, skill: str, tools: frozenset[str]) -> bool:
    """Tell whether a call of one of these tools asks for exactly this skill."""
    if call.name.casefold() not in tools or call.input is None:
        return False
    try:
        parsed: object = json.loads(call.input)
    except (ValueError, RecursionError):
        return False
    if not isinstance(parsed, dict):
        return False
    given = cast("dict[str, object]", parsed)
    asked = next((value for name in ("skill", "command", "name") if isinstance(value := given.get(name), str)), "")
    words = asked.split()
    return bool(words) and words[0].removeprefix("/").rpartition(":")[2] == skill


def count_turns(rows: Sequence[WireRow]) -> int:
    """Replies that the main loop was given whole."""
    return sum(row.ending in _ANSWERING and row.ask == "generate" and row.agent_claim is None for row in rows)


def count_tool_calls(rows: Sequence[WireRow]) -> dict[str, int]:
    """Whole tool calls of all whole replies, by the tool's name."""
    counts: dict[str, int] = {}
    for row in rows:
        if row.ending in _ANSWERING:
            for call in row.tool_calls:
                if not call.is_partial:
                    counts[call.name] = counts.get(call.name, 0) + 1
    return counts
