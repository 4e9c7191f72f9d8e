"""A forwarder for HTTP/1.1 that counts, records and can be told to fail.

Each client connection has one upstream connection of its own, opened with its first request and ended with it, so that
what a client does to its connection (reuse it, drop it, open a second) happens to the server in the same way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from typing_extensions import override

from fairtrial.wire.exchange import After, Exchange, Observed
from fairtrial.wire.faults import Fault, take_due
from fairtrial.wire.forwarding import Forwarding
from fairtrial.wire.http1 import BadMessageError, EndedEarlyError, parse_request_head, read_head, render_answer
from fairtrial.wire.ledger import ConnectionReuse, RequestRecord
from fairtrial.wire.peer import Address, Peer

__all__ = ["Forwarder"]


class Forwarder(Forwarding):
    """Forwards request by request."""

    def __init__(
        self,
        *,
        upstream: Address,
        reuse: ConnectionReuse,
        faults: Sequence[Fault],
        on_record: Callable[[RequestRecord], None],
    ) -> None:
        super().__init__(upstream=upstream, reuse=reuse, faults=faults, on_record=on_record)
        self._in_flight: set[Observed] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    @override
    def n_in_flight(self) -> int:
        """Requests whose upstream work is not finished."""
        return len(self._in_flight)

    @override
    async def _wait_idle(self) -> None:
        await self._idle.wait()

    @override
    async def _serve(self, client: Peer, number: int) -> None:
        upstream = _Upstream(self._connect)
        after = After.KEEP
        try:
            while after is After.KEEP:
                after = await self._serve_next(client, number, upstream)
            if after is After.RESET:
                client.reset()
            elif after is After.LINGER:
                await client.close_lingering()
            client.close()
            await client.wait_closed()
        finally:
            client.abort()
            upstream.close()

    async def _serve_next(self, client: Peer, number: int, upstream: "_Upstream") -> After:
        """Serve one request, or find that there is none."""
        now_s = asyncio.get_running_loop().time
        raw = b""
        observed = Observed(connection=number, started_s=now_s())
        try:
            head = await _next_head(client, upstream.peer)
            if head is None:
                return After.CLOSE
            observed.started_s = now_s()
            raw = head
            request = parse_request_head(raw)
        except BadMessageError as error:
            observed.request_head_bytes = observed.request_wire_bytes = len(raw)
            observed.error = f"bad request: {error}"
            observed.client_status = await _refuse(client)
            self._on_record(observed.record(origin_s=self._origin_s, now_s=now_s()))
            return After.LINGER
        except EndedEarlyError as error:
            observed.client_gone = True
            observed.error = f"the client left inside a head: {error}"
            self._on_record(observed.record(origin_s=self._origin_s, now_s=now_s()))
            return After.CLOSE
        self._in_flight.add(observed)
        self._idle.clear()
        exchange = Exchange(
            request=request,
            raw_head=raw,
            client=client,
            connect=upstream.connect,
            rule=take_due(self._planned, method=request.method, target=request.target),
            reuse=self.reuse,
            observed=observed,
            on_upstream_done=lambda: self._settle(observed),
            released=self._released,
        )
        try:
            return await exchange.run()
        except asyncio.CancelledError:
            observed.error = "the forwarder was stopped"
            raise
        finally:
            self._settle(observed)
            self._on_record(observed.record(origin_s=self._origin_s, now_s=now_s()))

    def _settle(self, observed: Observed) -> None:
        self._in_flight.discard(observed)
        if not self._in_flight:
            self._idle.set()


class _Upstream:
    """The server's side of one client connection, opened when first needed.

    Attributes:
        peer: The connection; None before it was needed.
    """

    def __init__(self, connect: Callable[[], Awaitable[Peer]]) -> None:
        self._connect = connect
        self.peer: Peer | None = None

    async def connect(self) -> Peer:
        """Return the connection, even one that the server has closed: a direct client would have hit that end too.

        Raises:
            OSError: Nobody listens there.
        """
        if self.peer is None:
            self.peer = await self._connect()
        return self.peer

    def close(self) -> None:
        """Close it, if it was opened."""
        if self.peer is not None:
            self.peer.close()


async def _next_head(client: Peer, upstream: Peer | None) -> bytes | None:
    """Read the next request's head; None when the client, or meanwhile the server, has closed the connection.

    Raises:
        BadMessageError: The head is refused.
        EndedEarlyError: The client left inside it.
    """
    if upstream is None:
        return await read_head(client.reader)
    head = asyncio.ensure_future(read_head(client.reader))
    server_left = asyncio.ensure_future(upstream.discard_until_end())
    try:
        await asyncio.wait([head, server_left], return_when=asyncio.FIRST_COMPLETED)
        return await head if head.done() else None
    finally:
        for task in (head, server_left):
            task.cancel()
        await asyncio.wait([head, server_left])


async def _refuse(client: Peer) -> int | None:
    """Answer 400; return the status that the client was sent."""
    try:
        await client.send(render_answer(400, connection_close=True))
    except ConnectionError:
        return None
    return 400
