"""The client: connections kept and given up, replies whole and broken, and servers that prove who they are."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairtrial.errors import UsageError
from fairtrial.wire.upstream import Upstream, UpstreamBrokenError, parse_origin

HEAD = b"POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class Server:
    """A server that says the same to every request.

    Attributes:
        answer: What it says.
        then_leave: It ends the connection after that.
        heard: The requests.
    """

    answer: bytes
    then_leave: bool = False
    port: int = 0
    heard: list[bytes] = field(default_factory=list)
    n_connections: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None] | None] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        self.tasks.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heard.append(head + await reader.readexactly(2))
                writer.write(self.answer)
                await writer.drain()
                if self.then_leave:
                    break
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
        self.left.set()


@asynccontextmanager
async def running(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        listener.close()
        async with asyncio.timeout(10):
            for task in server.tasks:
                assert task is not None
                await task


async def ask(upstream: Upstream, *, body: bytes | None = None) -> tuple[int, bytes, bool]:
    async def pieces(data: bytes) -> AsyncIterator[bytes]:
        yield data

    head, rest = (HEAD + b"hi", None) if body is None else (HEAD, pieces(body))
    async with upstream.ask(head, rest, method="POST") as reply:
        return reply.head.status, b"".join([piece async for piece in reply]), reply.reused


def run(server: Server, work: Callable[[Upstream], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running(server):
            upstream = Upstream(parse_origin(f"http://127.0.0.1:{server.port}"))
            await work(upstream)
            upstream.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "authority", "prefix"),
    [
        ("https://api.example.org", "api.example.org", 443, True, "api.example.org", ""),
        ("http://api.example.org/v1/", "api.example.org", 80, False, "api.example.org", "/v1"),
        ("https://[::1]:8443/a/b", "::1", 8443, True, "[::1]:8443", "/a/b"),
        ("unix:/run/model.sock", "/run/model.sock", None, False, "localhost", ""),
    ],
)
def test_an_origin_is_read(url: str, host: str, port: int | None, tls: bool, authority: str, prefix: str) -> None:
    origin = parse_origin(url)
    assert (origin.address.host, origin.address.port) == (host, port)
    assert (origin.tls, origin.authority, origin.prefix) == (tls, authority, prefix)


@pytest.mark.parametrize(
    "url", ["ftp://x", "https://", "https://x#y", "https://x\ny", "http://x:99999", "http://[::1", "unix:run"]
)
def test_what_is_no_origin_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="upstream"):
        parse_origin(url)


@pytest.mark.parametrize(
    "url", ["https://u:s3cret@x", "https://u:s3cret/@x", "http://x?key=s3cret", "http://[u:s3cret@x"]
)
def test_what_may_be_a_secret_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="upstream") as refused:
        parse_origin(url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("body", [None, b"hi"])
def test_a_connection_serves_again_once_its_reply_was_read_to_the_end(body: bytes | None) -> None:
    server = Server(OK)

    async def work(upstream: Upstream) -> None:
        assert await ask(upstream, body=body) == (200, b"ok", False)
        assert await ask(upstream, body=body) == (200, b"ok", True)
        assert upstream.n_connects == server.n_connections == 1
        assert server.heard == [HEAD + b"hi"] * 2

    run(server, work)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nok",
    ],
)
def test_a_connection_that_ends_with_its_reply_is_not_kept(answer: bytes) -> None:
    async def work(upstream: Upstream) -> None:
        for _ in range(2):
            assert await ask(upstream) == (200, b"ok", False)
        assert upstream.n_connects == 2

    run(Server(answer, then_leave=True), work)


def test_a_kept_connection_that_the_server_has_closed_is_never_used() -> None:
    server = Server(OK, then_leave=True)

    async def work(upstream: Upstream) -> None:
        assert await ask(upstream) == (200, b"ok", False)
        async with asyncio.timeout(10):
            await server.left.wait()
            while not upstream._kept[0].peer.count_noticed() > upstream._kept[0].n_noticed:
                await asyncio.sleep(0)
        assert await ask(upstream) == (200, b"ok", False)
        assert len(server.heard) == 2  # nothing was sent twice

    run(server, work)


def test_interim_replies_are_passed_over_and_chunks_are_read() -> None:
    chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"

    async def work(upstream: Upstream) -> None:
        assert await ask(upstream) == (200, b"ok", False)
        assert await ask(upstream) == (200, b"ok", True)

    run(Server(b"HTTP/1.1 100 Continue\r\n\r\n" + chunks), work)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "closed without a reply"),
        (b"HTTP/1.1 200 OK\r\n", "inside a head"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "malformed status line"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok", "1 bytes before the body's end"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok", "inside a chunked body"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nokay\r\n", "no line end"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nmore", "after the end"),
    ],
)
def test_a_reply_that_is_not_whole_is_a_broken_server_and_its_connection_is_given_up(answer: bytes, said: str) -> None:
    async def work(upstream: Upstream) -> None:
        with pytest.raises(UpstreamBrokenError, match=said):
            await ask(upstream)
        assert upstream._kept == []

    run(Server(answer, then_leave=True), work)


def test_leaving_before_the_end_of_a_reply_ends_its_connection() -> None:
    server = Server(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbeginning")

    async def work(upstream: Upstream) -> None:
        async with upstream.ask(HEAD + b"hi", None, method="POST") as reply:
            assert await anext(reply) == b"beginning"
        async with asyncio.timeout(10):
            await server.left.wait()
        assert upstream._kept == []

    run(server, work)


def test_a_body_that_fails_breaks_the_request_off() -> None:
    server = Server(OK)

    async def failing() -> AsyncIterator[bytes]:
        yield b"h"
        raise UpstreamBrokenError("planned")

    async def work(upstream: Upstream) -> None:
        with pytest.raises(UpstreamBrokenError):
            async with upstream.ask(HEAD, failing(), method="POST"):
                pass
        async with asyncio.timeout(10):
            await server.left.wait()
        assert server.heard == []

    run(server, work)


def test_a_server_that_is_not_there_is_broken() -> None:
    async def main() -> None:
        async with running(server := Server(OK)):
            port = server.port
        with pytest.raises(UpstreamBrokenError, match="cannot be reached"):
            await ask(Upstream(parse_origin(f"http://127.0.0.1:{port}")))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("host", "is_trusted", "said"),
    [
        ("localhost", True, None),
        ("localhost", False, "certificate verify failed"),
        ("127.0.0.1", True, "certificate verify failed: IP address mismatch"),
    ],
)
def test_a_server_must_prove_to_be_the_one_that_was_named(
    clone: Path, host: str, is_trusted: bool, said: str | None
) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(clone / "tests" / "tls" / "server.pem")
    large = b"x" * 3_000_000
    server = Server(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(large), large))

    async def main() -> None:
        # A client that hangs up while it greets is none of the server's failures.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with running(server, own):
            ca_file = str(clone / "tests" / "tls" / "ca.pem") if is_trusted else None
            upstream = Upstream(parse_origin(f"https://{host}:{server.port}"), ca_file=ca_file)
            if said is None:
                assert await ask(upstream) == (200, large, False)
                assert await ask(upstream) == (200, large, True)
            else:
                with pytest.raises(UpstreamBrokenError, match=said):
                    await ask(upstream)
                assert server.heard == []  # and so no key
            upstream.close()

    asyncio.run(main())
