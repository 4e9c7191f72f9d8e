"""The scripted model's file: what it answers, to which conversation, and on what condition. `play` plays it."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from fairtrial.config.read import read_yaml
from fairtrial.config.validate import validate
from fairtrial.errors import UsageError
from fairtrial.gateway.dialect import Call, ErrorKind, Role, Stop
from fairtrial.model.usage import TokenUsage
from fairtrial.wire.faults import Fault, FaultKind, parse_faults

__all__ = [
    "AgentMatch",
    "AgentScript",
    "Beyond",
    "CallScript",
    "CaseScript",
    "Claimed",
    "ErrorEventScript",
    "FaultScript",
    "Offered",
    "Script",
    "TurnScript",
    "UsageScript",
    "When",
    "read_script",
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
        self.usage()
        if (self.reasoning or 0) > self.output:
            raise ValueError("reasoning is part of output and cannot be more than it")
        if (self.cache_write_1h or 0) > self.cache_write:
            raise ValueError("cache_write_1h is part of cache_write and cannot be more than it")

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
        only: Dialects that it is made in; empty for all. Entries with different `only` name the tools of
            several clients.
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
class ErrorEventScript:
    """An error that ends a streamed reply in its middle. A reply in one piece is that error, by its status.

    Attributes:
        kind: What it means; each API has its own word for it.
        after_bytes: Bytes of the reply before it; the event in which they end still comes whole, unless it is the last.
        times: How many tries of the turn it hits; 0 for all of them.
    """

    kind: ErrorKind = ErrorKind.OVERLOADED
    after_bytes: int = 0
    times: int = 1

    def __post_init__(self) -> None:
        if self.after_bytes < 0:
            raise ValueError("after_bytes is 0 for an error at once, or a number of bytes")
        if self.times < 0:
            raise ValueError("times is 0 for every try, or a number of tries")


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A condition on the tool results that a request brings; every part that is given must hold.

    Attributes:
        contains: A text that one of the results, or the text beside them, contains.
        matches: A regular expression that is found in one of them.
        is_error: Whether the client marked one of the results as an error.
    """

    contains: str | None = None
    matches: str | None = None
    is_error: bool | None = None

    def __post_init__(self) -> None:
        _require_pattern(self.matches)

    def holds(self, call: Call) -> bool:
        """Whether it holds for a request."""
        texts = call.new_texts
        if self.contains is not None and not any(self.contains in text for text in texts):
            return False
        if self.matches is not None and not any(re.search(self.matches, text) for text in texts):
            return False
        return self.is_error is None or any(each.is_error is True for each in call.new_results) is self.is_error


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
    usage: UsageScript | None = None
    tells_usage: bool = True
    stop: Stop | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnScript:
    """One answer.

    Attributes:
        text: What it says.
        thinking: What it thinks aloud.
        calls: The tools that it calls.
        usage: What it says it cost; left out for the script's own default.
        tells_usage: False to say nothing of its cost.
        stop: Why it stops; left out, that follows from its calls.
        model: The model that it says it is; left out, the one requested.
        delay_s: Seconds before its first byte.
        piece_delay_s: Seconds between the pieces of a stream.
        piece_characters: Characters of text in one piece of a stream.
        fault: What goes wrong with it.
        error_event: The error that ends it in its middle.
        cases: What is answered instead; the first case whose condition holds.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[CallScript, ...] = ()
    usage: UsageScript | None = None
    tells_usage: bool = True
    stop: Stop | None = None
    model: str | None = None
    delay_s: float = 0.0
    piece_delay_s: float = 0.0
    piece_characters: int = 200
    fault: FaultScript | None = None
    error_event: ErrorEventScript | None = None
    cases: tuple[CaseScript, ...] = ()

    def __post_init__(self) -> None:
        if self.fault is not None and self.error_event is not None:
            raise ValueError("a turn has a fault or an error_event, and not both")
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
        provider: The provider that its faults are the trouble of: they slow all trials down whose scripts name the same
            one. Left out, a fault is a test of the agent and holds nobody back.
    """

    schema: Literal["script/1"]
    agents: tuple[AgentScript, ...]
    usage: UsageScript | None = None
    provider: str | None = None

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
