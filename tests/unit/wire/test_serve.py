"""The server: framing, keep-alive, clients that leave, and handlers that do not do their part."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairtrial.wire.serve import ClientGoneError, HttpServer, Incoming

GET = b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello"
CLOSE = b"GET /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"

Work = Callable[[Incoming], Awaitable[None]]


@dataclass
class Handling:
    """A handler that does one thing after the other."""

    works: list[Work]
    problems: list[str] = field(default_factory=list)

    async def on_request(self, incoming: Incoming) -> None:
        await self.works.pop(0)(incoming)

    def on_bad_request(self, problem: str) -> None:
        self.problems.append(problem)


@dataclass
class Scene:
    path: Path
    handler: Handling
    failures: list[dict[str, object]]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self.path))

    async def talk(self, data: bytes) -> bytes:
        """Send, and read to the end of the connection."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            async with asyncio.timeout(20):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def serving(directory: Path, works: Sequence[Work], *, max_connections: int = 8) -> AsyncIterator[Scene]:
    handler = Handling(list(works))
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    server = HttpServer(handler, max_connections=max_connections)
    path = directory / "s"
    await server.listen(path)
    try:
        yield Scene(path, handler, failures)
    finally:
        await server.stop()


def talk(directory: Path, data: bytes, *works: Work) -> tuple[bytes, Scene]:
    async def main() -> tuple[bytes, Scene]:
        async with serving(directory, works) as scene:
            return await scene.talk(data), scene

    got, scene = asyncio.run(main())
    assert not scene.failures
    return got, scene


async def say_hello(incoming: Incoming) -> None:
    await incoming.reply(200, (("x-a", "b"),), b"hello")


async def echo(incoming: Incoming) -> None:
    body = b"".join([piece async for piece in incoming.body()])
    await incoming.reply(200, (), body)


async def stream(incoming: Incoming) -> None:
    await incoming.begin(200, (), n_bytes=None)
    for part in (b"one", b"", b"two"):
        await incoming.send(part)
    await incoming.end()


def test_one_connection_serves_requests_until_it_is_told_to_end(tmp_path: Path) -> None:
    got, _ = talk(tmp_path, GET + POST + CLOSE, say_hello, echo, say_hello)
    assert got.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert got.count(b"\r\n\r\nhello") == 3
    assert got.count(b"connection: close") == 1


def test_a_stream_is_chunked_and_an_empty_part_does_not_end_it(tmp_path: Path) -> None:
    got, _ = talk(tmp_path, CLOSE, stream)
    assert got.endswith(b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


def test_a_client_of_http_1_0_gets_no_chunks_and_the_end_of_the_connection(tmp_path: Path) -> None:
    got, _ = talk(tmp_path, b"GET /x HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", stream)
    assert got.endswith(b"connection: close\r\n\r\nonetwo")
    assert b"chunked" not in got


def test_a_reply_to_head_has_its_length_and_no_body(tmp_path: Path) -> None:
    got, _ = talk(tmp_path, GET.replace(b"GET", b"HEAD") + CLOSE, say_hello, say_hello)
    head, _, rest = got.partition(b"\r\n\r\n")
    assert b"content-length: 5" in head
    assert rest.startswith(b"HTTP/1.1 200 OK")


def test_the_head_of_a_reply_of_known_length_goes_with_its_body(tmp_path: Path) -> None:
    async def begin_and_send(incoming: Incoming) -> None:
        await incoming.begin(200, (), n_bytes=2)
        assert incoming.answered
        await incoming.send(b"ok")
        await incoming.end()
        assert incoming.n_reply_bytes == 2

    async def nothing(incoming: Incoming) -> None:
        await incoming.begin(200, (), n_bytes=0)
        await incoming.end()

    got, _ = talk(tmp_path, GET + CLOSE, begin_and_send, nothing)
    assert b"content-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 0\r\n" in got


def test_a_client_that_waits_is_told_to_go_on_only_when_its_body_is_wanted(tmp_path: Path) -> None:
    asking = POST.replace(b"host", b"expect: 100-continue\r\nhost")
    got, _ = talk(tmp_path, asking + CLOSE, echo, say_hello)
    assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    (tmp_path / "s").unlink(missing_ok=True)
    got, _ = talk(tmp_path, asking, say_hello)
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close" in got  # what stands where the body is could be anything


def test_a_handler_that_says_nothing_is_a_500(tmp_path: Path) -> None:
    async def say_nothing(_: Incoming) -> None:
        pass

    got, _ = talk(tmp_path, CLOSE, say_nothing)
    assert got.startswith(b"HTTP/1.1 500 ")


@pytest.mark.parametrize("end", ["break_off", "reset"])
def test_a_reply_that_is_broken_off_has_no_proper_end(tmp_path: Path, end: str) -> None:
    async def begin_only(incoming: Incoming) -> None:
        await incoming.begin(200, (), n_bytes=None)
        await incoming.send(b"one")
        getattr(incoming, end)()

    got, _ = talk(tmp_path, GET + GET, begin_only, say_hello)
    assert b"0\r\n\r\n" not in got
    assert b"hello" not in got


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"GET / HTTP/1.1\nhost: x\n\n", "bare LF"),
        (b"SSH-2.0-x\r\n\r\n", "malformed request line"),
        (b"GET / HTTP/1.1\r\n\r\n", "0 Host headers"),
        (POST.replace(b"content-length: 5", b"content-length: 5\r\ntransfer-encoding: chunked"), "both"),
    ],
)
def test_what_is_no_request_is_noted_and_answered_by_400(tmp_path: Path, data: bytes, problem: str) -> None:
    got, scene = talk(tmp_path, data, say_hello)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert b"hello" not in got
    assert problem in scene.handler.problems[0]


def test_a_body_with_broken_framing_is_noted_and_answered_by_400(tmp_path: Path) -> None:
    data = POST.replace(b"content-length: 5", b"transfer-encoding: chunked")
    got, scene = talk(tmp_path, data + b"\r\n\r\n", echo)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert "malformed chunk size" in scene.handler.problems[0]


def test_a_client_that_leaves_inside_a_head_or_between_requests_is_no_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, [say_hello]) as scene:
            for data in (b"", b"GET / HT", GET):
                reader, writer = await scene.connect()
                writer.write(data)
                writer.write_eof()
                async with asyncio.timeout(20):
                    got = await reader.read()
                assert got.startswith(b"HTTP/1.1 200 OK" if data == GET else b"")
                writer.close()
            assert scene.failures == []
            assert scene.handler.problems == []

    asyncio.run(main())


def test_work_for_a_client_that_leaves_is_broken_off(tmp_path: Path) -> None:
    outcome: list[str] = []
    begun, over = asyncio.Event(), asyncio.Event()

    async def work_on(incoming: Incoming) -> None:
        async def work() -> None:
            begun.set()
            try:
                await incoming.stay_silent()
            finally:
                outcome.append("cancelled")

        try:
            await incoming.while_present(work())
        except ClientGoneError:
            outcome.append("gone")
            over.set()
            raise

    async def main() -> None:
        async with serving(tmp_path, [work_on]) as scene:
            _, writer = await scene.connect()
            writer.write(GET)
            async with asyncio.timeout(20):
                await begun.wait()
                writer.close()
                await over.wait()
            assert scene.failures == []

    asyncio.run(main())
    assert outcome == ["cancelled", "gone"]


def test_work_ends_with_what_it_gives_while_the_client_is_there(tmp_path: Path) -> None:
    async def work_on(incoming: Incoming) -> None:
        async def work() -> bytes:
            await asyncio.sleep(0)
            return b"done"

        await incoming.reply(200, (), await incoming.while_present(work()))

    got, _ = talk(tmp_path, CLOSE, work_on)
    assert got.endswith(b"\r\n\r\ndone")


def test_a_client_that_does_not_read_holds_the_sender_until_it_leaves(tmp_path: Path) -> None:
    sent: list[int] = []
    over = asyncio.Event()

    async def flood(incoming: Incoming) -> None:
        await incoming.begin(200, (), n_bytes=None)
        try:
            while True:
                await incoming.send(b"x" * 65536)
                sent.append(65536)
        except ClientGoneError:
            over.set()
            raise

    async def main() -> None:
        async with serving(tmp_path, [flood]) as scene:
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(scene.path))
            client.sendall(GET)
            async with asyncio.timeout(20):
                before = -1
                while before != len(sent) or not sent:
                    before = len(sent)
                    await asyncio.sleep(0.05)
                assert sum(sent) < 4_000_000  # it waits: what is not read is not taken in
                client.close()
                await over.wait()
            assert scene.failures == []

    asyncio.run(main())


def test_a_bug_of_the_handler_ends_its_connection_is_reported_and_others_go_on(tmp_path: Path) -> None:
    async def fail(_: Incoming) -> None:
        raise LookupError("ours")

    async def main() -> None:
        async with serving(tmp_path, [fail, say_hello]) as scene:
            assert await scene.talk(GET) == b""
            assert (await scene.talk(CLOSE)).endswith(b"hello")
            (failure,) = scene.failures
            assert isinstance(failure["exception"], LookupError)

    asyncio.run(main())


def test_connections_beyond_the_limit_are_closed_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, [say_hello, say_hello], max_connections=1) as scene:
            reader, writer = await scene.connect()
            writer.write(GET)
            await reader.readuntil(b"hello")
            assert await scene.talk(b"") == b""
            writer.write(CLOSE)
            assert (await reader.read()).endswith(b"hello")
            writer.close()

    asyncio.run(main())


def test_stopping_ends_what_is_under_way(tmp_path: Path) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def hang(incoming: Incoming) -> None:
            begun.set()
            await incoming.stay_silent()

        async with serving(tmp_path, [hang]) as scene:
            reader, writer = await scene.connect()
            writer.write(GET)
            await begun.wait()
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await scene.connect()

    asyncio.run(main())
