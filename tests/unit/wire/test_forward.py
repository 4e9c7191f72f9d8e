"""The forwarder without faults: what passes, what is counted, what is refused."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from fairtrial.wire.ledger import ConnectionReuse, Delivery
from fairtrial.wire.peer import parse_address

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Staging = Callable[..., AbstractAsyncContextManager[Any]]
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
LAST_GET = b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request head with five bytes; knows nothing of bodies."""
    with suppress(asyncio.IncompleteReadError):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
    writer.close()


def answering(reply: bytes, *, n_body_bytes: int = 0, seen: list[bytes] | None = None) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(n_body_bytes)
            if seen is not None:
                seen.append(head + body)
            writer.write(reply)
            await writer.drain()
            if b"Content-Length" not in reply and b"chunked" not in reply:
                return

    return handler


def test_a_request_and_its_reply_pass_byte_for_byte(staged: Staging) -> None:
    seen: list[bytes] = []

    async def main() -> None:
        async with staged(answering(OK, seen=seen)) as stage:
            assert await stage.talk(LAST_GET) == OK
            (record,) = stage.records
            counts = stage.forwarder.counts
        assert seen == [LAST_GET]
        assert (record.method, record.target, record.status, record.client_status) == ("GET", "/a", 200, 200)
        assert (record.request_head_bytes, record.request_body_bytes, record.request_complete) == (
            len(LAST_GET),
            0,
            True,
        )
        assert (record.reply_head_bytes, record.reply_body_bytes, record.reply_complete) == (len(OK) - 5, 5, True)
        assert record.delivery is Delivery.COMPLETE
        assert (record.fault, record.error, record.client_gone) == (None, None, False)
        assert counts.client_to_proxy == counts.proxy_to_server == len(LAST_GET)
        assert counts.server_to_proxy == counts.proxy_to_client == len(OK)

    asyncio.run(main())


def test_a_server_behind_a_unix_socket_is_served_too(staged: Staging, tmp_path: Path) -> None:
    async def main() -> None:
        async with staged(hello) as stage, await asyncio.start_unix_server(hello, tmp_path / "s"):
            stage.forwarder._upstream = parse_address(f"unix:{tmp_path}/s")
            assert await stage.talk(GET + LAST_GET) == OK * 2

    asyncio.run(main())


def test_requests_of_one_connection_share_one_upstream_connection(staged: Staging) -> None:
    n_upstream = 0

    async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal n_upstream
        n_upstream += 1
        await hello(reader, writer)

    async def main() -> None:
        async with staged(counting) as stage:
            assert await stage.talk(GET + GET + LAST_GET) == OK * 3
            await stage.talk(LAST_GET)
            assert [record.connection for record in stage.records] == [1, 1, 1, 2]
            assert stage.forwarder.n_connections == 2
        assert n_upstream == 2

    asyncio.run(main())


def test_chunks_pass_both_ways_and_their_payload_is_counted(staged: Staging) -> None:
    request = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    body = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    reply_head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    reply_body = b"4\r\nwxyz\r\n0\r\nX-Sum: 1\r\n\r\n"
    seen: list[bytes] = []

    async def main() -> None:
        handler = answering(reply_head + reply_body, n_body_bytes=len(body), seen=seen)
        async with staged(handler) as stage:
            assert await stage.talk(request + body) == reply_head + reply_body
            (record,) = stage.records
        assert seen == [request + body]
        assert (record.request_declared_bytes, record.request_body_bytes) == (None, 5)
        assert record.request_wire_bytes == len(request + body)
        assert (record.reply_body_bytes, record.reply_wire_bytes) == (4, len(reply_head + reply_body))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_line", "reply"),
    [
        (b"HEAD /a HTTP/1.1", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        (b"GET /a HTTP/1.1", b"HTTP/1.1 204 No Content\r\nX-Content-Length: 0\r\n\r\n"),
        (b"GET /a HTTP/1.1", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
    ],
)
def test_replies_without_a_body_leave_the_connection_in_step(
    staged: Staging, request_line: bytes, reply: bytes
) -> None:
    request = request_line + b"\r\nHost: x\r\n\r\n"

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)

    async def main() -> None:
        async with staged(twice) as stage:
            assert await stage.talk(request + request) == reply * 2
            assert [record.reply_body_bytes for record in stage.records] == [0, 0]

    asyncio.run(main())


def test_a_reply_that_ends_with_the_connection_ends_it_for_the_client_too(staged: Staging) -> None:
    reply = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000

    async def main() -> None:
        async with staged(answering(reply)) as stage:
            assert await stage.talk(GET) == reply
            (record,) = stage.records
        assert (record.reply_body_bytes, record.reply_complete) == (100_000, True)

    asyncio.run(main())


def test_a_client_that_waits_for_100_continue_gets_it(staged: Staging) -> None:
    head = b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"

    async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(interim)
        assert await reader.readexactly(3) == b"abc"
        writer.write(OK)

    async def main() -> None:
        async with staged(patient) as stage:
            reader, writer = await stage.connect()
            writer.write(head)
            assert await reader.readuntil(b"\r\n\r\n") == interim
            writer.write(b"abc")
            assert await reader.readexactly(len(OK)) == OK
            writer.close()
            assert await stage.forwarder.drain(5)
            (record,) = stage.records
        assert record.status == 200
        assert record.reply_head_bytes == len(interim) + len(OK) - 5

    asyncio.run(main())


@pytest.mark.parametrize(
    "raw",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
        b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000 + b"\r\n\r\n",
    ],
)
def test_bad_framing_is_refused_recorded_and_never_forwarded(staged: Staging, raw: bytes) -> None:
    async def main() -> None:
        async with staged(hello) as stage:
            reply = await stage.talk(raw)
            assert reply.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert b"Connection: close" in reply
            await stage.forwarder.drain(5)
            (record,) = stage.records
            assert stage.forwarder.counts.proxy_to_server == 0
        assert record.error is not None
        assert record.error.startswith("bad request: ")
        assert (record.client_status, record.status, record.delivery) == (400, None, Delivery.NOT_SENT)

    asyncio.run(main())


def test_a_request_smuggled_behind_a_refused_one_is_not_served(staged: Staging) -> None:
    async def main() -> None:
        async with staged(hello) as stage:
            reply = await stage.talk(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0,0\r\n\r\n" + GET)
            assert reply.count(b"HTTP/1.1") == 1
            assert len(stage.records) == 1

    asyncio.run(main())


def test_broken_chunks_inside_a_body_are_refused_and_the_server_never_sees_an_end(staged: Staging) -> None:
    async def main() -> None:
        ended = asyncio.Event()

        async def waits(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            assert not (await reader.read()).endswith(b"0\r\n\r\n")
            ended.set()

        async with staged(waits) as stage:
            reply = await stage.talk(
                b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nno\r\n"
            )
            assert reply.startswith(b"HTTP/1.1 400 ")
            await asyncio.wait_for(ended.wait(), 5)
            await stage.forwarder.drain(5)
            (record,) = stage.records
        assert record.error is not None
        assert "malformed chunk size" in record.error
        assert (record.request_complete, record.delivery, record.client_status) == (False, Delivery.PARTIAL, 400)

    asyncio.run(main())


@pytest.mark.parametrize(
    "reply",
    [b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\n\n"],
)
def test_a_reply_that_cannot_be_framed_becomes_502(staged: Staging, reply: bytes) -> None:
    async def main() -> None:
        async with staged(answering(reply)) as stage:
            assert (await stage.talk(GET)).startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
            (record,) = stage.records
        assert record.error is not None
        assert record.error.startswith("bad reply: ")
        assert (record.status, record.client_status, record.reply_complete) == (None, 502, False)

    asyncio.run(main())


def test_a_server_that_is_not_there_becomes_502_after_the_whole_request(staged: Staging) -> None:
    async def main() -> None:
        async with staged(hello) as stage:
            with socket.create_server(("127.0.0.1", 0)) as closed:
                port = closed.getsockname()[1]
            stage.forwarder._upstream = parse_address(f"127.0.0.1:{port}")
            reply = await stage.talk(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
            assert reply.startswith(b"HTTP/1.1 502 ")
            (record,) = stage.records
        assert record.error is not None
        assert record.error.startswith("the server cannot be reached")
        assert (record.request_complete, record.delivery) == (True, Delivery.NOT_SENT)

    asyncio.run(main())


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 200 OK\r\nContent-", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"]
)
def test_a_server_that_leaves_early_leaves_the_client_early_too(staged: Staging, reply: bytes) -> None:
    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)

    async def main() -> None:
        async with staged(leaves) as stage:
            received = await stage.talk(GET)
            assert received == (reply if b"\r\n\r\n" in reply else b"")
            (record,) = stage.records
        assert record.error is not None
        assert record.error.startswith("the server left inside its reply")
        assert (record.reply_complete, record.delivery) == (False, Delivery.COMPLETE)

    asyncio.run(main())


def test_a_server_that_closes_an_idle_connection_closes_the_clients(staged: Staging) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)

    async def main() -> None:
        async with staged(once) as stage:
            assert await stage.talk(GET) == OK

    asyncio.run(main())


def test_a_server_that_answers_early_is_heard_and_the_rest_of_the_request_is_not_waited_for(staged: Staging) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(refusal)

    async def main() -> None:
        async with staged(refuses) as stage:
            reader, writer = await stage.connect()
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc")
            assert await reader.read() == refusal
            writer.close()
            await stage.forwarder.drain(5)
            (record,) = stage.records
        assert (record.status, record.request_complete, record.reply_complete) == (413, False, True)

    asyncio.run(main())


def test_fresh_connections_are_forced_after_a_get_and_only_then(staged: Staging) -> None:
    async def main() -> None:
        async with staged(hello, reuse=ConnectionReuse.FRESH) as stage:
            reader, writer = await stage.connect()
            writer.write(b"DELETE /a HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await reader.readexactly(len(OK)) == OK
            writer.write(GET)
            assert await reader.read() == OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
            writer.close()
            counts = stage.forwarder.counts
        assert counts.proxy_to_client - counts.server_to_proxy == len(b"Connection: close\r\n")

    asyncio.run(main())


def test_a_client_that_leaves_inside_its_request_takes_the_upstream_connection_along(staged: Staging) -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def waits(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await reader.read()
            gone.set()

        async with staged(waits) as stage:
            _, writer = await stage.connect()
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
            writer.close()
            await asyncio.wait_for(gone.wait(), 5)
            await stage.forwarder.drain(5)
            (record,) = stage.records
        assert record.client_gone
        assert (record.request_complete, record.request_body_bytes) == (False, 3)
        assert record.delivery is Delivery.PARTIAL

    asyncio.run(main())


def test_a_client_that_leaves_inside_a_head_is_recorded(staged: Staging) -> None:
    async def main() -> None:
        async with staged(hello) as stage:
            reader, writer = await stage.connect()
            writer.write(b"GET / HTTP")
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            (record,) = stage.records
        assert record.client_gone
        assert record.error is not None
        assert "inside a head" in record.error

    asyncio.run(main())


def test_a_reply_is_read_to_its_end_when_the_client_is_gone(staged: Staging) -> None:
    size = 8_000_000

    async def main() -> None:
        async def sends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
            for _ in range(size // 1000):
                writer.write(b"x" * 1000)
                await writer.drain()
            await reader.read()

        async with staged(sends) as stage:
            reader, writer = await stage.connect()
            writer.write(GET)
            await reader.readexactly(1000)
            writer.transport.abort()
            assert await stage.forwarder.drain(10)
            (record,) = stage.records
        assert (record.reply_body_bytes, record.reply_complete, record.client_gone) == (size, True, True)

    asyncio.run(main())


def test_a_receiver_that_does_not_read_stops_the_sender(staged: Staging) -> None:
    """Back-pressure: most of 64 MB offered to a client that takes nothing stay with the server."""

    async def main() -> None:
        sent = 0
        begun, finished = asyncio.Event(), asyncio.Event()

        async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 64000000\r\n\r\n")
            for _ in range(640):
                writer.write(b"x" * 100_000)
                await writer.drain()
                sent += 100_000
                begun.set()
            finished.set()

        async with staged(floods) as stage:
            reader, writer = await stage.connect()
            writer.transport.pause_reading()
            writer.write(GET)
            await begun.wait()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(finished.wait(), 1)
            assert sent < 32_000_000
            assert stage.forwarder.n_in_flight == 1
            writer.transport.resume_reading()
            await reader.readexactly(64_000_000)
            writer.close()
            await finished.wait()

    asyncio.run(main())


def test_a_drained_forwarder_has_seen_what_a_dead_client_left_in_the_kernel(staged: Staging) -> None:
    async def main() -> None:
        async with staged(answering(OK, n_body_bytes=3)) as stage:
            client = socket.create_connection(("127.0.0.1", stage.forwarder.port))
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
            client.close()
            assert not stage.records
            assert await stage.forwarder.drain(5)
            (record,) = stage.records
        assert (record.request_complete, record.status) == (True, 200)

    asyncio.run(main())


def test_draining_gives_up_in_time_and_stopping_ends_what_is_left(staged: Staging) -> None:
    async def main() -> None:
        async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with staged(silent) as stage:
            reader, writer = await stage.connect()
            writer.write(GET)
            writer.write_eof()
            assert not await stage.forwarder.drain(0.05)
            assert stage.forwarder.n_in_flight == 1
            await stage.forwarder.stop(0.05)
            assert stage.forwarder.n_in_flight == 0
            assert await reader.read() == b""
            writer.close()
            (record,) = stage.records
        assert record.error == "the forwarder was stopped"

    asyncio.run(main())


def test_many_connections_at_once_are_all_counted(staged: Staging) -> None:
    async def main() -> None:
        async with staged(hello) as stage:
            replies = await asyncio.gather(*(stage.talk(GET * 5 + LAST_GET) for _ in range(50)))
            assert replies == [OK * 6] * 50
            assert len(stage.records) == 300
            counts = stage.forwarder.counts
        assert counts.client_to_proxy == sum(record.request_wire_bytes for record in stage.records)
        assert counts.server_to_proxy == sum(record.reply_wire_bytes for record in stage.records)

    asyncio.run(main())
