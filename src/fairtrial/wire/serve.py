"""An HTTP/1.1 server on unix sockets that hands each request to a handler and writes the reply that it gives.

Owns connections, framing and keep-alive; knows nothing of what is asked. The handler reads as much of the body as it
wants to, answers at most once, and may break the connection instead. What the handler raises ends the connection and
goes to the loop's exception handler; broken messages and clients that leave are no errors of the server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar

from typing_extensions import override

from fairtrial.wire.http1 import (
    BadMessageError,
    EndedEarlyError,
    Payload,
    RequestHead,
    parse_request_head,
    read_head,
    render_answer,
    render_status_line,
)
from fairtrial.wire.peer import Peer
from fairtrial.wire.reader import ByteCount, CountedReader
from fairtrial.wire.tasks import TaskSet

__all__ = ["ClientGoneError", "Handler", "HttpServer", "Incoming"]

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client has closed its connection."""


class Handler(Protocol):
    """Whoever answers."""

    async def on_request(self, incoming: "Incoming", /) -> None:
        """Answer one request."""
        ...

    def on_bad_request(self, problem: str, /) -> None:
        """Note what was no request; it has been answered by 400."""
        ...


class _Answer(Enum):
    """How far the reply has got."""

    NONE = "none"
    BEGUN = "begun"
    ENDED = "ended"
    BROKEN = "broken"
    RESET = "reset"


class Incoming:
    """One request, and the way to answer it.

    Attributes:
        head: Its head.
        n_reply_bytes: Body bytes handed to the client so far.
    """

    def __init__(self, head: RequestHead, client: Peer, protocol: "_Connection") -> None:
        self.head = head
        self._protocol = protocol
        self.n_reply_bytes = 0
        self._client = client
        self._answer = _Answer.NONE
        self._body = Payload(client.reader, head.framing)
        self._chunked = False
        self._keep = head.keep_alive
        self._unsent_head = b""

    @property
    def answered(self) -> bool:
        """The beginning of a reply is on its way."""
        return self._answer is not _Answer.NONE

    def body(self) -> AsyncIterator[bytes]:
        """The body's payload as it comes; a client that waits for it is told to go on.

        Raises:
            BadMessageError: Its framing is broken.
            EndedEarlyError: The client left inside it.
        """
        return self._body_waited_for() if self.head.expects_continue else self._body

    async def _body_waited_for(self) -> AsyncIterator[bytes]:
        with suppress(ConnectionError):  # the reading below finds out and says so
            await self._client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        async for data in self._body:
            yield data

    async def while_present(self, work: Coroutine[None, None, T]) -> T:
        """Do the work while the client is there; once its body is read, the end of its side means that it has left.

        Raises:
            ClientGoneError: The client left first; the work was broken off.
        """
        # As asyncio.timeout does it: a task for the work and one to watch would cost more than a small request.
        task = asyncio.current_task()
        left = False

        def leave() -> None:
            nonlocal left
            left = True
            if task is not None:
                task.cancel()

        if self._protocol.has_ended:
            work.close()
            raise ClientGoneError
        self._protocol.on_end = leave
        try:
            return await work
        except asyncio.CancelledError:
            if left and task is not None and task.uncancel() == 0:
                raise ClientGoneError from None
            raise
        finally:
            self._protocol.on_end = None

    async def reply(self, status: int, fields: Sequence[tuple[str, str]], body: bytes) -> None:
        """Send a whole reply.

        Raises:
            ClientGoneError: The client has left.
        """
        head = self._render_head(status, fields, n_bytes=len(body))
        self.n_reply_bytes += len(body)
        await self._send(head if self.head.method == "HEAD" else head + body)
        self._answer = _Answer.ENDED

    async def begin(self, status: int, fields: Sequence[tuple[str, str]], *, n_bytes: int | None) -> None:
        """Send a reply's head; `n_bytes` is the length of its body, None when that is not known.

        Raises:
            ClientGoneError: The client has left.
        """
        head = self._render_head(status, fields, n_bytes=n_bytes)
        if n_bytes is None:
            await self._send(head)
        else:
            self._unsent_head = head  # one packet for a small reply

    def _render_head(self, status: int, fields: Sequence[tuple[str, str]], *, n_bytes: int | None) -> bytes:
        self._answer = _Answer.BEGUN
        self._chunked = n_bytes is None and self.head.minor_version == 1
        self._keep = self._keep and self._body.ended and (n_bytes is not None or self._chunked)
        lines = [render_status_line(status), *(f"{name}: {value}" for name, value in fields)]
        if n_bytes is not None:
            lines.append(f"content-length: {n_bytes}")
        elif self._chunked:
            lines.append("transfer-encoding: chunked")
        if not self._keep:
            lines.append("connection: close")
        elif self.head.minor_version == 0:
            lines.append("connection: keep-alive")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def send(self, data: bytes) -> None:
        """Send a part of the body.

        Raises:
            ClientGoneError: The client has left.
        """
        if not data:
            return
        self.n_reply_bytes += len(data)
        await self._send(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    async def end(self) -> None:
        """Say that the body is complete.

        Raises:
            ClientGoneError: The client has left.
        """
        if self._chunked or self._unsent_head:
            await self._send(b"0\r\n\r\n" if self._chunked else b"")
        self._answer = _Answer.ENDED

    async def _send(self, data: bytes) -> None:
        if self._unsent_head:
            data, self._unsent_head = self._unsent_head + data, b""
        try:
            await self._client.send(data)
        except ConnectionError as error:
            raise ClientGoneError from error

    def break_off(self) -> None:
        """Let the connection end without a proper end of the reply, once the handler returns."""
        self._answer = _Answer.BROKEN

    def reset(self) -> None:
        """Let the connection be reset once the handler returns: TCP clients are sent RST, others see its end."""
        self._answer = _Answer.RESET

    async def stay_silent(self) -> None:
        """Say nothing more, for ever: `while_present` ends the wait when the client leaves."""
        self._answer = _Answer.BROKEN
        await asyncio.get_running_loop().create_future()

    async def finish(self) -> bool:
        """Bring the connection into a state for the next request; False when it must end, as it has been told."""
        if self._answer is _Answer.NONE:
            await self.reply(500, (), b"")
        if self._answer is _Answer.RESET:
            self._client.reset()
        if self._answer is not _Answer.ENDED:
            return False
        if not self._body.ended:
            await self._client.close_lingering()
        return self._keep


class _Connection(asyncio.StreamReaderProtocol):
    """A connection that says when the client ends its side.

    Attributes:
        has_ended: It has.
        on_end: Called then, once.
    """

    def __init__(self, on_client: Callable[["_Connection", Peer], None]) -> None:
        loop = asyncio.get_running_loop()
        reader = CountedReader(ByteCount(), loop)
        super().__init__(reader, lambda _, writer: on_client(self, Peer(reader, writer, ByteCount())), loop=loop)
        self.has_ended = False
        self.on_end: Callable[[], None] | None = None
        self._reader = reader

    @override
    def data_received(self, data: bytes) -> None:
        self._reader.feed_data(data)

    @override
    def eof_received(self) -> bool | None:
        self._end()
        return super().eof_received()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _end(self) -> None:
        self.has_ended = True
        if self.on_end is not None:
            on_end, self.on_end = self.on_end, None
            on_end()


class HttpServer:
    """One listening socket and its connections."""

    def __init__(self, handler: Handler, *, max_connections: int) -> None:
        """Prepare.

        Args:
            handler: Who answers.
            max_connections: Connections at once; further ones are closed at once.
        """
        self._handler = handler
        self._max = max_connections
        self._server: asyncio.Server | None = None
        self._tasks = TaskSet("a connection")

    async def listen(self, path: Path) -> None:
        """Listen on a unix socket, which must not exist yet.

        Raises:
            OSError: It cannot be made.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self._accept), str(path), backlog=128)

    def _accept(self, connection: "_Connection", client: Peer) -> None:
        if len(self._tasks) >= self._max:
            client.abort()
            return
        self._tasks.start(self._serve(client, connection))

    async def _serve(self, client: Peer, connection: "_Connection") -> None:
        try:
            while await self._serve_next(client, connection):
                pass
            client.close()
            await client.wait_closed()
        finally:
            client.abort()

    async def _serve_next(self, client: Peer, connection: "_Connection") -> bool:
        """Serve one request; False when the connection is at its end."""
        try:
            raw = await read_head(client.reader)
            if raw is None:
                return False
            incoming = Incoming(parse_request_head(raw), client, connection)
        except BadMessageError as error:
            self._handler.on_bad_request(str(error))
            await _refuse(client)
            return False
        except EndedEarlyError:
            return False
        try:
            await self._handler.on_request(incoming)
            return await incoming.finish()
        except BadMessageError as error:
            self._handler.on_bad_request(str(error))
            if not incoming.answered:
                await _refuse(client)
            return False
        except (EndedEarlyError, ClientGoneError):
            return False

    async def stop(self) -> None:
        """Accept nothing more and break every connection off."""
        if self._server is None:
            return
        self._server.close()
        await self._tasks.end()


async def _refuse(client: Peer) -> None:
    with suppress(ConnectionError):
        await client.send(render_answer(400, connection_close=True))
        await client.close_lingering()
