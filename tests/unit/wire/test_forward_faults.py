"""Every kind of fault: what the client sees, what the server gets, what the ledger says."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from fairtrial.wire.faults import Fault, FaultKind
from fairtrial.wire.ledger import Delivery

Staging = Callable[..., AbstractAsyncContextManager[Any]]
BODY = b"x" * 300
POST = b"POST /push HTTP/1.1\r\nHost: x\r\nContent-Length: 300\r\n\r\n" + BODY
GET = b"GET /refs HTTP/1.1\r\nHost: x\r\n\r\n"
LAST_GET = b"GET /refs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 65\r\n\r\n"
OK = HEAD + b"r" * 65


def fault(kind: FaultKind, parameter: int | None = None, *, match: str = "POST /push", nth: int = 1) -> Fault:
    return Fault(match=match, nth=nth, kind=kind, parameter=parameter)


class Server:
    """Keeps every request that it has read whole, and every end it has seen before one was."""

    def __init__(self) -> None:
        self.whole: list[bytes] = []
        self.broken: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return
            try:
                body = await reader.readexactly(300 if head.startswith(b"POST") else 0)
            except asyncio.IncompleteReadError as error:
                self.broken.append(head + error.partial)
                return
            self.whole.append(head + body)
            writer.write(OK)


async def receive(reader: asyncio.StreamReader) -> tuple[bytes, type[Exception] | None]:
    data = b""
    try:
        while more := await reader.read(65536):
            data += more
    except ConnectionError as error:
        return data, type(error)
    return data, None


def test_without_a_plan_nothing_is_hit(staged: Staging) -> None:
    async def main() -> None:
        async with staged(Server()) as stage:
            assert await stage.talk(POST + LAST_GET) == OK * 2
            assert [record.fault for record in stage.records] == [None, None]
            assert stage.forwarder.fault_reports == ()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "ending"), [(FaultKind.DROP_REPLY, None), (FaultKind.RST_REPLY, ConnectionResetError)]
)
def test_a_dropped_reply_is_swallowed_after_the_server_has_finished(
    staged: Staging, kind: FaultKind, ending: type[Exception] | None
) -> None:
    async def main() -> None:
        server = Server()
        async with staged(server, faults=[fault(kind)]) as stage:
            reader, writer = await stage.connect()
            writer.write(GET)
            assert await reader.readexactly(len(OK)) == OK
            writer.write(POST)
            assert await receive(reader) == (b"", ending)
            writer.close()
            assert server.whole == [GET, POST]
            _, record = stage.records
            (report,) = stage.forwarder.fault_reports
            counts = stage.forwarder.counts
        assert (record.fault, record.fault_fired, record.error) == (kind, True, None)
        assert (record.status, record.reply_body_bytes, record.reply_complete) == (200, 65, True)
        assert (record.client_status, record.delivery) == (None, Delivery.COMPLETE)
        assert (report.n_matched, report.n_fired, report.as_planned) == (1, 1, True)
        assert counts.server_to_proxy - counts.proxy_to_client == len(OK)

    asyncio.run(main())


def test_a_request_dropped_before_forwarding_never_reaches_the_server(staged: Staging) -> None:
    async def main() -> None:
        server = Server()
        async with staged(server, faults=[fault(FaultKind.DROP_BEFORE_FORWARD)]) as stage:
            assert await stage.talk(POST) == b""
            assert server.whole == server.broken == []
            (record,) = stage.records
            assert stage.forwarder.counts.proxy_to_server == 0
            assert await stage.talk(POST + LAST_GET) == OK * 2
        assert (record.request_complete, record.request_body_bytes, record.delivery) == (True, 300, Delivery.NOT_SENT)
        assert record.fault_fired

    asyncio.run(main())


@pytest.mark.parametrize("n_bytes", [0, 1, 200, 299])
def test_a_request_cut_in_the_middle_reaches_the_server_up_to_the_cut(staged: Staging, n_bytes: int) -> None:
    async def main() -> None:
        server = Server()
        async with staged(server, faults=[fault(FaultKind.DROP_MID_REQUEST, n_bytes)]) as stage:
            reader, writer = await stage.connect()
            writer.write(POST)
            data, _ = await receive(reader)
            writer.close()
            assert data == b""
            await stage.forwarder.drain(5)
            (record,) = stage.records
            (report,) = stage.forwarder.fault_reports
        assert server.whole == []
        assert server.broken == [POST[: len(POST) - 300 + n_bytes]]
        assert (record.delivery, record.error, record.fault_fired) == (Delivery.PARTIAL, None, True)
        assert report.as_planned

    asyncio.run(main())


def test_a_request_shorter_than_the_cut_passes_and_the_plan_has_failed(staged: Staging) -> None:
    async def main() -> None:
        async with staged(Server(), faults=[fault(FaultKind.DROP_MID_REQUEST, 300)]) as stage:
            assert await stage.talk(POST + LAST_GET) == OK * 2
            record, _ = stage.records
            (report,) = stage.forwarder.fault_reports
        assert (record.fault, record.fault_fired) == (FaultKind.DROP_MID_REQUEST, False)
        assert (report.n_matched, report.n_fired, report.as_planned) == (1, 0, False)

    asyncio.run(main())


@pytest.mark.parametrize("n_bytes", [0, 10, 64])
def test_a_truncated_reply_ends_after_so_many_bytes(staged: Staging, n_bytes: int) -> None:
    async def main() -> None:
        async with staged(Server(), faults=[fault(FaultKind.TRUNCATE_REPLY, n_bytes)]) as stage:
            assert await stage.talk(POST) == HEAD + b"r" * n_bytes
            await stage.forwarder.drain(5)
            (record,) = stage.records
        assert (record.reply_body_bytes, record.reply_complete) == (65, True)
        assert (record.fault_fired, record.client_status, record.client_gone) == (True, 200, False)

    asyncio.run(main())


def test_a_reply_that_is_not_longer_than_the_cut_passes_and_the_plan_has_failed(staged: Staging) -> None:
    async def main() -> None:
        async with staged(Server(), faults=[fault(FaultKind.TRUNCATE_REPLY, 65)]) as stage:
            assert await stage.talk(POST + LAST_GET) == OK * 2
            (report,) = stage.forwarder.fault_reports
        assert not report.as_planned

    asyncio.run(main())


def test_a_truncated_chunked_reply_keeps_its_framing(staged: Staging) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"4\r\nabcd\r\n4\r\nefgh\r\n0\r\n\r\n")
        await reader.read()

    async def main() -> None:
        cut = fault(FaultKind.TRUNCATE_REPLY, 6, match="GET")
        async with staged(chunks, faults=[cut]) as stage:
            assert await stage.talk(GET) == head + b"4\r\nabcd\r\n4\r\nef"

    asyncio.run(main())


def test_a_garbled_chunked_reply_keeps_its_framing_and_its_length(staged: Staging) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"8\r\nabcdefgh\r\n8\r\nijklmnop\r\n0\r\n\r\n")
        await reader.read()

    async def main() -> None:
        async with staged(chunks, faults=[fault(FaultKind.GARBLE_REPLY, 4, match="GET")]) as stage:
            garbled = head + b"8\r\nabcd\xff{ga\r\n8\r\nrblednop\r\n0\r\n\r\n"
            assert await stage.talk(LAST_GET) == garbled
            await stage.forwarder.drain(5)
            (report,) = stage.forwarder.fault_reports
        assert report.as_planned

    asyncio.run(main())


def test_a_planned_status_is_answered_instead_of_forwarding_and_the_connection_lives_on(staged: Staging) -> None:
    async def main() -> None:
        server = Server()
        rule = Fault(match="POST", nth=1, kind=FaultKind.STATUS, parameter=503, retry_after_s=7)
        async with staged(server, faults=[rule]) as stage:
            reply = await stage.talk(POST + LAST_GET)
            assert reply == (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 7\r\n\r\n" + OK)
            assert server.whole == [LAST_GET]
            record, _ = stage.records
        assert (record.status, record.client_status, record.fault_fired) == (None, 503, True)
        assert (record.request_complete, record.delivery) == (True, Delivery.NOT_SENT)

    asyncio.run(main())


@pytest.mark.parametrize("kind", [FaultKind.STATUS, FaultKind.DROP_BEFORE_FORWARD])
def test_a_client_that_waits_for_100_continue_is_let_on_where_the_proxy_reads_for_itself(
    staged: Staging, kind: FaultKind
) -> None:
    async def main() -> None:
        rule = fault(kind, 500 if kind is FaultKind.STATUS else None, match="PUT")
        async with staged(Server(), faults=[rule]) as stage:
            reader, writer = await stage.connect()
            writer.write(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"abc")
            writer.write_eof()
            await reader.read()
            writer.close()
            await stage.forwarder.drain(5)
            (record,) = stage.records
        assert (record.request_body_bytes, record.fault_fired) == (3, True)

    asyncio.run(main())


def test_a_reset_at_the_head_reaches_no_server(staged: Staging) -> None:
    async def main() -> None:
        server = Server()
        async with staged(server, faults=[fault(FaultKind.RST_CONNECT)]) as stage:
            reader, writer = await stage.connect()
            writer.write(POST)
            assert await receive(reader) == (b"", ConnectionResetError)
            writer.close()
            (record,) = stage.records
            assert stage.forwarder.counts.proxy_to_server == 0
        assert (record.fault_fired, record.delivery) == (True, Delivery.NOT_SENT)

    asyncio.run(main())


def test_a_delayed_request_is_forwarded_when_its_time_has_come(staged: Staging) -> None:
    async def main() -> None:
        server = Server()
        async with staged(server, faults=[fault(FaultKind.DELAY, 150)]) as stage:
            started_s = time.monotonic()
            assert await stage.talk(POST + LAST_GET) == OK * 2
            assert time.monotonic() - started_s >= 0.15
            record, _ = stage.records
        assert record.elapsed_ms >= 150
        assert record.fault_fired

    asyncio.run(main())


@pytest.mark.parametrize("leaving", ["close", "reset"])
def test_a_held_request_is_applied_when_it_is_let_go_although_its_client_is_dead(staged: Staging, leaving: str) -> None:
    async def main() -> None:
        server = Server()
        async with staged(server, faults=[fault(FaultKind.DELAY, 600_000)]) as stage:
            _, writer = await stage.connect()
            writer.write(POST)
            await writer.drain()
            while not stage.forwarder.fault_reports[0].n_matched:
                await asyncio.sleep(0)
            if leaving == "close":
                writer.close()
            else:
                writer.transport.abort()
            assert server.whole == []
            assert await stage.forwarder.drain(60)
            assert server.whole == [POST]
            (record,) = stage.records
        assert (record.delivery, record.reply_complete, record.fault_fired) == (Delivery.COMPLETE, True, True)

    asyncio.run(main())


def test_a_new_plan_holds_back_again_after_a_drain(staged: Staging) -> None:
    async def main() -> None:
        server = Server()
        async with staged(server, faults=()) as stage:
            assert await stage.forwarder.drain(60)
            stage.forwarder.set_faults([fault(FaultKind.DELAY, 600_000)])
            _, writer = await stage.connect()
            writer.write(POST)
            while not stage.forwarder.fault_reports[0].n_matched:
                await asyncio.sleep(0)
            assert stage.forwarder.n_in_flight == 1
            assert await stage.forwarder.drain(60)
            assert server.whole == [POST]
            writer.close()

    asyncio.run(main())


def test_a_held_request_whose_client_died_inside_it_is_never_completed(staged: Staging) -> None:
    async def main() -> None:
        server = Server()
        async with staged(server, faults=[fault(FaultKind.DELAY, 50)]) as stage:
            _, writer = await stage.connect()
            writer.write(POST[:-1])
            writer.close()
            await asyncio.sleep(0)
            await stage.forwarder.drain(5)
            (record,) = stage.records
            (report,) = stage.forwarder.fault_reports
        assert server.whole == []
        assert (record.client_gone, record.request_complete, record.request_body_bytes) == (True, False, 299)
        assert not report.as_planned

    asyncio.run(main())


def test_a_throttled_exchange_takes_its_time_both_ways(staged: Staging) -> None:
    async def main() -> None:
        async with staged(Server(), faults=[fault(FaultKind.THROTTLE, 2000)]) as stage:
            started_s = time.monotonic()
            assert await stage.talk(POST + LAST_GET) == OK * 2
            elapsed_s = time.monotonic() - started_s
            record, _ = stage.records
        assert elapsed_s >= (len(POST) + len(OK)) / 2000
        assert record.fault_fired

    asyncio.run(main())


@pytest.mark.parametrize(("parameter", "received"), [(None, b""), (0, HEAD), (10, HEAD + b"r" * 10)])
def test_a_stalled_reply_is_silent_and_open_until_the_client_leaves(
    staged: Staging, parameter: int | None, received: bytes
) -> None:
    async def main() -> None:
        server = Server()
        async with staged(server, faults=[fault(FaultKind.STALL, parameter)]) as stage:
            reader, writer = await stage.connect()
            writer.write(POST)
            assert await stage.forwarder.drain(5)
            assert server.whole == [POST]
            assert await reader.readexactly(len(received)) == received
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.1)
            assert stage.records == []
            (report,) = stage.forwarder.fault_reports
            assert report.as_planned
            writer.close()
            await stage.forwarder.drain(5)
            (record,) = stage.records
        assert (record.client_gone, record.reply_complete, record.fault_fired) == (True, True, True)

    asyncio.run(main())


def test_stopping_ends_a_stalled_client(staged: Staging) -> None:
    async def main() -> None:
        async with staged(Server(), faults=[fault(FaultKind.STALL)]) as stage:
            reader, writer = await stage.connect()
            writer.write(POST)
            assert await stage.forwarder.drain(5)
            await stage.forwarder.stop(5)
            assert (await receive(reader))[0] == b""
            writer.close()

    asyncio.run(main())


def test_only_the_planned_request_is_hit(staged: Staging) -> None:
    async def main() -> None:
        server = Server()
        async with staged(server, faults=[fault(FaultKind.DROP_REPLY, nth=2)]) as stage:
            assert await stage.talk(GET + POST + POST + POST) == OK * 2
            assert [record.fault for record in stage.records] == [None, None, FaultKind.DROP_REPLY]
            (report,) = stage.forwarder.fault_reports
        assert report.as_planned
        assert len(server.whole) == 3

    asyncio.run(main())


def test_a_fault_on_every_match_fires_every_time(staged: Staging) -> None:
    async def main() -> None:
        async with staged(Server(), faults=[fault(FaultKind.DROP_REPLY, nth=0)]) as stage:
            assert await stage.talk(POST) == await stage.talk(POST) == b""
            (report,) = stage.forwarder.fault_reports
        assert (report.n_matched, report.n_fired, report.as_planned) == (2, 2, True)

    asyncio.run(main())


def test_a_reply_that_never_came_was_not_dropped(staged: Staging) -> None:
    async def leaves(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async def main() -> None:
        async with staged(leaves, faults=[fault(FaultKind.DROP_REPLY)]) as stage:
            await stage.talk(POST)
            (report,) = stage.forwarder.fault_reports
            (record,) = stage.records
        assert not report.as_planned
        assert record.error is not None

    asyncio.run(main())


def test_a_new_plan_starts_from_zero(staged: Staging) -> None:
    async def main() -> None:
        async with staged(Server(), faults=[fault(FaultKind.DROP_REPLY)]) as stage:
            assert await stage.talk(POST) == b""
            stage.forwarder.set_faults([fault(FaultKind.DROP_REPLY)])
            (report,) = stage.forwarder.fault_reports
            assert report.n_matched == 0
            assert await stage.talk(POST) == b""
            (report,) = stage.forwarder.fault_reports
            assert report.as_planned

    asyncio.run(main())
