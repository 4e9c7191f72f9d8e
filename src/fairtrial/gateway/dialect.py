"""What a model API is to the gateway: the values that pass, and the Protocol that each dialect fits.

A dialect is a class without state in a file of its own. It knows which paths are model calls, how a request and a
reply of its API read, and how a reply of the scripted model or an error of ours is written. It opens nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol, TypeAlias

from fairtrial.model.usage import TokenUsage

__all__ = [
    "Ask",
    "Call",
    "Dialect",
    "ErrorKind",
    "JsonObject",
    "Piece",
    "Refusal",
    "Rendered",
    "ReplyError",
    "ReplyMeter",
    "ReplyReading",
    "Role",
    "Route",
    "ScriptedReply",
    "Stop",
    "ToolCall",
    "ToolResult",
    "Turn",
]

JsonObject: TypeAlias = dict[str, object]


class Ask(StrEnum):
    """What a route asks for."""

    GENERATE = "generate"  # a model call: checked, metered, counted
    COUNT = "count"  # a count of tokens: checked like a model call, costs nothing
    MODELS = "models"  # the list of models: answered by the gateway with the names that the trial may use
    PROBE = "probe"  # is anybody there: answered by the gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A request line that a dialect knows.

    Attributes:
        ask: What is asked for.
        path: The path alone, in the form that goes upstream.
        query: The query that goes upstream, without `?`; "" for none. A key in it (Gemini) is gone.
        model: The model that the path names (Gemini); None where the body names it.
        stream: Whether the path asks for a stream; None where the body says.
    """

    ask: Ask
    path: str
    query: str = ""
    model: str | None = None
    stream: bool | None = None


class Role(StrEnum):
    """Who speaks in a conversation."""

    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call that the model made.

    Attributes:
        id: The call's id; None where the dialect gives none.
        name: The tool's name.
        input: Its arguments; None when they are no JSON object.
        namespace: The tool's namespace (Responses), or None; what a provider ran itself stands under `hosted`,
            `server_tool_use` or `mcp_tool_use`.
        is_custom: Its argument is free text (Responses, custom tools), which stands in `input` under `input`.
        is_partial: The reply broke off inside the arguments.
    """

    id: str | None
    name: str
    input: JsonObject | None
    namespace: str | None = None
    is_custom: bool = False
    is_partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool call that a request brings.

    Attributes:
        call_id: The call that it answers; None where the dialect gives no ids.
        name: The tool's name, where the request tells it (Gemini) or an earlier turn of it does; else None.
        text: All text of the result, parts joined by newlines.
        is_error: Whether the client marked it as an error; None where the dialect has no such mark.
    """

    call_id: str | None
    name: str | None
    text: str
    is_error: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Neighbouring messages of one role, taken together.

    Attributes:
        role: Who speaks.
        text: All text, parts joined by newlines.
        tool_calls: Calls (of the assistant).
        tool_results: Results (of the user).
    """

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as its dialect reads it.

    Attributes:
        route: What was asked for.
        requested_model: The model that the request names; None when it names none.
        stream: A stream is wanted.
        reports_usage: The reply is asked to say its usage (false only for streaming Chat Completions without
            `stream_options.include_usage`).
        session_claim: The session that the client says it belongs to; None when it does not say.
        agent_claim: The subagent or child session that the client says it is; None for the main loop, or when the
            client does not say.
        parent_claim: The parent session that the client names, or None.
        system: The system text.
        turns: The conversation.
        tools: Names of the tools offered, in order; a namespaced one as `namespace.name`.
        digest: Hex SHA-256 of model, system, conversation and tools. A retry has the digest of its first try,
            streaming or not; the next turn of a session has another.
        effort: How hard the model is told to think, in the request's own word; None when it does not say.
    """

    route: Route
    requested_model: str | None
    stream: bool
    reports_usage: bool
    session_claim: str | None
    agent_claim: str | None
    parent_claim: str | None
    system: str
    turns: tuple[Turn, ...]
    tools: tuple[str, ...]
    digest: str
    effort: str | None = None

    @property
    def new_results(self) -> tuple[ToolResult, ...]:
        """The tool results in the last turn: what this request brings that the one before it did not."""
        return self.turns[-1].tool_results if self.turns else ()

    @property
    def new_texts(self) -> tuple[str, ...]:
        """Their texts, and the text beside them: there, not in the result, Claude Code puts the body of a skill."""
        results = self.new_results
        return (*(each.text for each in results), self.turns[-1].text) if results else ()


class ErrorKind(StrEnum):
    """What an error means; each dialect has its own word for it."""

    BAD_REQUEST = "bad-request"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    TOO_LARGE = "too-large"
    RATE_LIMITED = "rate-limited"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    PROVIDER = "provider"  # the provider failed, or could not be reached
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyError:
    """An error that a reply carries, in its body or in its stream.

    Attributes:
        kind: The provider's own word for it (`overloaded_error`, `RESOURCE_EXHAUSTED`), or None.
        message: What it says, at most 500 characters.
    """

    kind: str | None
    message: str


class Stop(StrEnum):
    """Why the model stopped; each dialect has its own word for it."""

    END = "end"
    TOOL_CALLS = "tool-calls"
    MAX_TOKENS = "max-tokens"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyReading:
    """What one reply was seen to be.

    Attributes:
        usage: What it cost; None when it did not say. A lower bound when the reply did not end.
        served_model: The model that answered, as it says; None when it does not.
        reply_id: The provider's id of the reply, or None.
        stop_reason: The provider's own word for why it stopped, or None.
        text: What the model said, up to the limit of what a meter keeps.
        thinking: What it thought aloud, likewise.
        tool_calls: The calls that it made, in order.
        error: The error that it carries, or None.
        is_complete: It was seen to its proper end.
        is_too_large: Part of it was larger than a meter reads, so that its proper end may have gone unseen.
        problem: What in it did not read as this dialect, or None. What did read is in the other fields.
        n_events: Events of the stream; 0 for a reply in one piece.
        price_context: What the reply says of the terms it was served on, in the words of `price.price_request`
            (`service_tier`, `speed`).
    """

    usage: TokenUsage | None
    served_model: str | None = None
    reply_id: str | None = None
    stop_reason: str | None = None
    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    error: ReplyError | None = None
    is_complete: bool = False
    is_too_large: bool = False
    problem: str | None = None
    n_events: int = 0
    price_context: Mapping[str, str] = field(default_factory=dict[str, str])


class ReplyMeter(Protocol):
    """Reads one reply as it passes. It never raises on what a reply holds, and keeps a bounded part of it."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the decoded body (no transfer or content coding), split anywhere."""
        ...

    def finish(self, *, body_ended: bool) -> ReplyReading:
        """Say what was seen.

        Args:
            body_ended: The body came to its end; False when the connection broke or somebody left.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One reply of the scripted model.

    Attributes:
        id: What the reply's id and the ids of its calls are made of: letters, digits and `_`, the same on each replay.
        text: What it says; "" for nothing.
        thinking: What it thinks aloud; "" for nothing.
        tool_calls: The calls that it makes; their `id` is None, the dialect makes one (`scripted_call_id`).
        usage: What it says it cost; None to say nothing.
        stop: Why it stops; None follows from `tool_calls`.
        model: The model that it says it is; None for the one requested.
        first_delay_s: Seconds before the first byte.
        piece_delay_s: Seconds between pieces of a stream.
        piece_characters: Characters of text in one piece of a stream.
    """

    id: str
    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage | None = None
    stop: Stop | None = None
    model: str | None = None
    first_delay_s: float = 0.0
    piece_delay_s: float = 0.0
    piece_characters: int = 200

    @property
    def stop_or_default(self) -> Stop:
        """Why it stops."""
        if self.stop is not None:
            return self.stop
        return Stop.TOOL_CALLS if self.tool_calls else Stop.END


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Bytes of a reply's body, and how long to wait before they are sent.

    Attributes:
        data: The bytes; one whole event of a stream, or the whole body.
        delay_s: Seconds to wait before.
    """

    data: bytes
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A reply to be sent.

    Attributes:
        status: HTTP status.
        headers: Its headers, lower case, without framing (length, transfer coding) and date.
        pieces: The body. A body in one piece is not a stream and may be sent with its length.
    """

    status: int
    headers: Mapping[str, str]
    pieces: tuple[Piece, ...]

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(piece.data for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A part of a request that must not go out.

    Attributes:
        grant: The name that an arm would have to grant to let it pass.
        path: Where it stands in the body: `messages[3].content[0].source`.
        what: What it is, in a few words.
    """

    grant: str
    path: str
    what: str

    @property
    def message(self) -> str:
        """Where, what and remedy in one line."""
        return f"{self.path}: {self.what} could fetch from outside; leave it out, or grant {self.grant!r} to the arm"


class Dialect(Protocol):
    """One model API.

    Attributes:
        name: Its name in records: `anthropic-messages`, `openai-chat`, `openai-responses`, `gemini`.
        passed_headers: Names (lower case) of request headers that go upstream as the client sent them; a name that ends
            in `*` stands for all that begin so. No other header of the client goes there.
        models_path: Where its list of models is, by which a provider is probed.
    """

    name: ClassVar[str]
    models_path: ClassVar[str]
    passed_headers: ClassVar[frozenset[str]]

    def route(self, method: str, target: str) -> Route | None:
        """Read a request line; None when it is none of this dialect's. The target is a path with its query."""
        ...

    def read_token(self, target: str, headers: Mapping[str, str]) -> str | None:
        """The credential that the client presented (header names lower case), to be compared with the trial's token."""
        ...

    def auth_headers(self, key: str) -> Mapping[str, str]:
        """The headers that carry the provider's key upstream."""
        ...

    def read_request(self, route: Route, headers: Mapping[str, str], body: JsonObject) -> Call:
        """Read a request (header names lower case). What does not read as this dialect is left out, never guessed."""
        ...

    def check(self, route: Route, body: JsonObject) -> tuple[Refusal, ...]:
        """Every part of a body that could make the provider fetch something, whoever granted it."""
        ...

    def with_usage_reported(self, body: JsonObject) -> JsonObject | None:
        """The body changed so that its reply says its usage; None when it already does. The sole allowed change."""
        ...

    def meter(self, content_type: str) -> ReplyMeter:
        """A meter for a reply of this content type."""
        ...

    def render(self, reply: ScriptedReply, call: Call) -> Rendered:
        """Write a scripted reply, as a stream or in one piece as the call wants it."""
        ...

    def render_count(self, n_tokens: int) -> Rendered:
        """Answer a `COUNT`."""
        ...

    def render_models(self, models: tuple[str, ...]) -> Rendered:
        """Answer a `MODELS`."""
        ...

    def render_error(self, status: int, kind: ErrorKind, message: str) -> Rendered:
        """Write an error as this API writes its own."""
        ...

    def render_stream_error(self, kind: ErrorKind, message: str) -> bytes:
        """Write an error as an event in the middle of a stream."""
        ...
