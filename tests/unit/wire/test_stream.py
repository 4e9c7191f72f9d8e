"""The forwarder of bytes: what it counts, where a mark is, and what each fault does there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from typing_extensions import override

from fairtrial.wire.faults import Fault, FaultKind
from fairtrial.wire.ledger import Delivery, RequestRecord
from fairtrial.wire.peer import Address
from fairtrial.wire.stream import StreamForwarder

MARK = "publish"
UPLOAD = b"ask;publish:0123456789"


@dataclass
class Scene:
    forwarder: StreamForwarder
    records: list[RequestRecord]
    received: list[bytes]
    failures: list[dict[str, object]] = field(default_factory=list)

    async def talk(self, *pieces: bytes) -> bytes | None:
        """Send pieces, end sending, and read to the end; None when the connection was reset."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.forwarder.port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)
            if not writer.transport.is_closing():
                writer.write_eof()
            return await reader.read()
        except OSError:  # that of a shutdown after a reset (ENOTCONN) is no ConnectionError
            return None
        finally:
            writer.close()


@asynccontextmanager
async def staged(*faults: Fault) -> AsyncIterator[Scene]:
    """A server that reads to the end and then answers `ok`."""
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            received.append(await reader.read())
            writer.write(b"ok")
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    records: list[RequestRecord] = []
    address = Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    forwarder = StreamForwarder(upstream=address, watch=MARK, faults=faults, on_record=records.append)
    scene = Scene(forwarder, records, received)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: scene.failures.append(context))
    await forwarder.start()
    try:
        yield scene
        assert await forwarder.drain(5)
    finally:
        await forwarder.stop(0)
        server.close()
    assert not scene.failures


class HurriedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward."""

    ahead_s = 0.0

    @override
    def time(self) -> float:
        return super().time() + self.ahead_s


@asynccontextmanager
async def forwarding(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[tuple[StreamForwarder, list[RequestRecord]]]:
    """A forwarder before a server of the test's own."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    records: list[RequestRecord] = []
    address = Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    forwarder = StreamForwarder(upstream=address, watch=MARK, faults=(), on_record=records.append)
    await forwarder.start()
    try:
        yield forwarder, records
    finally:
        await forwarder.stop(0)
        server.close()


def fault(kind: FaultKind, parameter: int | None = None, nth: int = 1) -> Fault:
    return Fault(match=MARK, nth=nth, kind=kind, parameter=parameter)


def run(work: Callable[[Scene], Awaitable[None]], *faults: Fault) -> Scene:
    async def all_of_it() -> Scene:
        async with staged(*faults) as scene:
            await work(scene)
        return scene

    return asyncio.run(all_of_it())


def talking(*pieces: bytes, times: int = 1) -> tuple[Callable[[Scene], Awaitable[None]], list[bytes | None]]:
    heard: list[bytes | None] = []

    async def work(scene: Scene) -> None:
        heard.extend([await scene.talk(*pieces) for _ in range(times)])

    return work, heard


BYTE_BY_BYTE = tuple(UPLOAD[i : i + 1] for i in range(len(UPLOAD)))


@pytest.mark.parametrize("pieces", [(UPLOAD,), (b"ask;publ", b"ish:0123456789"), BYTE_BY_BYTE])
def test_a_mark_is_found_wherever_the_stream_is_cut(pieces: Sequence[bytes]) -> None:
    work, heard = talking(*pieces)
    scene = run(work)
    assert heard == [b"ok"]
    assert scene.received == [UPLOAD]
    (record,) = scene.records
    assert (record.method, record.target, record.delivery) == ("TCP", MARK, Delivery.COMPLETE)
    assert (record.request_wire_bytes, record.reply_wire_bytes) == (len(":0123456789"), 2)


def test_a_connection_without_the_mark_leaves_no_record_and_is_counted() -> None:
    work, heard = talking(b"ask;only")
    scene = run(work, fault(FaultKind.RST_CONNECT))
    assert heard == [b"ok"]
    assert scene.records == []
    counts = scene.forwarder.counts
    assert (counts.client_to_proxy, counts.proxy_to_server) == (8, 8)
    assert (counts.server_to_proxy, counts.proxy_to_client) == (2, 2)
    assert not scene.forwarder.fault_reports[0].as_planned


@pytest.mark.parametrize(
    ("planned", "heard_by_client", "received", "delivery"),
    [
        (fault(FaultKind.DROP_REPLY), b"", UPLOAD, Delivery.COMPLETE),
        (fault(FaultKind.RST_REPLY), None, UPLOAD, Delivery.COMPLETE),
        (fault(FaultKind.DROP_MID_REQUEST, 4), b"", b"ask;publish:012", Delivery.PARTIAL),
        (fault(FaultKind.DROP_MID_REQUEST, 0), b"", b"ask;publish", Delivery.NOT_SENT),
        (fault(FaultKind.DELAY, 50), b"ok", UPLOAD, Delivery.COMPLETE),
    ],
)
def test_a_fault_begins_at_the_mark(
    planned: Fault, heard_by_client: bytes | None, received: bytes, delivery: Delivery
) -> None:
    work, heard = talking(UPLOAD)
    scene = run(work, planned)
    assert heard == [heard_by_client]
    assert scene.received == [received]
    (record,) = scene.records
    assert (record.delivery, record.fault, record.fault_fired) == (delivery, planned.kind, True)
    assert scene.forwarder.fault_reports[0].as_planned


def test_a_reset_at_the_mark_lets_nothing_behind_it_through() -> None:
    work, heard = talking(UPLOAD)
    scene = run(work, fault(FaultKind.RST_CONNECT))
    assert heard == [None]
    assert all(not data.startswith(UPLOAD) for data in scene.received)
    assert scene.records[0].delivery is Delivery.NOT_SENT


def test_only_the_named_connection_is_hit() -> None:
    work, heard = talking(UPLOAD, times=3)
    scene = run(work, fault(FaultKind.DROP_REPLY, nth=2))
    assert heard == [b"ok", b"", b"ok"]
    assert scene.forwarder.fault_reports[0].as_planned


def test_a_cut_behind_the_end_of_the_upload_has_not_fired() -> None:
    work, heard = talking(UPLOAD)
    scene = run(work, fault(FaultKind.DROP_MID_REQUEST, 1000))
    assert heard == [b"ok"]
    assert not scene.forwarder.fault_reports[0].as_planned


def test_what_a_client_has_sent_goes_on_when_it_has_left() -> None:
    async def leave(scene: Scene) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", scene.forwarder.port)
        writer.write(UPLOAD)
        await writer.drain()
        writer.close()

    scene = run(leave, fault(FaultKind.DELAY, 600_000))  # until the wire is drained
    assert scene.received == [UPLOAD]
    assert scene.records[0].delivery is Delivery.COMPLETE


def test_where_bytes_alone_are_known_no_end_is_claimed() -> None:
    work, _ = talking(UPLOAD)
    (record,) = run(work).records
    assert (record.request_complete, record.reply_complete, record.client_gone) == (None, None, None)


def test_an_upload_that_the_server_ends_is_delivered_in_part() -> None:
    async def all_of_it() -> RequestRecord:
        ending = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(MARK.encode())
            await ending.wait()
            writer.transport.abort()

        # A piece more than the sender's buffers hold, and the kernel's with them: the rest waits at the forwarder.
        async with forwarding(serve) as (forwarder, records):
            _, writer = await asyncio.open_connection("127.0.0.1", forwarder.port)
            writer.write(MARK.encode() + bytes(32 << 20))
            while forwarder.counts.client_to_proxy - forwarder.counts.proxy_to_server < 1 << 20:
                await asyncio.sleep(0)
            ending.set()
            assert await forwarder.drain(30)
            writer.transport.abort()
        (record,) = records
        return record

    assert asyncio.run(all_of_it()).delivery is Delivery.PARTIAL


def test_a_server_that_is_still_at_work_is_in_flight_however_long_it_takes() -> None:
    async def all_of_it() -> None:
        asked, done = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            asked.set()
            await done.wait()
            writer.close()

        async with forwarding(serve) as (forwarder, records):
            _, writer = await asyncio.open_connection("127.0.0.1", forwarder.port)
            writer.write(UPLOAD)
            writer.close()
            await asked.wait()
            loop = asyncio.get_running_loop()
            assert isinstance(loop, HurriedLoop)
            loop.ahead_s += 3600
            assert not await forwarder.drain(0.2)
            assert not records
            done.set()
            assert await forwarder.drain(30)
            assert [record.delivery for record in records] == [Delivery.COMPLETE]

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(all_of_it())


def test_a_server_that_is_not_there_resets_the_client() -> None:
    async def all_of_it() -> bytes | None:
        forwarder = StreamForwarder(
            upstream=Address(host="127.0.0.1", port=1), watch=MARK, faults=(), on_record=lambda _: None
        )
        await forwarder.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", forwarder.port)
        try:
            return await reader.read()
        except OSError:  # that of a shutdown after a reset (ENOTCONN) is no ConnectionError
            return None
        finally:
            writer.close()
            await forwarder.stop(1)

    assert asyncio.run(all_of_it()) is None
