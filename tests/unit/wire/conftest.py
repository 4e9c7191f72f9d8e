"""Real sockets: a scripted server behind a real forwarder, and a client that speaks bytes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from fairtrial.wire.faults import Fault
from fairtrial.wire.forward import Forwarder
from fairtrial.wire.ledger import ConnectionReuse, RequestRecord
from fairtrial.wire.peer import Address

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Stage:
    forwarder: Forwarder
    records: list[RequestRecord]
    failures: list[dict[str, object]] = field(default_factory=list)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.forwarder.port)

    async def talk(self, data: bytes) -> bytes:
        """Send bytes on a connection of its own and return all that comes back until the proxy closes."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            return await reader.read()
        finally:
            writer.close()


Staging = Callable[..., AbstractAsyncContextManager[Stage]]


@pytest.fixture
def staged() -> Staging:
    @asynccontextmanager
    async def stage(
        handler: Handler, *, faults: Sequence[Fault] = (), reuse: ConnectionReuse = ConnectionReuse.REUSED
    ) -> AsyncIterator[Stage]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        records: list[RequestRecord] = []
        forwarder = Forwarder(
            upstream=Address(host="127.0.0.1", port=port), reuse=reuse, faults=faults, on_record=records.append
        )
        result = Stage(forwarder, records)
        asyncio.get_running_loop().set_exception_handler(lambda _, context: result.failures.append(context))
        await forwarder.start()
        try:
            yield result
        finally:
            await forwarder.stop(0)
            server.close()
        assert not result.failures

    return stage
