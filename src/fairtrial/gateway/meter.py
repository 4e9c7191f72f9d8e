"""The meter: reads a reply as it passes, in bounded memory, and never stops it.

What a dialect says where is known to its `Reader`; this file knows streams, pieces, limits and broken ends.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

from pydantic_core import from_json

from fairtrial.gateway.dialect import JsonObject, ReplyError, ReplyReading, ToolCall
from fairtrial.gateway.fields import as_object, parse_arguments
from fairtrial.gateway.sse import SseReader
from fairtrial.model.usage import TokenUsage

__all__ = ["MAX_BODY_BYTES", "MAX_KEPT_CHARACTERS", "Found", "OpenCall", "Reader", "meter_for"]

MAX_BODY_BYTES: Final = 64 << 20
"""A reply in one piece is read whole; one that is larger is passed on unread."""

MAX_KEPT_CHARACTERS: Final = 4 << 20
"""Text, thinking and arguments of calls that are kept of one reply, together."""

_MAX_MESSAGE: Final = 500


@dataclass(slots=True, kw_only=True)
class OpenCall:
    """A tool call in the making; its arguments arrive as text or, in one piece, as an object."""

    id: str | None
    name: str
    namespace: str | None = None
    is_custom: bool = False
    arguments: list[str] = field(default_factory=list[str])
    input: JsonObject | None = None
    closed: bool = False

    def freeze(self) -> ToolCall:
        """The call as far as it was seen."""
        given = self.input if self.input is not None else parse_arguments("".join(self.arguments))
        is_partial = not self.closed and self.input is None
        return ToolCall(
            id=self.id,
            name=self.name,
            input=None if is_partial else given,
            namespace=self.namespace,
            is_custom=self.is_custom,
            is_partial=is_partial,
        )


@dataclass(slots=True, kw_only=True)
class Found:
    """What a reader has found so far.

    Attributes:
        ended: The stream's own end was seen.
    """

    served_model: str | None = None
    reply_id: str | None = None
    stop_reason: str | None = None
    text: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    calls: dict[object, OpenCall] = field(default_factory=dict[object, OpenCall])
    error: ReplyError | None = None
    ended: bool = False
    problem: str | None = None
    n_kept: int = 0
    price_context: dict[str, str] = field(default_factory=dict[str, str])

    def complain(self, problem: str) -> None:
        """Keep the first thing that did not read as this dialect."""
        self.problem = self.problem or problem

    def keep(self, parts: list[str], text: str | None) -> None:
        """Append text to a list of parts, up to the limit of what is kept."""
        if not text:
            return
        self.n_kept += len(text)
        if self.n_kept > MAX_KEPT_CHARACTERS:
            self.complain(f"more than {MAX_KEPT_CHARACTERS} characters; the rest was not kept")
        else:
            parts.append(text)

    def take_terms(self, source: JsonObject) -> None:
        """Keep what an object says of the terms that set the price."""
        for name in ("service_tier", "speed"):
            if isinstance(value := source.get(name), str):
                self.price_context[name] = value

    def fail(self, kind: str | None, message: str | None) -> None:
        """Keep the first error that the reply carries."""
        self.error = self.error or ReplyError(kind=kind, message=(message or "")[:_MAX_MESSAGE])


class Reader(Protocol):
    """Reads one reply of one dialect.

    Attributes:
        found: What it found so far.
    """

    found: Found

    def take_event(self, value: JsonObject) -> None:
        """Read one event of a stream."""
        ...

    def take_done(self) -> None:
        """Read the `[DONE]` that ends a stream of OpenAI's."""
        ...

    def take_body(self, value: object) -> None:
        """Read a whole body; it is for this to set `found.ended`."""
        ...

    def usage(self) -> TokenUsage | None:
        """What was said of the cost so far; None when nothing was."""
        ...


def meter_for(reader: Reader, content_type: str) -> "_StreamMeter | _BodyMeter":
    """The meter for a reply of this content type."""
    is_stream = content_type.partition(";")[0].strip().lower() == "text/event-stream"
    return _StreamMeter(reader) if is_stream else _BodyMeter(reader)


class _StreamMeter:
    """Reads a stream of events."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._sse = SseReader()
        self._n_events = 0

    def feed(self, data: bytes) -> None:
        for event in self._sse.feed(data):
            self._take(event)

    def finish(self, *, body_ended: bool) -> ReplyReading:
        # Without its end, the last event may be half an event.
        for event in self._sse.finish() if body_ended else ():
            self._take(event)
        if self._sse.problem is not None:
            self._reader.found.complain(self._sse.problem)
        return _reading(self._reader, n_events=self._n_events, is_too_large=self._sse.skipped)

    def _take(self, data: bytes) -> None:
        self._n_events += 1
        try:
            value = as_object(from_json(data, cache_strings="keys"))
        except ValueError:
            value = None
        if value is not None:
            self._reader.take_event(value)
        elif data.strip() == b"[DONE]":
            self._reader.take_done()
        else:
            self._reader.found.complain("an event whose data is no JSON object")


class _BodyMeter:
    """Reads a reply in one piece."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._parts: list[bytes] = []
        self._n_bytes = 0

    def feed(self, data: bytes) -> None:
        self._n_bytes += len(data)
        if self._n_bytes > MAX_BODY_BYTES:
            self._parts.clear()
        else:
            self._parts.append(data)

    def finish(self, *, body_ended: bool) -> ReplyReading:
        found = self._reader.found
        if self._n_bytes > MAX_BODY_BYTES:
            found.complain(f"a body of more than {MAX_BODY_BYTES} bytes; it was not read")
        elif body_ended and self._n_bytes:
            try:
                self._reader.take_body(from_json(b"".join(self._parts)))
            except ValueError:
                found.complain("the body is not JSON")
        elif self._n_bytes:
            found.complain("the body broke off")
        return _reading(self._reader, n_events=0, is_too_large=self._n_bytes > MAX_BODY_BYTES)


def _reading(reader: Reader, *, n_events: int, is_too_large: bool) -> ReplyReading:
    found = reader.found
    usage = reader.usage()
    if usage is not None and not found.ended:
        usage = _as_lower_bound(usage)
    return ReplyReading(
        usage=usage,
        served_model=found.served_model,
        reply_id=found.reply_id,
        stop_reason=found.stop_reason,
        text="".join(found.text),
        thinking="".join(found.thinking),
        tool_calls=tuple(call.freeze() for call in found.calls.values()),
        error=found.error,
        is_complete=found.ended and found.error is None,
        is_too_large=is_too_large,
        problem=found.problem,
        n_events=n_events,
        price_context=found.price_context,
    )


def _as_lower_bound(usage: TokenUsage) -> TokenUsage:
    return TokenUsage(
        uncached_input=usage.uncached_input,
        cache_write=usage.cache_write,
        cache_read=usage.cache_read,
        output=usage.output,
        reasoning=usage.reasoning,
        cache_write_1h=usage.cache_write_1h,
        is_lower_bound=True,
    )
