"""HTTP/1.1 message framing: where a message begins, how long it is, where it ends.

Owns the grammar and nothing else: no socket is opened, nothing is forwarded, no meaning is given to a status.
Everything that two readers could understand differently (a bare LF, folded lines, two lengths) is refused rather than
guessed: a counter that frames a message otherwise than the server does counts fiction.

Source: RFC 9112 (message syntax), sections 2.2, 5.2, 6.1 to 6.3 and 7.1.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Protocol

__all__ = [
    "MAX_HEAD_BYTES",
    "PIECE_BYTES",
    "BadMessageError",
    "BodyKind",
    "ByteSource",
    "EndedEarlyError",
    "Fields",
    "Framing",
    "Payload",
    "Piece",
    "ReplyHead",
    "RequestHead",
    "is_field_line",
    "parse_chunk_size",
    "parse_reply_head",
    "parse_request_head",
    "read_body",
    "read_head",
    "render_answer",
    "render_status_line",
    "with_connection_close",
]

MAX_HEAD_BYTES = 64 * 1024
PIECE_BYTES = 256 * 1024
_MAX_CHUNK_LINE_BYTES = 256
_MAX_LENGTH_DIGITS = 18

_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# Python's `$` also matches before a final newline and `\d` any script's digit: hence `\Z` and [0-9] throughout.
# A head is read as Latin-1, a character for each byte.
_REQUEST_LINE = re.compile(rf"({_NAME}) ([\x21-\x7e]+) HTTP/1\.([01])\Z")
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\Z")
_FIELD = re.compile(rf"({_NAME}):[ \t]*([\t\x20-\x7e\x80-\xff]*)\Z")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n\Z")

_PHRASES = {code.value: code.phrase for code in HTTPStatus}

Fields = tuple[tuple[str, str], ...]


class BadMessageError(Exception):
    """The message breaks the grammar, or two readers could frame it differently."""


class EndedEarlyError(Exception):
    """The peer closed or reset the connection inside a message."""


class ByteSource(Protocol):
    """What messages are read from: two calls of `asyncio.StreamReader`, and one that spares a call for each line."""

    async def read(self, n: int, /) -> bytes:
        """Read at least one byte and at most `n`; b"" at the end."""
        ...

    async def readuntil(self, separator: bytes, /) -> bytes:
        """Read up to and with the separator."""
        ...

    async def take_until(self, end: bytes, /) -> bytes:
        """Wait for input; take it up to and with `end` if all of that is here in one piece, else nothing: b""."""
        ...


class BodyKind(Enum):
    """How the end of a body is found."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until-close"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """The extent of a body.

    Attributes:
        kind: How its end is found.
        n_bytes: The declared length; None unless `kind` is LENGTH.
    """

    kind: BodyKind
    n_bytes: int | None = None


_NO_BODY = Framing(kind=BodyKind.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """A request's head.

    Attributes:
        method: The method, as sent.
        target: The request target, as sent (undecoded).
        minor_version: 1 for HTTP/1.1, 0 for HTTP/1.0, whose clients know no chunks.
        fields: Header fields in order, names in lower case.
        framing: The extent of the body.
        keep_alive: The client wants the connection to outlive this exchange.
        expects_continue: The client waits for `100 Continue` before it sends the body.
    """

    method: str
    target: str
    minor_version: int
    fields: Fields
    framing: Framing
    keep_alive: bool
    expects_continue: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHead:
    """A reply's head.

    Attributes:
        status: The status code.
        fields: Header fields in order, names in lower case.
        framing: The extent of the body.
        keep_alive: The server lets the connection outlive this exchange.
    """

    status: int
    fields: Fields
    framing: Framing
    keep_alive: bool

    @property
    def interim(self) -> bool:
        """Another reply head follows (100 Continue and its kin)."""
        return 100 <= self.status < 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a body, as it stood on the wire.

    Attributes:
        wire: The bytes, chunk framing included.
        n_prefix_bytes: Framing bytes before the payload.
        n_payload_bytes: Payload bytes after the prefix; framing may follow them.
    """

    wire: bytes
    n_prefix_bytes: int
    n_payload_bytes: int

    @property
    def payload(self) -> bytes:
        """The payload alone."""
        return self.wire[self.n_prefix_bytes :][: self.n_payload_bytes]

    def with_payload(self, payload: bytes) -> "Piece":
        """Return the piece with other payload of the same length."""
        rest = self.wire[self.n_prefix_bytes + self.n_payload_bytes :]
        wire = self.wire[: self.n_prefix_bytes] + payload + rest
        return Piece(wire=wire, n_prefix_bytes=self.n_prefix_bytes, n_payload_bytes=self.n_payload_bytes)

    def cut(self, n_payload_bytes: int) -> bytes:
        """Return the wire bytes up to and with the first so many payload bytes."""
        return self.wire[: self.n_prefix_bytes + n_payload_bytes]


def _split_head(raw: bytes) -> tuple[str, Fields]:
    """Split a whole head into its first line and its fields.

    Raises:
        BadMessageError: A line breaks the grammar.
    """
    if not raw.endswith(b"\r\n\r\n"):
        msg = "the head does not end with an empty line"
        raise BadMessageError(msg)
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    fields: list[tuple[str, str]] = []
    for line in lines:
        match = _FIELD.match(line)
        if match is None:
            msg = f"folded or malformed header line {line[:80]!r}"
            raise BadMessageError(msg)
        name, value = match.groups()
        fields.append((name.lower(), value.rstrip(" \t")))
    return first, tuple(fields)


def _by_name(fields: Fields) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in fields:
        found.setdefault(name, []).append(value)
    return found


def _decide_keep_alive(named: Mapping[str, list[str]], minor: str) -> bool:
    if "connection" not in named:
        return minor == "1"
    tokens = {token.strip().lower() for value in named["connection"] for token in value.split(",")}
    return "close" not in tokens if minor == "1" else "keep-alive" in tokens


def _declared_framing(named: Mapping[str, list[str]], minor: str) -> Framing | None:
    """Return the framing that the fields declare, or None when they declare none.

    Raises:
        BadMessageError: Both ways are declared, or one is declared twice or unreadably.
    """
    lengths = named.get("content-length", ())
    codings = named.get("transfer-encoding", ())
    if lengths and codings:
        msg = "both Content-Length and Transfer-Encoding"
        raise BadMessageError(msg)
    if len(lengths) > 1 or len(codings) > 1:
        msg = "more than one Content-Length or Transfer-Encoding"
        raise BadMessageError(msg)
    if codings:
        if codings[0].lower() != "chunked" or minor == "0":
            msg = f"Transfer-Encoding {codings[0][:80]!r} in HTTP/1.{minor}"
            raise BadMessageError(msg)
        return Framing(kind=BodyKind.CHUNKED)
    if lengths:
        # Of what Python takes for a digit, only [0-9] is one here.
        if not (lengths[0].isascii() and lengths[0].isdigit() and len(lengths[0]) <= _MAX_LENGTH_DIGITS):
            msg = f"Content-Length {lengths[0][:80]!r}"
            raise BadMessageError(msg)
        return Framing(kind=BodyKind.LENGTH, n_bytes=int(lengths[0]))
    return None


def parse_request_head(raw: bytes) -> RequestHead:
    """Parse a request's head, its final empty line included.

    Raises:
        BadMessageError: The head breaks the grammar or could be framed in two ways.
    """
    first, fields = _split_head(raw)
    match = _REQUEST_LINE.match(first)
    if match is None:
        msg = f"malformed request line {first[:80]!r}"
        raise BadMessageError(msg)
    method, target, minor = match.groups()
    named = _by_name(fields)
    n_hosts = len(named.get("host", ()))
    if n_hosts > 1 or (n_hosts == 0 and minor == "1"):
        msg = f"{n_hosts} Host headers"
        raise BadMessageError(msg)
    if method == "CONNECT":
        msg = "CONNECT is not forwarded"
        raise BadMessageError(msg)
    return RequestHead(
        method=method,
        target=target,
        minor_version=int(minor),
        fields=fields,
        framing=_declared_framing(named, minor) or _NO_BODY,
        keep_alive=_decide_keep_alive(named, minor),
        expects_continue="100-continue" in [value.lower() for value in named.get("expect", ())],
    )


def parse_reply_head(raw: bytes, *, method: str) -> ReplyHead:
    """Parse the head of a reply to a request made with `method`, its final empty line included.

    Raises:
        BadMessageError: The head breaks the grammar, could be framed in two ways, or leaves HTTP (101).
    """
    first, fields = _split_head(raw)
    match = _STATUS_LINE.match(first)
    if match is None:
        msg = f"malformed status line {first[:80]!r}"
        raise BadMessageError(msg)
    minor, code = match.groups()
    status = int(code)
    if status == 101:
        msg = "the server switched protocols (101)"
        raise BadMessageError(msg)
    named = _by_name(fields)
    declared = _declared_framing(named, minor)
    if method == "HEAD" or 100 <= status < 200 or status in {204, 304}:
        framing = _NO_BODY
    else:
        framing = declared or Framing(kind=BodyKind.UNTIL_CLOSE)
    keep_alive = _decide_keep_alive(named, minor) and framing.kind is not BodyKind.UNTIL_CLOSE
    return ReplyHead(status=status, fields=fields, framing=framing, keep_alive=keep_alive)


def parse_chunk_size(line: bytes) -> int:
    """Parse a chunk's size line, its CRLF included.

    Raises:
        BadMessageError: It is not hexadecimal digits, an optional extension and CRLF.
    """
    match = _CHUNK_LINE.match(line)
    if match is None:
        msg = f"malformed chunk size line {line[:80]!r}"
        raise BadMessageError(msg)
    return int(match.group(1), 16)


def is_field_line(line: bytes) -> bool:
    """Whether a line without its line end is a header or trailer field."""
    return _FIELD.match(line.decode("latin-1")) is not None


def render_status_line(status: int) -> str:
    """Return a status line without its line end."""
    return f"HTTP/1.1 {status} {_PHRASES.get(status, '')}"


def render_answer(status: int, *, retry_after_s: int | None = None, connection_close: bool) -> bytes:
    """Return a whole reply of our own, without a body."""
    lines = [render_status_line(status), "Content-Length: 0"]
    if retry_after_s is not None:
        lines.append(f"Retry-After: {retry_after_s}")
    if connection_close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def with_connection_close(raw: bytes) -> bytes:
    """Return a head that says `Connection: close` and nothing else about the connection."""
    lines = raw[:-4].split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith((b"connection:", b"keep-alive:"))]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""])


async def _read_line(source: ByteSource) -> bytes:
    """Read one line with its CRLF; b"" when the peer closed before its first byte.

    Raises:
        BadMessageError: It ends with a bare LF or is longer than the reader's own limit.
        EndedEarlyError: The peer closed inside the line or reset the connection.
    """
    try:
        line = await source.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return b""
        msg = "the connection ended inside a line"
        raise EndedEarlyError(msg) from error
    except asyncio.LimitOverrunError as error:
        msg = "a line is longer than the head may be"
        raise BadMessageError(msg) from error
    except ConnectionError as error:
        raise EndedEarlyError(str(error)) from error
    if not line.endswith(b"\r\n"):
        msg = f"a line ends with a bare LF: {line[:80]!r}"
        raise BadMessageError(msg)
    return line


async def _take_head(source: ByteSource) -> bytes:
    """Take a head that is here as a whole, as nearly all are; b"" when it is to be read line by line.

    Raises:
        BadMessageError: As `read_head`.
        EndedEarlyError: The peer reset the connection.
    """
    try:
        raw = await source.take_until(b"\r\n\r\n")
    except ConnectionError as error:
        raise EndedEarlyError(str(error)) from error
    if len(raw) > MAX_HEAD_BYTES:
        msg = f"the head is larger than {MAX_HEAD_BYTES} bytes"
        raise BadMessageError(msg)
    if raw.startswith(b"\r\n"):
        msg = "an empty line before the head"
        raise BadMessageError(msg)
    if raw.count(b"\n") != raw.count(b"\r\n"):
        line = next(line for line in raw.split(b"\n") if not line.endswith(b"\r"))
        msg = f"a line ends with a bare LF: {line[:80]!r}"
        raise BadMessageError(msg)
    return raw


async def read_head(source: ByteSource) -> bytes | None:
    """Read a head with its final empty line; None when the peer closed cleanly between messages.

    Raises:
        BadMessageError: The head is larger than `MAX_HEAD_BYTES`, begins with an empty line, or has a bare LF.
        EndedEarlyError: The peer closed inside the head.
    """
    if raw := await _take_head(source):
        return raw
    lines: list[bytes] = []
    n_bytes = 0
    while True:
        line = await _read_line(source)
        if not line:
            if not lines:
                return None
            msg = "the connection ended inside a head"
            raise EndedEarlyError(msg)
        lines.append(line)
        n_bytes += len(line)
        if n_bytes > MAX_HEAD_BYTES:
            msg = f"the head is larger than {MAX_HEAD_BYTES} bytes"
            raise BadMessageError(msg)
        if line == b"\r\n":
            if len(lines) == 1:
                msg = "an empty line before the head"
                raise BadMessageError(msg)
            return b"".join(lines)


async def _read_some(source: ByteSource, n_bytes: int) -> bytes:
    """Read at least one byte and at most so many; b"" at the end."""
    try:
        return await source.read(n_bytes)
    except ConnectionError as error:
        raise EndedEarlyError(str(error)) from error


async def _read_part(source: ByteSource, n_left: int) -> bytes:
    """Read a part of the next so many bytes."""
    data = await _read_some(source, min(n_left, PIECE_BYTES))
    if not data:
        msg = f"the connection ended {n_left} bytes before the body's end"
        raise EndedEarlyError(msg)
    return data


async def _read_trailer(source: ByteSource) -> bytes:
    """Read what follows the last chunk, up to and with the empty line."""
    trailer = b""
    while not trailer.endswith(b"\r\n\r\n") and trailer != b"\r\n":
        line = await _read_line(source)
        if not line:
            msg = "the connection ended inside a trailer"
            raise EndedEarlyError(msg)
        trailer += line
        if len(trailer) > MAX_HEAD_BYTES or (line != b"\r\n" and not is_field_line(line[:-2])):
            msg = f"malformed or oversized trailer {line[:80]!r}"
            raise BadMessageError(msg)
    return trailer


async def _read_chunk_end(source: ByteSource) -> bytes:
    """Read the line end after a chunk's data."""
    end = await _read_line(source)
    if not end:
        msg = "the connection ended before a chunk's line end"
        raise EndedEarlyError(msg)
    if end != b"\r\n":
        msg = f"no line end after a chunk's data: {end[:80]!r}"
        raise BadMessageError(msg)
    return end


async def _read_chunks(source: ByteSource) -> AsyncIterator[Piece]:
    while True:
        line = await _read_line(source)
        if not line:
            msg = "the connection ended between chunks"
            raise EndedEarlyError(msg)
        if len(line) > _MAX_CHUNK_LINE_BYTES:
            msg = "the chunk size line is too long"
            raise BadMessageError(msg)
        left = parse_chunk_size(line)
        if left == 0:
            trailer = await _read_trailer(source)
            yield Piece(wire=line + trailer, n_prefix_bytes=len(line), n_payload_bytes=0)
            return
        prefix = line
        while left:
            data = await _read_part(source, left)
            left -= len(data)
            end = b"" if left else await _read_chunk_end(source)
            yield Piece(wire=prefix + data + end, n_prefix_bytes=len(prefix), n_payload_bytes=len(data))
            prefix = b""


async def read_body(source: ByteSource, framing: Framing) -> AsyncIterator[Piece]:
    """Yield a body piece by piece, each with its framing, never holding more than one piece.

    Raises:
        BadMessageError: The chunk framing is broken.
        EndedEarlyError: The peer closed before the body's end.
    """
    if framing.kind is BodyKind.CHUNKED:
        async for piece in _read_chunks(source):
            yield piece
    else:
        async for data in Payload(source, framing):
            yield Piece(wire=data, n_prefix_bytes=0, n_payload_bytes=len(data))


class Payload:
    """A body without its framing, which is read piece by piece and never held in more than one.

    No asynchronous generator: that hands each piece on in an exception, and keeps itself in the loop's books.

    Attributes:
        ended: There is none, or it was read to its end.
    """

    def __init__(self, source: ByteSource, framing: Framing) -> None:
        self._source = source
        self._left = framing.n_bytes or 0
        self._chunks = _read_chunks(source) if framing.kind is BodyKind.CHUNKED else None
        self._is_until_close = framing.kind is BodyKind.UNTIL_CLOSE
        self.ended = not (self._left or self._chunks or self._is_until_close)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if data := await self.read():
            return data
        raise StopAsyncIteration

    async def read(self) -> bytes:
        """Read the next piece; b"" when there is none.

        Raises:
            BadMessageError: The chunk framing is broken.
            EndedEarlyError: The peer closed before the body's end.
        """
        if self.ended:
            return b""
        if self._chunks is not None:
            data = (await anext(self._chunks)).payload
            self.ended = not data
        elif self._is_until_close:
            data = await _read_some(self._source, PIECE_BYTES)
            self.ended = not data
        else:
            data = await _read_part(self._source, self._left)
            self._left -= len(data)
            self.ended = not self._left
        return data
