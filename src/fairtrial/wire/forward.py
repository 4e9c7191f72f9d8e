"""A forwarder for HTTP/1.1 that counts, records and can be told to fail.

Each client connection has one upstream connection of its own, opened with its first request and ended with it, so that
what a client does to its connection (reuse it, drop it, open a second) happens to the server in the same way.
"""

import asyncio
from collections.abc import Callable, Sequence

from fairtrial.wire.exchange import After, Exchange, Observed
from fairtrial.wire.faults import Fault, FaultReport, plan_faults, take_due
from fairtrial.wire.http1 import BadMessageError, EndedEarlyError, parse_request_head, read_head, render_answer
from fairtrial.wire.ledger import ByteCounts, ConnectionReuse, RequestRecord
from fairtrial.wire.peer import Address, Peer, connect_peer, listen_for_peers
from fairtrial.wire.reader import ByteCount

__all__ = ["Forwarder"]

# From "the bytes are in the kernel" to "the exchange has begun" asyncio needs five turns of its loop (select, accept,
# connection_made, add_reader, read); then the head is parsed.
_SETTLE_TURNS = 20


class Forwarder:
    """Listens on 127.0.0.1 and forwards to one server.

    Attributes:
        port: Where it listens; 0 before `start`.
        n_connections: Client connections accepted so far.
        reuse: Whether clients may reuse a connection.
    """

    def __init__(
        self,
        *,
        upstream: Address,
        reuse: ConnectionReuse,
        faults: Sequence[Fault],
        on_record: Callable[[RequestRecord], None],
    ) -> None:
        self.port = 0
        self.n_connections = 0
        self.reuse = reuse
        self._upstream = upstream
        self._planned = plan_faults(faults)
        self._on_record = on_record
        self._counts = {name: ByteCount() for name in ByteCounts.__dataclass_fields__}
        self._server: asyncio.Server | None = None
        self._origin_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight: set[Observed] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._released = asyncio.Event()

    @property
    def n_in_flight(self) -> int:
        """Requests whose upstream work is not finished."""
        return len(self._in_flight)

    @property
    def counts(self) -> ByteCounts:
        """The four raw counters, now."""
        return ByteCounts(**{name: count.n_bytes for name, count in self._counts.items()})

    @property
    def fault_reports(self) -> tuple[FaultReport, ...]:
        """What became of each planned fault so far."""
        return tuple(rule.report() for rule in self._planned)

    def set_faults(self, faults: Sequence[Fault]) -> None:
        """Replace the plan; requests in flight keep the rule that hit them."""
        self._planned = plan_faults(faults)
        self._released.clear()

    async def start(self) -> int:
        """Listen and return the port.

        Raises:
            OSError: There is no free port or descriptor.
        """
        self._origin_s = asyncio.get_running_loop().time()
        self._server, self.port = await listen_for_peers(
            self._accept, received=self._counts["client_to_proxy"], sent=self._counts["proxy_to_client"]
        )
        return self.port

    async def drain(self, timeout_s: float) -> bool:
        """Let go what is held back, and wait until no upstream work is left of anything that clients have sent so far.

        Returns:
            False when the time is up.
        """
        self._released.set()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._idle.wait()
                    # A client that is dead by now may have left its request in the kernel, even unaccepted.
                    before = self.n_connections, self.counts.client_to_proxy
                    for _ in range(_SETTLE_TURNS):
                        await asyncio.sleep(0)
                    if self._idle.is_set() and before == (self.n_connections, self.counts.client_to_proxy):
                        return True
        except TimeoutError:
            return False

    async def stop(self, timeout_s: float) -> None:
        """Accept nothing more, let upstream work finish for at most so long, then end every connection."""
        if self._server is None:
            return
        self._server.close()
        await self.drain(timeout_s)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self, client: Peer) -> None:
        self.n_connections += 1
        task = asyncio.create_task(self._serve_connection(client, self.n_connections))
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler({"message": "a connection failed", "exception": error})

    async def _serve_connection(self, client: Peer, number: int) -> None:
        received, sent = self._counts["server_to_proxy"], self._counts["proxy_to_server"]
        upstream = _Upstream(self._upstream, received=received, sent=sent)
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

    def __init__(self, address: Address, *, received: ByteCount, sent: ByteCount) -> None:
        self._address = address
        self._received = received
        self._sent = sent
        self.peer: Peer | None = None

    async def connect(self) -> Peer:
        """Return the connection, even one that the server has closed: a direct client would have hit that end too.

        Raises:
            OSError: Nobody listens there.
        """
        if self.peer is None:
            self.peer = await connect_peer(self._address, received=self._received, sent=self._sent)
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
