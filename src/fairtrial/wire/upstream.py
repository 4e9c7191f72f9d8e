"""A client for one HTTP/1.1 server: connections kept for reuse, TLS, a request and its reply running side by side.

A request goes out once. A kept connection that the server has closed is noticed before it is used, and never used when
it has been idle for long; what fails all the same fails for the caller to see, since a request that costs money must
not be sent twice in silence.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from fairtrial.errors import UsageError
from fairtrial.wire.dechunk import Dechunker
from fairtrial.wire.http1 import (
    PIECE_BYTES,
    BadMessageError,
    BodyKind,
    EndedEarlyError,
    Payload,
    ReplyHead,
    parse_reply_head,
    read_head,
)
from fairtrial.wire.peer import Address, Peer, connect_peer
from fairtrial.wire.reader import ByteCount

__all__ = ["Origin", "Reply", "Upstream", "UpstreamBrokenError", "UpstreamUnreachableError", "parse_origin"]

_CONNECT_S: Final = 20.0
_FORM: Final = "https://host[:port][/path], http://… or unix:/path; a key goes into a variable, never into the address"
_IDLE_S: Final = 15.0
"""Well below what servers and the boxes between keep an idle connection for."""


class UpstreamBrokenError(Exception):
    """The server could not be reached, left in the middle, or did not speak HTTP."""


class UpstreamUnreachableError(UpstreamBrokenError):
    """The server could not be reached: nothing of the request was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where requests go.

    Attributes:
        address: Host and port, or a unix socket.
        tls: Speak TLS.
        authority: What the Host header says.
        prefix: The path before each request's own, without a final slash.
    """

    address: Address
    tls: bool
    authority: str
    prefix: str


def parse_origin(url: str) -> Origin:
    """Parse `https://host[:port][/prefix]`, `http://…` or `unix:/path`.

    Raises:
        UsageError: It is neither, or carries a user, query or fragment.
    """
    if url.startswith("unix:/"):
        address = Address(host=url.removeprefix("unix:"), port=None)
        return Origin(address=address, tls=False, authority="localhost", prefix="")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        said = "" if _may_hold_a_secret(url) else f": {error}"
        raise UsageError(f"{_show(url)} is not {_FORM}{said}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or _may_hold_a_secret(url) or not url.isprintable():
        raise UsageError(f"{_show(url)} is not {_FORM}")
    tls = parts.scheme == "https"
    return Origin(
        address=Address(host=parts.hostname, port=port or (443 if tls else 80)),
        tls=tls,
        authority=parts.netloc,
        prefix=parts.path.rstrip("/"),
    )


def _may_hold_a_secret(url: str) -> bool:
    """A user, a query or a fragment, each of which an origin cannot have."""
    return any(mark in url for mark in "@?#")


def _show(url: str) -> str:
    if _may_hold_a_secret(url):
        return "upstream (not shown: what stands before '@' or behind '?' may be secret)"
    return f"upstream {url!r:.200}"


class Reply:
    """A reply whose head is here.

    Attributes:
        head: Its head.
        reused: It came on a connection that had served before.
        ended: Its body was read to the end.
    """

    def __init__(self, head: ReplyHead, peer: Peer, *, reused: bool) -> None:
        self.head = head
        self.reused = reused
        self.ended = head.framing.kind is BodyKind.NONE
        self._peer = peer
        self._payload = Payload(peer.reader, head.framing)
        self._dechunker = Dechunker() if head.framing.kind is BodyKind.CHUNKED else None

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body's payload as it comes."""
        return self

    async def __anext__(self) -> bytes:
        """The next of it.

        Raises:
            UpstreamBrokenError: It broke off.
        """
        try:
            data = b"" if self.ended else await self._read()
        except (BadMessageError, EndedEarlyError, OSError) as error:
            raise UpstreamBrokenError(str(error)) from error
        if not data:
            raise StopAsyncIteration
        return data

    async def _read(self) -> bytes:
        if self._dechunker is None:
            data = await self._payload.read()
            self.ended = self._payload.ended
            return data
        payload = b""
        while not payload and not self._dechunker.ended:
            data = await self._peer.reader.read(PIECE_BYTES)
            if not data:
                raise EndedEarlyError("the connection ended inside a chunked body")
            payload = self._dechunker.feed(data)
            if self._dechunker.surplus:
                raise BadMessageError("bytes after the end of the reply")
        self.ended = self._dechunker.ended
        return payload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A connection that waits for its next request.

    Attributes:
        peer: The connection.
        idle_since_s: Since when.
        n_noticed: How often something had come by then; more means that the server has closed it, or spoke unasked.
    """

    peer: Peer
    idle_since_s: float
    n_noticed: int


class Upstream:
    """One server and its connections.

    Attributes:
        origin: Where it is.
        n_connects: Connections opened so far.
    """

    def __init__(self, origin: Origin, *, ca_file: str | None = None) -> None:
        """Prepare.

        Args:
            origin: Where it is.
            ca_file: Certificates to trust instead of the system's.
        """
        self.origin = origin
        self.n_connects = 0
        self._tls = ssl.create_default_context(cafile=ca_file) if origin.tls else None
        self._kept: list[_Kept] = []

    def ask(self, head: bytes, body: AsyncIterator[bytes] | None, *, method: str) -> AbstractAsyncContextManager[Reply]:
        """Send a request and give its reply once its head is here; the rest of the request goes on meanwhile.

        Leaving the context before the reply's end breaks the connection, so that the server notices.

        Args:
            head: The whole head, which frames the body; followed by the body, if that is small.
            body: The body as it stands on the wire; None for none, or when it is in `head`.
            method: The request's method, which decides how the reply is read.

        Raises:
            UpstreamBrokenError: There is no whole reply.
        """
        return _Asking(self, head, body, method)

    def keep(self, peer: Peer) -> None:
        """Keep a connection whose reply has ended for another request."""
        now_s = asyncio.get_running_loop().time()
        self._kept.append(_Kept(peer=peer, idle_since_s=now_s, n_noticed=peer.count_noticed()))

    async def connect(self) -> tuple[Peer, bool]:
        """Return a connection, and whether it has served before.

        Raises:
            UpstreamUnreachableError: There is none.
        """
        while self._kept:
            # The youngest: an old one is the likelier to be closed just now.
            kept = self._kept.pop()
            idle_s = asyncio.get_running_loop().time() - kept.idle_since_s
            if idle_s <= _IDLE_S and kept.peer.count_noticed() == kept.n_noticed:
                return kept.peer, True
            kept.peer.abort()
        try:
            async with asyncio.timeout(_CONNECT_S):
                peer = await connect_peer(self.origin.address, received=ByteCount(), sent=ByteCount(), tls=self._tls)
        except TimeoutError as error:
            raise UpstreamUnreachableError(f"no connection within {_CONNECT_S:g} s") from error
        except OSError as error:
            raise UpstreamUnreachableError(f"cannot be reached: {error}") from error
        self.n_connects += 1
        return peer, False

    def close(self) -> None:
        """Close the connections that wait."""
        for kept in self._kept:
            kept.peer.abort()
        self._kept.clear()


class _Asking:
    """A request and its reply, see `Upstream.ask`; a generator in its place would cost several times as much."""

    def __init__(self, upstream: Upstream, head: bytes, body: AsyncIterator[bytes] | None, method: str) -> None:
        self._upstream = upstream
        self._head = head
        self._body = body
        self._method = method
        self._peer: Peer | None = None
        self._sender: asyncio.Task[None] | None = None
        self._reply: Reply | None = None

    async def __aenter__(self) -> Reply:
        self._peer, reused = await self._upstream.connect()
        try:
            if self._body is None:
                with suppress(ConnectionError):  # the reply, or its absence, tells more than a failure to send
                    await self._peer.send(self._head)
            else:
                self._sender = asyncio.create_task(_send(self._peer, self._head, self._body))
            self._reply = Reply(await _receive_head(self._peer, self._method), self._peer, reused=reused)
        except BaseException:
            await self._end(self._peer)
            raise
        return self._reply

    async def __aexit__(self, *_exit: object) -> None:
        if self._peer is not None:
            await self._end(self._peer)

    async def _end(self, peer: Peer) -> None:
        sent = self._sender is None or await _end_sender(self._sender)
        if self._reply is not None and self._reply.ended and sent and self._reply.head.keep_alive:
            self._upstream.keep(peer)
        else:
            peer.abort()


async def _send(peer: Peer, head: bytes, body: AsyncIterator[bytes] | None) -> None:
    try:
        await peer.send(head)
        if body is not None:
            async for data in body:
                await peer.send(data)
    except ConnectionError:
        raise  # the server may have answered already, and its answer is still to be read
    except BaseException:
        peer.abort()  # the request will never be whole, so there is nothing to wait for
        raise


async def _end_sender(sender: asyncio.Task[None]) -> bool:
    """End the sending; return whether all had been sent."""
    sent = sender.done() and not sender.cancelled() and sender.exception() is None
    sender.cancel()
    await asyncio.wait([sender])
    if not sender.cancelled():
        sender.exception()  # looked at: the reply, or its absence, tells more than a failure to send
    return sent


async def _receive_head(peer: Peer, method: str) -> ReplyHead:
    try:
        while True:
            raw = await read_head(peer.reader)
            if raw is None:
                raise UpstreamBrokenError("closed without a reply")
            head = parse_reply_head(raw, method=method)
            if not head.interim:
                return head
    except (BadMessageError, EndedEarlyError, OSError) as error:
        raise UpstreamBrokenError(str(error)) from error
