"""What every forwarder is: a port on 127.0.0.1, four counters, and a plan of faults."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from fairtrial.wire.faults import Fault, FaultReport, plan_faults
from fairtrial.wire.ledger import ByteCounts, ConnectionReuse, RequestRecord
from fairtrial.wire.peer import Address, Peer, connect_peer, listen_for_peers
from fairtrial.wire.reader import ByteCount
from fairtrial.wire.tasks import TaskSet

__all__ = ["Forwarding"]

# From "the bytes are in the kernel" to "the exchange has begun" asyncio needs five turns of its loop (select, accept,
# connection_made, add_reader, read); then a head is parsed.
_SETTLE_TURNS = 20


class Forwarding(ABC):
    """Listens on 127.0.0.1 and forwards to one server; how is for those that derive from it.

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
        self._tasks = TaskSet("a connection")
        self._released = asyncio.Event()

    @property
    @abstractmethod
    def n_in_flight(self) -> int:
        """What has not come to its end at the server."""

    @abstractmethod
    async def _wait_idle(self) -> None:
        """Wait until nothing is in flight."""

    @abstractmethod
    async def _serve(self, client: Peer, number: int) -> None:
        """Serve one connection to its end."""

    @property
    def counts(self) -> ByteCounts:
        """The four raw counters, now."""
        return ByteCounts(**{name: count.n_bytes for name, count in self._counts.items()})

    @property
    def fault_reports(self) -> tuple[FaultReport, ...]:
        """What became of each planned fault so far."""
        return tuple(rule.report() for rule in self._planned)

    def set_faults(self, faults: Sequence[Fault]) -> None:
        """Replace the plan; what has been hit keeps its rule."""
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

    def _accept(self, client: Peer) -> None:
        self.n_connections += 1
        self._tasks.start(self._serve(client, self.n_connections))

    async def _connect(self) -> Peer:
        """A connection to the server.

        Raises:
            OSError: Nobody listens there.
        """
        received, sent = self._counts["server_to_proxy"], self._counts["proxy_to_server"]
        return await connect_peer(self._upstream, received=received, sent=sent)

    async def drain(self, timeout_s: float) -> bool:
        """Let go what is held back, and wait until nothing is in flight of what clients have sent so far.

        Returns:
            False when the time is up.
        """
        self._released.set()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._wait_idle()
                    # A client that is dead by now may have left something in the kernel, even unaccepted.
                    before = self.n_connections, self.counts.client_to_proxy
                    for _ in range(_SETTLE_TURNS):
                        await asyncio.sleep(0)
                    if not self.n_in_flight and before == (self.n_connections, self.counts.client_to_proxy):
                        return True
        except TimeoutError:
            return False

    async def stop(self, timeout_s: float) -> None:
        """Accept nothing more, let what is in flight end for at most so long, then end every connection."""
        if self._server is None:
            return
        self._server.close()
        await self.drain(timeout_s)
        await self._tasks.end()
