"""The server that takes a publication and never answers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from fairtrial.wire import fixture
from fairtrial.wire.fixture import FixtureRequest, FixtureSettings, SilentServer, content_length

SETTINGS = FixtureSettings(create="/api/repos", publish="/api/oak/repo/push")
PUSH = "POST /api/oak/repo/push HTTP/1.1\r\n"


@asynccontextmanager
async def serving() -> AsyncIterator[SilentServer]:
    server = SilentServer(SETTINGS)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def say(server: SilentServer, text: str) -> bytes:
    """Send and read to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(text.encode())
    if text.startswith("GET") or "/api/repos" in text:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        answer = head + await reader.readexactly(length)
    else:
        answer = await reader.read()
    writer.close()
    return answer


def run(*texts: str) -> tuple[Sequence[bytes], SilentServer]:
    async def all_of_them() -> tuple[Sequence[bytes], SilentServer]:
        async with serving() as server:
            return [await say(server, text) for text in texts], server

    return asyncio.run(all_of_them())


def test_a_question_is_answered_404_and_a_new_repository_200_with_its_name() -> None:
    body = '{"name":"repo"}'
    create = f"POST /api/repos HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    (question, created), server = run("GET /api/oak/repo HTTP/1.1\r\n\r\n", create)
    assert question.startswith(b"HTTP/1.1 404")
    assert created.startswith(b"HTTP/1.1 200")
    assert created.endswith(b'{"name": "repo"}')
    assert (server.ledger.n_other, server.ledger.publications) == (2, ())
    asked = len("GET /api/oak/repo HTTP/1.1\r\n\r\n") + len(create)
    assert (server.ledger.received_bytes, server.ledger.sent_bytes) == (asked, len(question) + len(created))


def test_a_publication_is_read_to_its_end_and_never_answered() -> None:
    (answer,), server = run(f"{PUSH}Content-Length: 5\r\n\r\nabcde")
    assert answer == b""
    assert server.ledger.publications == (
        FixtureRequest(framing_valid=True, declared_bytes=5, received_bytes=5, body_timed_out=False),
    )
    assert (server.ledger.received_bytes, server.ledger.sent_bytes) == (len(f"{PUSH}Content-Length: 5\r\n\r\nabcde"), 0)


@pytest.mark.parametrize(
    "headers",
    ["", "Content-Length: 5\r\nContent-Length: 5\r\n", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"],
)
def test_framing_that_is_not_one_plain_length_is_recorded_as_invalid(headers: str) -> None:
    (answer,), server = run(f"{PUSH}{headers}\r\nabcde")
    assert answer == b""
    (seen,) = server.ledger.publications
    assert (seen.framing_valid, seen.declared_bytes, seen.received_bytes) == (False, None, 0)


def test_a_body_that_does_not_come_ends_by_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixture, "READ_LIMIT_S", 0.05)
    (answer,), server = run(f"{PUSH}Content-Length: 9\r\n\r\nabc")
    assert answer == b""
    (seen,) = server.ledger.publications
    assert (seen.declared_bytes, seen.received_bytes, seen.body_timed_out) == (9, 3, True)


@pytest.mark.parametrize(
    ("value", "length"),
    [("0", 0), ("67108864", 67108864), ("67108865", None), ("-1", None), ("+5", None), ("5x", None), ("\u0665", None)],
)
def test_a_length_is_decimal_and_at_most_64_mib(value: str, length: int | None) -> None:
    assert content_length([f"Content-Length: {value}"]) == length


def test_every_publication_of_a_client_that_sends_again_is_recorded() -> None:
    _, server = run(*[f"{PUSH}Content-Length: 1\r\n\r\nx"] * 2)
    assert len(server.ledger.publications) == 2
