"""A live run as it went over the wire, redacted, to be played back without a provider.

One JSON line a reply, under a key that the same agent's next run gives the same request: dialect, whether it streams,
main loop or subagent, and how many turns the conversation has. (The text itself holds dates, paths and session ids,
which no second run repeats.) Replies under one key are played in the order in which they came, the last one again and
again; so a recorded failure is followed by what its retry got. The reply's times are not kept.
"""

from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fairtrial.errors import UsageError
from fairtrial.gateway.dialect import Call, Dialect
from fairtrial.gateway.ledger import WireRow
from fairtrial.gateway.source import Answer, Outgoing
from fairtrial.store.redact import Redactor
from fairtrial.store.strict_json import encode_object
from fairtrial.wire.faults import Fault
from fairtrial.wire.upstream import UpstreamBrokenError

__all__ = ["Recorded", "Recorder", "Replay", "read_recording"]

_SCHEMA: Final = "recording/1"
_PIECE_BYTES: Final = 16 * 1024
_MAX_BYTES: Final = 16 << 20
"""Of one reply; a longer one is recorded as broken off there, and plays back so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One reply.

    Attributes:
        dialect: Its dialect.
        ask: What was asked for.
        stream: A stream was asked for.
        subagent: The request was a subagent's, as the client claims.
        n_turns: Turns of the conversation.
        status: Its status.
        content_type: Its content type.
        retry_after: Its Retry-After header; "" for none.
        body: Its body, redacted.
        ended: It came to its end.
        schema: `recording/1`.
    """

    dialect: str
    ask: str
    stream: bool
    subagent: bool
    n_turns: int
    status: int
    content_type: str
    retry_after: str
    body: str
    ended: bool
    schema: str = _SCHEMA

    @property
    def key(self) -> tuple[object, ...]:
        """What the request is known by."""
        return self.dialect, self.ask, self.stream, self.subagent, self.n_turns


_LINES: Final = TypeAdapter(Recorded)


class Recorder:
    """Takes one reply down."""

    def __init__(self, path: Path, redactor: Redactor, row: WireRow, answer: Answer) -> None:
        self._path = path
        self._redactor = redactor
        self._row = row
        self._answer = answer
        self._parts: list[bytes] = []
        self._n_bytes = 0

    def add(self, content: bytes) -> None:
        """Take the next part down."""
        if self._n_bytes < _MAX_BYTES:
            self._parts.append(content)
        self._n_bytes += len(content)

    def close(self, *, ended: bool) -> None:
        """Append the reply to the recording.

        Raises:
            OSError: The recording cannot be written.
        """
        row = self._row
        recorded = Recorded(
            dialect=row.dialect or "",
            ask=row.ask or "",
            stream=bool(row.stream),
            subagent=row.agent_claim is not None,
            n_turns=row.n_turns,
            status=self._answer.status,
            content_type=self._answer.header("content-type"),
            retry_after=self._answer.header("retry-after"),
            # Redacted as a whole: a key may come in two pieces.
            body=self._redactor.redact(b"".join(self._parts)).decode("utf-8", "replace"),
            ended=ended and self._n_bytes <= _MAX_BYTES,
        )
        with self._path.open("ab", buffering=0) as file:
            file.write(encode_object(asdict(recorded)) + b"\n")


def read_recording(path: Path) -> tuple[Recorded, ...]:
    """Read a recording.

    Raises:
        UsageError: It is not there, or no recording.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"recording {path}: {error.strerror}; name the file that `record` made") from error
    found: list[Recorded] = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_LINES.validate_json(line, strict=True, extra="forbid"))
        except ValidationError as error:
            raise UsageError(f"{path}:{number}: no line of a recording: {error.errors()[0]['msg']}") from error
    return tuple(found)


class Replay:
    """Plays a recording back."""

    def __init__(self, recorded: Sequence[Recorded]) -> None:
        self._left: dict[tuple[object, ...], deque[Recorded]] = defaultdict(deque)
        for each in recorded:
            self._left[each.key].append(each)

    @property
    def name(self) -> str:
        """What its pace is kept under."""
        return "replay"

    @property
    def reads_conversation(self) -> bool:
        """Its key counts the turns."""
        return True

    def plan_fault(self, call: Call, dialect: Dialect) -> Fault | None:  # noqa: ARG002 - the Protocol's
        """Nothing: what failed when it was recorded fails again."""
        return None

    @asynccontextmanager
    async def ask(self, outgoing: Outgoing) -> AsyncGenerator[Answer]:
        """Give the next reply under the request's key; see `Source.ask`.

        Raises:
            UpstreamBrokenError: There is none, or it broke off when it was recorded.
        """
        call = outgoing.call
        subagent = call.agent_claim is not None
        queue = self._left.get((outgoing.dialect.name, call.route.ask.value, call.stream, subagent, len(call.turns)))
        if not queue:
            raise UpstreamBrokenError(f"the recording has no reply to a request of {len(call.turns)} turns")
        recorded = queue.popleft() if len(queue) > 1 else queue[0]
        fields = [("content-type", recorded.content_type)]
        if recorded.retry_after:
            fields.append(("retry-after", recorded.retry_after))
        body = recorded.body.encode()
        n_bytes = len(body) if recorded.ended and not recorded.stream else None
        yield Answer(status=recorded.status, fields=tuple(fields), n_bytes=n_bytes, pieces=_pieces(recorded, body))


async def _pieces(recorded: Recorded, body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), _PIECE_BYTES):
        yield body[start : start + _PIECE_BYTES]
    if not recorded.ended:
        raise UpstreamBrokenError("the recorded reply broke off here")
