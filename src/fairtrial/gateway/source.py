"""Who answers: a provider. The scripted model and the recording fit the same Protocol; see `player`."""

import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol

from fairtrial.gateway.dialect import Call, Dialect
from fairtrial.gateway.egress import upstream_headers
from fairtrial.gateway.spool import Spool
from fairtrial.wire.faults import Fault
from fairtrial.wire.http1 import PIECE_BYTES, Fields
from fairtrial.wire.upstream import Reply, Upstream, UpstreamBrokenError

__all__ = ["MAX_DECODED_BYTES", "Answer", "Decoder", "Outgoing", "Provider", "Source"]

# Of a reply's headers, those that concern one connection, or tell the trial whose account pays for it.
_NOT_PASSED: Final = frozenset(
    {
        "alt-svc", "connection", "content-length", "keep-alive", "proxy-authenticate", "proxy-connection", "set-cookie",
        "strict-transport-security", "trailer", "transfer-encoding", "upgrade", "via",
    }
)  # fmt: skip
_SMALL_BYTES: Final = 32 * 1024
_GZIP_OR_ZLIB: Final = 47
"""For zlib: whichever of the two the header says."""

MAX_DECODED_BYTES: Final = 256 << 20
"""What a coded reply may hold. A thousandth of it can come over the wire, so what holds more is passed on unread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A request that may go out.

    Attributes:
        dialect: Its dialect.
        call: What it asks; without the conversation's text where nobody needs that.
        headers: The client's headers, names in lower case.
        body: Its body.
        cut_bytes: Bytes of the body after which the connection is dropped, for a planned fault; None for none.
    """

    dialect: Dialect
    call: Call
    headers: Mapping[str, str]
    body: Spool
    cut_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply whose head is here.

    Attributes:
        status: Its status.
        fields: Its headers as they are passed on, without framing.
        n_bytes: Length of its body; None when that is not known.
        pieces: Its body, once.
        reused_connection: It came on a connection that had served before; None where there is no connection.
    """

    status: int
    fields: Fields
    n_bytes: int | None
    pieces: AsyncIterator[bytes]
    reused_connection: bool | None = None

    def header(self, name: str) -> str:
        """The last header of that name; "" for none."""
        for key, value in reversed(self.fields):
            if key == name:
                return value
        return ""


class Source(Protocol):
    """Whoever answers.

    Attributes:
        name: What its pace is kept under; None when its trouble holds nobody back.
    """

    @property
    def name(self) -> str | None:
        """What its pace is kept under; None when its trouble holds nobody back."""
        ...

    @property
    def reads_conversation(self) -> bool:
        """It must be shown the text of the conversation."""
        ...

    def plan_fault(self, call: Call, dialect: Dialect) -> Fault | None:
        """What shall go wrong with this request; asked once for each."""
        ...

    def ask(self, outgoing: Outgoing) -> AbstractAsyncContextManager[Answer]:
        """Send a request and give the reply once its head is here; leaving early breaks the reply off.

        Raises:
            UpstreamBrokenError: There is no whole reply.
        """
        ...


class Provider:
    """A provider of models, asked with the key that only this process has."""

    def __init__(self, name: str, upstream: Upstream, key: str) -> None:
        self._name = name
        self._upstream = upstream
        self._key = key
        self._dialect: Dialect | None = None

    @property
    def name(self) -> str:
        """The upstream's name."""
        return self._name

    @property
    def reads_conversation(self) -> bool:
        """The body goes out as it came."""
        return False

    def plan_fault(self, call: Call, dialect: Dialect) -> Fault | None:  # noqa: ARG002 - the Protocol's
        """Nothing: a provider fails by itself."""
        return None

    def ask(self, outgoing: Outgoing) -> AbstractAsyncContextManager[Answer]:
        """Send the request; see `Source.ask`."""
        body = outgoing.body
        self._dialect = outgoing.dialect
        head = self._render_head(outgoing)
        if body.n_bytes <= _SMALL_BYTES and outgoing.cut_bytes is None:
            head, pieces = head + body.read_all(), None  # one packet
        else:
            pieces = body.pieces() if outgoing.cut_bytes is None else _cut(body, outgoing.cut_bytes)
        return _Asked(self._upstream.ask(head, pieces, method="POST"))

    def _render_head(self, outgoing: Outgoing) -> bytes:
        origin, route = self._upstream.origin, outgoing.call.route
        headers = upstream_headers(outgoing.dialect, outgoing.headers, key=self._key)
        # A reply that we cannot read is a reply that we cannot count.
        headers |= {
            "host": origin.authority,
            "accept-encoding": "identity",
            "content-length": str(outgoing.body.n_bytes),
        }
        target = origin.prefix + route.path + (f"?{route.query}" if route.query else "")
        lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def probe(self) -> tuple[int, str]:
        """Ask for the list of models, which costs nothing; return the status and the Retry-After of the answer.

        It goes out as requests did before: a provider that was never asked is not probed.

        Raises:
            UpstreamBrokenError: There is no answer.
        """
        if self._dialect is None:
            raise UpstreamBrokenError("it was never asked anything")
        origin = self._upstream.origin
        headers = {"host": origin.authority, "accept": "application/json", **self._dialect.auth_headers(self._key)}
        lines = [f"GET {origin.prefix}{self._dialect.models_path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
        async with self._upstream.ask("\r\n".join([*lines, "", ""]).encode("latin-1"), None, method="GET") as reply:
            return reply.head.status, _answer(reply).header("retry-after")

    def close(self) -> None:
        """Close its connections."""
        self._upstream.close()


class _Asked:
    """The reply of a server, as an answer."""

    def __init__(self, asking: AbstractAsyncContextManager[Reply]) -> None:
        self._asking = asking

    async def __aenter__(self) -> Answer:
        return _answer(await self._asking.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._asking.__aexit__(kind, value, trace)


async def _cut(body: Spool, n_bytes: int) -> AsyncIterator[bytes]:
    """Give the beginning of a body and fail, so that its connection is dropped."""
    async for data in body.pieces(n_bytes):
        yield data
    raise UpstreamBrokenError("planned fault: the request was cut")


def _answer(reply: Reply) -> Answer:
    passed = tuple(
        (name, value)
        for name, value in reply.head.fields
        if name not in _NOT_PASSED and "organization" not in name and "cookie" not in name
    )
    return Answer(
        status=reply.head.status,
        fields=passed,
        n_bytes=reply.head.framing.n_bytes,
        pieces=reply,
        reused_connection=reply.reused,
    )


class Decoder:
    """Reads through the content coding of a reply that was coded although we asked for none, in bounded memory.

    Attributes:
        problem: Why what it returns is not the content; None while it is.
    """

    def __init__(self, coding: str) -> None:
        name = coding.strip().lower()
        self.problem: str | None = None
        self._n_bytes = 0
        self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB) if name in {"gzip", "x-gzip", "deflate"} else None
        if self._zlib is None and name not in {"", "identity"}:
            self.problem = f"content-encoding {name[:40]!r}"

    def decode(self, data: bytes) -> Iterable[bytes]:
        """What the next bytes hold, as far as it can be read: all of it is to be taken, or nothing that follows."""
        if self.problem is not None:
            return ()
        return (data,) if self._zlib is None else self._inflate(data)

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        part = b""
        try:
            # Input may be used up while some of what it holds is still to come out.
            while self._zlib is not None and (data or len(part) == PIECE_BYTES):
                part = self._zlib.decompress(data, PIECE_BYTES)
                self._n_bytes += len(part)
                if self._n_bytes > MAX_DECODED_BYTES:
                    self.problem = f"content-encoding: holds more than {MAX_DECODED_BYTES} bytes"
                    return
                yield part
                data = self._zlib.unconsumed_tail
                if self._zlib.unused_data:  # gzip may come in several members, one behind the other
                    data = self._zlib.unused_data
                    self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB)
        except zlib.error as error:
            self.problem = f"broken content-encoding: {error}"
