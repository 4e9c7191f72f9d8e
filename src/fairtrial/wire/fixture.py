"""A server that takes one kind of request to its end and then hangs up without a word; it stores nothing.

It proves what a client says when a complete request has been received and its outcome is unknown. Everything else is
answered: a question with 404, the making of a repository with 200.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["FixtureLedger", "FixtureRequest", "FixtureSettings", "SilentServer", "content_length"]

MOST_BODY_BYTES: Final = 64 * 1024 * 1024
READ_LIMIT_S: Final = 2.0
_HEAD_LIMIT_BYTES: Final = 64 * 1024
_CHUNK_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FixtureSettings:
    """What is taken and what is answered.

    Attributes:
        create: Target of the POST that makes a repository: 200 with its name.
        publish: Target of the POST whose body is read to its end and never answered.
    """

    create: str
    publish: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FixtureRequest:
    """One publishing request.

    Attributes:
        framing_valid: Exactly one decimal Content-Length from 0 to 64 MiB and no Transfer-Encoding.
        declared_bytes: What it declared; None when its framing is not valid.
        received_bytes: Bytes of the body that came.
        body_timed_out: The body had not ended after 2 s.
    """

    framing_valid: bool
    declared_bytes: int | None
    received_bytes: int
    body_timed_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FixtureLedger:
    """What it saw so far.

    Attributes:
        publications: Publishing requests, in the order in which their heads came.
        n_other: Requests that it answered.
        received_bytes: Whole heads and bodies that came.
        sent_bytes: Answers that it sent.
    """

    publications: tuple[FixtureRequest, ...]
    n_other: int
    received_bytes: int
    sent_bytes: int


@dataclass(slots=True)
class _Seen:
    framing_valid: bool = False
    declared_bytes: int | None = None
    received_bytes: int = 0
    body_timed_out: bool = False


@dataclass(slots=True)
class SilentServer:
    """Listens on 127.0.0.1.

    Attributes:
        settings: What is taken and what is answered.
        port: Where it listens; 0 before `start`.
    """

    settings: FixtureSettings
    port: int = 0
    _server: asyncio.Server | None = None
    _publications: list[_Seen] = field(default_factory=list[_Seen])
    _n_other: int = 0
    _received_bytes: int = 0
    _sent_bytes: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    @property
    def ledger(self) -> FixtureLedger:
        """What it saw so far."""
        return FixtureLedger(
            publications=tuple(
                FixtureRequest(
                    framing_valid=seen.framing_valid,
                    declared_bytes=seen.declared_bytes,
                    received_bytes=seen.received_bytes,
                    body_timed_out=seen.body_timed_out,
                )
                for seen in self._publications
            ),
            n_other=self._n_other,
            received_bytes=self._received_bytes + sum(seen.received_bytes for seen in self._publications),
            sent_bytes=self._sent_bytes,
        )

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: There is no free port or descriptor.
        """
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD_LIMIT_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End every connection at once."""
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._serve_next(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # the client left, or sent no HTTP: the ledger has what came
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _serve_next(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; false when the connection is over."""
        raw = await reader.readuntil(b"\r\n\r\n")
        self._received_bytes += len(raw)
        head = raw.decode("latin-1")
        lines = head.split("\r\n")
        method, _, rest = lines[0].partition(" ")
        target = rest.partition(" ")[0]
        length = content_length(lines[1:])
        if method == "POST" and target == self.settings.publish:
            await self._take(reader, length)
            return False
        self._n_other += 1
        body = await reader.readexactly(length) if length else b""
        self._received_bytes += len(body)
        if method == "POST" and target == self.settings.create:
            answer = _answer(200, json.dumps({"name": _name_in(body)}).encode())
        else:
            answer = _answer(404, b'{"error":"not found"}')
        self._sent_bytes += len(answer)
        writer.write(answer)
        await writer.drain()
        return length is not None or method != "POST"

    async def _take(self, reader: asyncio.StreamReader, length: int | None) -> None:
        """Read the declared body, for at most 2 s."""
        seen = _Seen(framing_valid=length is not None, declared_bytes=length)
        self._publications.append(seen)
        if length is None:
            return
        try:
            async with asyncio.timeout(READ_LIMIT_S):
                while seen.received_bytes < length:
                    data = await reader.read(min(_CHUNK_BYTES, length - seen.received_bytes))
                    if not data:
                        return
                    seen.received_bytes += len(data)
        except TimeoutError:
            seen.body_timed_out = True


def content_length(headers: Sequence[str]) -> int | None:
    """The body's length where exactly one decimal Content-Length says so and nothing contradicts; else None."""
    pairs = [(name.strip().casefold(), value.strip()) for name, _, value in (line.partition(":") for line in headers)]
    lengths = [value for name, value in pairs if name == "content-length"]
    if any(name == "transfer-encoding" for name, _ in pairs) or len(lengths) != 1:
        return None
    value = lengths[0]
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(MOST_BODY_BYTES))):
        return None
    return int(value) if int(value) <= MOST_BODY_BYTES else None


def _name_in(body: bytes) -> str:
    """The name of the repository that is to be made; "repo" when the body names none."""
    try:
        wanted: object = json.loads(body)
    except ValueError:
        return "repo"
    name = wanted.get("name") if isinstance(wanted, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return name if isinstance(name, str) else "repo"


def _answer(status: int, body: bytes) -> bytes:
    reason = {200: "OK", 404: "Not Found"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
