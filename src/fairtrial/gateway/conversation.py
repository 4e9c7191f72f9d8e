"""A conversation put together from the messages of any dialect, and its digest."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fairtrial.gateway.dialect import Role, ToolCall, ToolResult, Turn
from fairtrial.gateway.fields import render_compact

__all__ = ["ConversationBuilder", "digest_of"]

_DIGEST_VERSION: Final = "conversation/2"


class ConversationBuilder:
    """Joins neighbouring messages of one role, and names the tool of each result after the call that it answers."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._names: dict[str, str] = {}

    def add(
        self,
        role: Role,
        text: str = "",
        *,
        tool_calls: Sequence[ToolCall] = (),
        tool_results: Sequence[ToolResult] = (),
    ) -> None:
        """Append one message."""
        for call in tool_calls:
            if call.id is not None:
                self._names[call.id] = call.name
        results = [
            replace(each, name=self._names.get(each.call_id or "")) if each.name is None else each
            for each in tool_results
        ]
        if self._turns and self._turns[-1].role is role:
            last = self._turns.pop()
            text = "\n".join(part for part in (last.text, text) if part)
            tool_calls, results = (*last.tool_calls, *tool_calls), [*last.tool_results, *results]
        self._turns.append(Turn(role=role, text=text, tool_calls=tuple(tool_calls), tool_results=tuple(results)))

    def turns(self) -> tuple[Turn, ...]:
        """The conversation so far."""
        return tuple(self._turns)


def digest_of(*parts: object) -> str:
    """Hex SHA-256 of plain values. A client writes its retry as it wrote the first try, so keys keep their order."""
    return hashlib.sha256(render_compact((_DIGEST_VERSION, *parts))).hexdigest()
