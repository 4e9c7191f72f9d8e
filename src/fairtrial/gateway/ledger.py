"""The wire log: one line per request of a trial, written as it ends, and a line before each that may cost money.

A `begun` line without its `request` line means that the gateway died in between: what was spent then is unknown, and
what the log holds is a lower bound. Lines are redacted before they are written, and never changed afterwards.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fairtrial.errors import IntegrityError
from fairtrial.gateway.dialect import JsonObject
from fairtrial.gateway.policy import ServedModel
from fairtrial.model.usage import TokenUsage
from fairtrial.store.redact import Redactor
from fairtrial.store.strict_json import MalformedJsonError, encode_object, parse_object, render_parsed

__all__ = ["SCHEMA", "Ending", "Ledger", "SeenCall", "SeenResult", "WireRow", "read_ledger"]

SCHEMA: Final = "wire-row/1"


class Ending(StrEnum):
    """How a request ended."""

    ANSWERED = "answered"  # a whole reply with a status of success
    ERROR_STATUS = "error-status"  # the provider answered with an error
    ERROR_EVENT = "error-event"  # the reply began well and carried an error
    BROKEN = "broken"  # the provider could not be reached, or left in the middle
    CLIENT_GONE = "client-gone"  # the client left before the reply's end
    REFUSED = "refused"  # the gateway passed nothing on
    LOCAL = "local"  # the gateway answered by itself, as it should
    STOPPED = "stopped"  # the trial was closed meanwhile
    INTERNAL = "internal"  # a bug of the gateway: the trial is void


_BEFORE_IT_WENT_OUT: Final = frozenset({Ending.REFUSED, Ending.LOCAL, Ending.CLIENT_GONE, Ending.STOPPED})
"""How a request may end that never went out: its client may leave, or its trial be closed, while we hold it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCall:
    """A tool call in a reply.

    Attributes:
        id: Its id; None where the dialect gives none.
        name: The tool, `namespace.name` where it has a namespace.
        input: Its arguments as JSON text, at most 2,000 characters; None when they are no JSON object.
        is_partial: The reply broke off inside it.
    """

    id: str | None
    name: str
    input: str | None
    is_partial: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenResult:
    """A tool result that a request brought and the one before it did not.

    Attributes:
        call_id: The call that it answers; None where the dialect gives no ids.
        name: The tool; None when unknown.
        is_error: The client's mark; None where there is none.
        n_characters: Length of its text.
    """

    call_id: str | None
    name: str | None
    is_error: bool | None
    n_characters: int


@dataclass(slots=True, kw_only=True)
class WireRow:
    """One request. What the client says of itself is named a claim.

    Attributes:
        n: Number of the request in its trial, from 1.
        trial: What the trial is called.
        begun_utc: When its head had come.
        method: HTTP method.
        path: Path without query.
        dialect: The dialect that the path belongs to; None for none.
        ask: What it asks for, see `dialect.Ask`; None when that is not known.
        ending: How it ended.
        refusal: Why the gateway refused it ("http", "token", "path", "dialect", "body", "egress", "model", "budget"),
            else None.
        refused: What was refused: "grant path" of each thing for "egress", the budget's name for "budget"; else empty.
        requested_model: The model it names; None when it names none.
        served_model: The model that answered, as the reply says; None when it does not.
        served_as: How they compare, see `policy.ServedModel`.
        model_allowed: Whether the arm names the requested model; None when it is unknown.
        stream: A stream was asked for; None when unknown.
        status: The status of the provider, the script or the recording; None when there was none.
        client_status: The status that the client was sent; None when it was sent none.
        attempt: 1 plus the earlier requests with the same conversation that went out and were not answered in full.
        digest: SHA-256 of the conversation; None when it could not be read.
        session_claim: The client's session.
        agent_claim: The client's subagent or child session; None for the main loop, or when the client does not say.
        parent_claim: The parent session that it names.
        effort: How hard the model is told to think, in the request's own word; None when it does not say.
        request_bytes: Bytes of the body as it came.
        reply_bytes: Bytes of the body as the client was sent it.
        went_out: It was passed on to whoever answers: the log has its `begun` line.
        waited_ms: Held back for the provider's sake.
        backed_off_ms: How long the client let the conversation rest after a try that the provider failed.
        first_byte_ms: From sending to the reply's head; None without.
        provider_ms: From sending to the end.
        elapsed_ms: From the request's head to the end.
        usage: Tokens; None when the reply did not say, which is not zero.
        usage_problem: Why `usage` is None or a lower bound; else None.
        price_context: What the reply said of the terms that set its price (`service_tier`, `speed`).
        cost_usd: List price; None when unknown.
        cost_without_cache_usd: The same had all input been uncached.
        cost_problem: Why a cost is None; None when both are known.
        price_table: The table of prices, with version and date; None where nothing was to be priced.
        reply_id: The provider's id of the reply.
        stop_reason: The provider's word.
        tool_calls: Calls in the reply.
        tool_results: Results that the request brought.
        markers: Which of the trial's markers stand in the request.
        n_turns: Turns of the conversation that the request brings.
        n_tools: Tools offered.
        tools: Their names, in order; a namespaced one as `namespace.name`.
        usage_was_asked_for: The gateway added `stream_options.include_usage`.
        reused_connection: It went out on a connection that had served before; None when it did not go out.
        fault: The fault that hit it; None without.
        fault_fired: Its effect was complete.
        error_kind: The provider's own word for the error that the reply carries; None without.
        detail: What went wrong, in one line; None when nothing did.
        schema: `wire-row/1`.
        kind: "request".
    """

    n: int
    trial: str
    begun_utc: str
    method: str
    path: str
    dialect: str | None = None
    ask: str | None = None
    ending: Ending = Ending.STOPPED
    refusal: str | None = None
    refused: tuple[str, ...] = ()
    requested_model: str | None = None
    served_model: str | None = None
    served_as: ServedModel = ServedModel.UNKNOWN
    model_allowed: bool | None = None
    stream: bool | None = None
    status: int | None = None
    client_status: int | None = None
    attempt: int = 1
    digest: str | None = None
    session_claim: str | None = None
    agent_claim: str | None = None
    parent_claim: str | None = None
    effort: str | None = None
    request_bytes: int = 0
    reply_bytes: int = 0
    went_out: bool = False
    waited_ms: float = 0.0
    backed_off_ms: float = 0.0
    first_byte_ms: float | None = None
    provider_ms: float = 0.0
    elapsed_ms: float = 0.0
    usage: TokenUsage | None = None
    usage_problem: str | None = None
    price_context: Mapping[str, str] = field(default_factory=dict[str, str])
    cost_usd: float | None = None
    cost_without_cache_usd: float | None = None
    cost_problem: str | None = None
    price_table: str | None = None
    reply_id: str | None = None
    stop_reason: str | None = None
    tool_calls: tuple[SeenCall, ...] = ()
    tool_results: tuple[SeenResult, ...] = ()
    markers: tuple[str, ...] = ()
    n_turns: int = 0
    n_tools: int = 0
    tools: tuple[str, ...] = ()
    usage_was_asked_for: bool = False
    reused_connection: bool | None = None
    fault: str | None = None
    fault_fired: bool = False
    error_kind: str | None = None
    detail: str | None = None
    schema: str = SCHEMA
    kind: str = "request"

    @property
    def was_passed_on(self) -> bool:
        """It went out to whoever answers, so that it may have cost something; or was broken as if it had, by plan."""
        return self.went_out or self.ending not in _BEFORE_IT_WENT_OUT


@cache
def _adapter() -> TypeAdapter[WireRow]:
    return TypeAdapter(WireRow)


class Ledger:
    """The wire log of one trial, being written.

    Attributes:
        n_bytes: Its length.
    """

    def __init__(self, path: Path, redactor: Redactor) -> None:
        """Create the file.

        Raises:
            OSError: It exists already, or cannot be made.
        """
        self.path = path
        self.n_bytes = 0
        self._redactor = redactor
        self._hasher = hashlib.sha256()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def begin(self, row: WireRow) -> None:
        """Say that a request goes out; before it does.

        Raises:
            OSError: The disk is full: then the request must not go out.
        """
        begun: JsonObject = {"kind": "begun", "n": row.n, "trial": row.trial, "requested_model": row.requested_model}
        self._write(render_parsed(begun))

    def write(self, row: WireRow) -> None:
        """Append a request that has ended.

        Raises:
            OSError: The disk is full.
        """
        try:
            line = _adapter().dump_json(row)
        except ValueError:  # half a character, in the text of an error
            line = encode_object(asdict(row))
        self._write(line)

    def _write(self, text: bytes) -> None:
        # A replacement never breaks the line's JSON: no secret's shape holds a quote that is not escaped.
        line = self._redactor.redact(text) + b"\n"
        self._hasher.update(line)
        self.n_bytes += len(line)
        left = memoryview(line)
        while left:
            left = left[os.write(self._fd, left) :]

    def close(self) -> str:
        """Make the file durable and return the digest of its bytes."""
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1
        return self._hasher.hexdigest()


def read_ledger(path: Path) -> Iterator[WireRow]:
    """Yield the rows of a wire log; a request that was begun and never ended comes last, as BROKEN.

    A torn last line, as a killed gateway may leave it, is such a request or nothing.

    Raises:
        IntegrityError: A line is none of ours.
        OSError: The file cannot be read.
    """
    begun: dict[int, JsonObject] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                value = parse_object(line[:-1])
                if value.get("kind") == "begun":
                    begun[int(str(value["n"]))] = value
                    continue
                row = _adapter().validate_json(encode_object(value), strict=True, extra="forbid")
            except (MalformedJsonError, ValidationError, KeyError, ValueError) as error:
                raise IntegrityError(f"{path}:{number}: no line of a wire log: {error}") from error
            # Logs that were written before rows had the field tell it by their `begun` lines alone.
            row.went_out = begun.pop(row.n, None) is not None or row.went_out
            yield row
    for n, value in sorted(begun.items()):
        model = value.get("requested_model")
        yield WireRow(
            n=n,
            trial=str(value.get("trial")),
            begun_utc="",
            method="",
            path="",
            ending=Ending.BROKEN,
            went_out=True,
            requested_model=model if isinstance(model, str) else None,
            detail="the gateway died before the request ended",
            usage_problem="the gateway died before the request ended",
        )
