"""The scripted model: a file that says what a model answers, and which answer a request gets.

Nothing is remembered between requests: the turn is read off the conversation that a request brings, so a client that
tries again gets the same turn again. The ids of scripted tool calls carry their turn; where a turn made no calls, the
assistant's turns are counted. A client that throws its history away (compaction) therefore starts again at turn 0.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from fairtrial.config.read import read_yaml
from fairtrial.config.validate import validate
from fairtrial.errors import UsageError
from fairtrial.gateway.dialect import Call, JsonObject, Role, ScriptedReply, Stop, ToolCall
from fairtrial.model.usage import NOTHING_USED, TokenUsage, sum_usage
from fairtrial.wire.faults import Fault, FaultKind, parse_faults

__all__ = [
    "AgentMatch",
    "AgentScript",
    "CallScript",
    "CaseScript",
    "Claimed",
    "FaultScript",
    "NoTurn",
    "Script",
    "Selection",
    "TurnScript",
    "UsageScript",
    "When",
    "expected_usage",
    "read_script",
    "select_reply",
]

_DIALECTS: Final = frozenset(("anthropic-messages", "openai-chat", "openai-responses", "gemini"))


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageScript:
    """What a reply says it cost; see `TokenUsage`."""

    uncached_input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    reasoning: int | None = None
    cache_write_1h: int | None = None

    def __post_init__(self) -> None:
        if (self.reasoning or 0) > self.output:
            raise ValueError("reasoning is part of output and cannot be more than it")
        if (self.cache_write_1h or 0) > self.cache_write:
            raise ValueError("cache_write_1h is part of cache_write and cannot be more than it")
        self.usage()

    def usage(self) -> TokenUsage:
        """As a value."""
        return TokenUsage(
            uncached_input=self.uncached_input,
            cache_write=self.cache_write,
            cache_read=self.cache_read,
            output=self.output,
            reasoning=self.reasoning,
            cache_write_1h=self.cache_write_1h,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScript:
    """A tool call.

    Attributes:
        tool: The tool's name.
        input: Its arguments.
        namespace: The tool's namespace (Responses).
        custom: Its argument is free text, which stands in `input` under `input` (Responses).
        only: Dialects that it is made in; empty for all. Two entries with different `only` name the tool of two clients.
    """

    tool: str
    input: dict[str, object] = field(default_factory=dict[str, object])
    namespace: str | None = None
    custom: bool = False
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.only) - _DIALECTS):
            message = f"'only' has unknown dialect {unknown[0]!r}; valid: {', '.join(sorted(_DIALECTS))}"
            raise ValueError(message)
        if self.custom and set(self.input) != {"input"}:
            raise ValueError("a custom call has the one argument 'input', a text")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultScript:
    """What goes wrong with a turn.

    Attributes:
        kind: See `fairtrial.wire.faults`.
        parameter: What the kind takes.
        retry_after_s: Seconds of the Retry-After header of a `status` fault.
        times: How many tries of the turn it hits; 0 for all of them. Whoever plays the script counts them.
    """

    kind: FaultKind
    parameter: int | None = None
    retry_after_s: int | None = None
    times: int = 1

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ValueError("times is 0 for every try, or a number of tries")
        self.fault()

    def fault(self) -> Fault:
        """As a rule that hits every request it is put to."""
        rule: dict[str, object] = {"match": "", "nth": 0, "kind": str(self.kind)}
        rule |= {"parameter": self.parameter} if self.parameter is not None else {}
        rule |= {"retry_after_s": self.retry_after_s} if self.retry_after_s is not None else {}
        try:
            return parse_faults([rule])[0]
        except UsageError as error:
            raise ValueError(str(error).replace("faults[0]", "fault")) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A condition on the tool results that a request brings; every part that is given must hold.

    Attributes:
        contains: A text that one of the results contains.
        matches: A regular expression that is found in one of the results.
        is_error: Whether the client marked one of the results as an error.
    """

    contains: str | None = None
    matches: str | None = None
    is_error: bool | None = None

    def __post_init__(self) -> None:
        _require_pattern(self.matches)

    def holds(self, call: Call) -> bool:
        """Whether it holds for a request."""
        results = call.new_results
        if self.contains is not None and not any(self.contains in each.text for each in results):
            return False
        if self.matches is not None and not any(re.search(self.matches, each.text) for each in results):
            return False
        return self.is_error is None or any(each.is_error is True for each in results) is self.is_error


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseScript:
    """What is answered instead when a condition holds.

    Attributes:
        when: The condition.
        text: As in a turn, and so are the others.
    """

    when: When
    text: str = ""
    thinking: str = ""
    calls: tuple[CallScript, ...] = ()
    usage: UsageScript | Literal["none"] | None = None
    stop: Stop | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnScript:
    """One answer.

    Attributes:
        text: What it says.
        thinking: What it thinks aloud.
        calls: The tools that it calls.
        usage: What it says it cost; `none` to say nothing; left out for the script's own default.
        stop: Why it stops; left out, that follows from its calls.
        model: The model that it says it is; left out, the one requested.
        delay_s: Seconds before its first byte.
        piece_delay_s: Seconds between the pieces of a stream.
        piece_characters: Characters of text in one piece of a stream.
        fault: What goes wrong with it.
        cases: What is answered instead; the first case whose condition holds.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[CallScript, ...] = ()
    usage: UsageScript | Literal["none"] | None = None
    stop: Stop | None = None
    model: str | None = None
    delay_s: float = 0.0
    piece_delay_s: float = 0.0
    piece_characters: int = 200
    fault: FaultScript | None = None
    cases: tuple[CaseScript, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.delay_s <= 3600 or not 0 <= self.piece_delay_s <= 3600:
            raise ValueError("delays are 0 to 3600 seconds")
        if self.piece_characters < 1:
            raise ValueError("piece_characters is at least 1")


class Claimed(StrEnum):
    """Whether a client says that a request is a subagent's."""

    MAIN = "main"
    SUBAGENT = "subagent"


class Offered(StrEnum):
    """Whether a request offers tools."""

    SOME = "some"
    NONE = "none"


class Beyond(StrEnum):
    """What is answered when the turns are used up."""

    FAIL = "fail"
    REPEAT = "repeat"  # the last turn again


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMatch:
    """Which conversations an agent's script is for; every part that is given must hold.

    Attributes:
        claimed: What the client says.
        system_contains: A text in the system text.
        prompt_contains: A text in the first message.
        prompt_matches: A regular expression that is found in the first message.
        tools: Whether tools are offered. (Side calls, for a title, offer none.)
        model: The model requested.
    """

    claimed: Claimed | None = None
    system_contains: str | None = None
    prompt_contains: str | None = None
    prompt_matches: str | None = None
    tools: Offered | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        _require_pattern(self.prompt_matches)

    def holds(self, call: Call) -> bool:
        """Whether it holds for a request."""
        prompt = next((turn.text for turn in call.turns if turn.role is Role.USER), "")
        is_subagent = call.agent_claim is not None
        checks = (
            self.claimed is None or (self.claimed is Claimed.SUBAGENT) is is_subagent,
            self.system_contains is None or self.system_contains in call.system,
            self.prompt_contains is None or self.prompt_contains in prompt,
            self.prompt_matches is None or re.search(self.prompt_matches, prompt) is not None,
            self.tools is None or (self.tools is Offered.SOME) is bool(call.tools),
            self.model is None or self.model == call.requested_model,
        )
        return all(checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentScript:
    """What one kind of conversation is answered.

    Attributes:
        name: What it is called.
        match: The conversations that it is for.
        turns: Its answers in order.
        beyond: What is answered after the last one.
    """

    name: str
    turns: tuple[TurnScript, ...]
    match: AgentMatch = field(default_factory=AgentMatch)
    beyond: Beyond = Beyond.FAIL

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError("an agent needs at least one turn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A scripted model.

    Attributes:
        schema: `script/1`.
        agents: Its agents; the first whose `match` holds answers.
        usage: What a turn says it cost when it does not say so itself; left out, nothing.
    """

    schema: Literal["script/1"]
    agents: tuple[AgentScript, ...]
    usage: UsageScript | None = None

    def __post_init__(self) -> None:
        names = [agent.name for agent in self.agents]
        if not names:
            raise ValueError("a script needs at least one agent")
        if twice := next((name for name in names if names.count(name) > 1), None):
            message = f"two agents are called {twice!r}"
            raise ValueError(message)


def _require_pattern(pattern: str | None) -> None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        message = f"{pattern!r} is no regular expression: {error}"
        raise ValueError(message) from None


def read_script(path: Path) -> Script:
    """Read a script.

    Raises:
        ConfigError: It cannot be read, or something in it is wrong; each problem with its place.
    """
    return validate(read_yaml(path), Script)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The answer to a request.

    Attributes:
        agent: Name of the agent's script.
        turn: Number of the turn, from 0.
        reply: What is answered.
        fault: What goes wrong with it, on the first `times` tries; None for nothing.
        key: What tries of this turn in this conversation have in common, to count them by.
    """

    agent: str
    turn: int
    reply: ScriptedReply
    fault: FaultScript | None
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
        usage=_usage(script, chosen.usage),
        stop=chosen.stop,
        model=chosen.model,
        first_delay_s=turn.delay_s,
        piece_delay_s=turn.piece_delay_s,
        piece_characters=turn.piece_characters,
    )
    key = f"{agent.name}/{number}/{call.digest}"
    return Selection(agent=agent.name, turn=number, reply=reply, fault=turn.fault, key=key)


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


def _usage(script: Script, own: UsageScript | Literal["none"] | None) -> TokenUsage | None:
    if own == "none":
        return None
    chosen = own or script.usage
    return None if chosen is None else chosen.usage()


def expected_usage(script: Script, *, times: Mapping[str, int] | None = None) -> TokenUsage:
    """What all turns say they cost, together: what a client that plays each of them once must be seen to use.

    Args:
        script: The script.
        times: How often each agent is played through, by name; 1 where it is left out.

    Raises:
        ValueError: A turn has cases that do not say the same as the turn itself, so there is no one sum.
    """
    usages: list[TokenUsage | None] = [NOTHING_USED]
    for agent in script.agents:
        for number, turn in enumerate(agent.turns):
            choices = {_usage(script, turn.usage), *(_usage(script, case.usage) for case in turn.cases)}
            if len(choices) > 1:
                message = f"turn {number} of {agent.name!r} costs one thing or another, as its cases go"
                raise ValueError(message)
            usages.extend([*choices] * (times or {}).get(agent.name, 1))
    return sum_usage(usages)
