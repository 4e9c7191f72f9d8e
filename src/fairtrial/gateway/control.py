"""What is said on the control socket: one JSON object a line, each answered by one line.

A trial lives on the connection that opened it: `TrialOpening` in, `TrialOpened` out, and while the session runs the
connection stays open. `TrialClosing` in, `TrialClosed` out ends it; so does the end of the connection, which is how
the trial of a dead worker ends. The other way round, the end of the connection before `TrialClosed` means that the
gateway has died: the trial is void (session-error), not a failure. A wrong request is answered by `{"error": …}`.

Owns the messages and their JSON form. Knows no socket; `client` has the blocking end, `server` the other.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from typing import Final, cast

from pydantic import TypeAdapter, ValidationError

from fairtrial.errors import UsageError
from fairtrial.gateway.policy import BudgetKind, Limits, UnnamedModel
from fairtrial.model.usage import TokenUsage
from fairtrial.wire.faults import Fault

__all__ = [
    "MAX_LINE_BYTES",
    "DirectoryReleased",
    "DirectoryReleasing",
    "Message",
    "ProviderState",
    "ProviderStatus",
    "Spend",
    "Status",
    "StatusAsked",
    "Totals",
    "TrialClosed",
    "TrialClosing",
    "TrialOpened",
    "TrialOpening",
    "parse_message",
    "render_error",
    "render_message",
]

MAX_LINE_BYTES: Final = 1 << 20


class ProviderState(StrEnum):
    """What the gateway thinks of an upstream."""

    UP = "up"
    LIMITED = "limited"
    DOWN = "down"
    RETURNING = "returning"  # reached again, but no request has been answered yet


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOpening:
    """Open one trial. Either `upstream` or `script` says who answers.

    Attributes:
        trial: What the trial is called in the wire log; never seen inside the sandbox.
        ledger: Absolute path of the wire log, which must not exist yet.
        models: Models that may be asked for.
        dialects: Dialects that may be spoken, by name; see `dialect.Dialect`.
        upstream: Name of an upstream of the gateway's settings.
        script: Absolute path of a scripted model's YAML file.
        record: Absolute path of the script to be made of what the models answer, redacted; None for none.
        unnamed_model: What becomes of a request for another model.
        limits: What the trial may spend, checked before each request goes out; waiting for the provider is no spending.
        grants: Hosted tools and the like that the arm allows by name; see `egress`.
        include_usage: Add `stream_options.include_usage` to a Chat Completions request that lacks it: the one change to
            a body that is ever made, and recorded.
        markers: Texts to be looked for in each request, such as the marker line of a file that the agent should read.
        faults: Faults by rule, for tests of an agent.
        owner_uid: User who may use the trial's socket; None = the gateway's own.
    """

    trial: str
    ledger: str
    models: tuple[str, ...]
    dialects: tuple[str, ...]
    upstream: str | None = None
    script: str | None = None
    record: str | None = None
    unnamed_model: UnnamedModel = UnnamedModel.REFUSE
    limits: Limits = field(default_factory=Limits)
    grants: tuple[str, ...] = ()
    include_usage: bool = False
    markers: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    owner_uid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOpened:
    """The trial is open.

    Attributes:
        directory: A directory that holds nothing but the socket: bind it into the sandbox, read-only.
        socket: Absolute path of the socket inside it.
        token: What the session must send as its API key; worth nothing anywhere else.
    """

    directory: str
    socket: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialClosing:
    """Close the connection's trial: requests in flight are broken off and recorded as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """A sum over replies; see `model.usage` for what None means.

    Attributes:
        usage: Tokens.
        cost_usd: List price in US dollars; None when a reply's usage or its model's price is unknown.
        cost_without_cache_usd: The same had every input token been uncached.
    """

    usage: TokenUsage
    cost_usd: float | None
    cost_without_cache_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a trial's requests come to: a fold over its wire log.

    Attributes:
        requests: Requests passed on to the model, failed ones included.
        failed_requests: Those that ended in an error status, a broken connection or an error event.
        retries: Requests that repeat the body of an earlier failed one.
        refused: Requests that the gateway answered itself, by reason.
        spend: Of all replies that were whole.
        broken_spend: Of broken replies, as far as they were seen: a lower bound. It is not in `spend`.
        by_model: `spend` by the model that served.
        by_ending: How the requests that were passed on ended, by `ledger.Ending`.
        limited_requests: Replies 429 and 529.
        backed_off_ms: Milliseconds that the client let conversations rest after a try that the provider failed, summed.
        by_agent: `spend` by main loop ("main") or subagent ("subagent"), as the client claims; None where no client of
            the dialect tells them apart.
        unmeasured_requests: Passed on, answered with success, and without usage.
        request_bytes: Body bytes of requests passed on.
        reply_bytes: Body bytes of replies.
        provider_ms: Milliseconds that requests spent at the provider, summed.
        other_models: Models that were asked for or served beside those named.
    """

    requests: int
    failed_requests: int
    retries: int
    refused: Mapping[str, int]
    spend: Spend
    broken_spend: Spend
    by_model: Mapping[str, Spend]
    by_agent: Mapping[str, Spend] | None
    by_ending: Mapping[str, int]
    limited_requests: int
    backed_off_ms: float
    unmeasured_requests: int
    request_bytes: int
    reply_bytes: int
    provider_ms: float
    other_models: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialClosed:
    """The trial is closed; its socket is gone and its wire log complete.

    Attributes:
        totals: What its requests come to.
        ledger: Path of the wire log.
        ledger_sha256: Digest of the wire log's bytes.
        egress_refused: Each thing that a body asked for and was refused, in order ("web_search", "url", …).
        waited_ms: Milliseconds in which a request was held back for the provider's sake, overlaps counted once.
        budget_exhausted: The budget that refused a request, or None.
        provider_fault: How the last request of the main loop ended, when that was the provider's doing, else None.
        markers_seen: Which of the markers stood in a request.
        faults_as_planned: Every planned fault fired as planned; true of an empty plan.
        internal_error: A failure of the gateway itself in this trial, which makes it void; None without.
    """

    totals: Totals
    ledger: str
    ledger_sha256: str
    egress_refused: tuple[str, ...]
    waited_ms: float
    budget_exhausted: BudgetKind | None
    provider_fault: str | None
    markers_seen: tuple[str, ...]
    faults_as_planned: bool
    internal_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReleasing:
    """Write no more for an attempt whose worker is gone: answered when its files are at rest, and they stay so.

    Attributes:
        directory: Absolute path of the directory of its wire logs.
    """

    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReleased:
    """Nothing is written there any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusAsked:
    """How is the gateway, and how are its upstreams? Has one that is down probed, when it is time to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderStatus:
    """One upstream.

    Attributes:
        upstream: Its name.
        state: DOWN asks the sweep to start no trial, RETURNING to let one at a time try.
        reason: What it last failed with; None while it is up.
        retry_in_s: Seconds until the gateway tries it again; 0 while it is up.
        n_limited: Replies 429 and 529 so far.
    """

    upstream: str
    state: ProviderState
    reason: str | None
    retry_in_s: float
    n_limited: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How the gateway is.

    Attributes:
        providers: Its upstreams.
        trials: Trials that are open.
        internal_errors: Failures of the gateway itself; trials measured while there is one are void.
    """

    providers: tuple[ProviderStatus, ...]
    trials: int
    internal_errors: tuple[str, ...]


Message = (
    TrialOpening
    | TrialOpened
    | TrialClosing
    | TrialClosed
    | DirectoryReleasing
    | DirectoryReleased
    | StatusAsked
    | Status
)

_KINDS: Final[Mapping[str, type[Message]]] = {
    "open": TrialOpening,
    "opened": TrialOpened,
    "close": TrialClosing,
    "closed": TrialClosed,
    "release": DirectoryReleasing,
    "released": DirectoryReleased,
    "status?": StatusAsked,
    "status": Status,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


@cache
def _adapter(name: str) -> TypeAdapter[Message]:
    return TypeAdapter(_KINDS[name])


def render_message(message: Message) -> bytes:
    """Return a message as one line with its newline."""
    return json.dumps({"kind": _NAMES[type(message)]} | asdict(message), separators=(",", ":")).encode() + b"\n"


def render_error(text: str) -> bytes:
    """Return the answer to a wrong request."""
    return json.dumps({"error": text}).encode() + b"\n"


def parse_message(line: bytes) -> Message:
    """Parse one line.

    Raises:
        UsageError: It is no message, or a key or value is wrong; or the other side answered by an error.
    """
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"gateway control: not JSON: {error}") from error
    data = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if "error" in data:
        raise UsageError(f"gateway: {data['error']}")
    name = str(data.pop("kind", None))
    if name not in _KINDS:
        raise UsageError(f"gateway control: no message: {line[:80]!r}; kind is one of {', '.join(_KINDS)}")
    try:
        return _adapter(name).validate_json(json.dumps(data), strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"gateway control: {where}: {first['msg']}, not {first['input']!r:.80}") from error
