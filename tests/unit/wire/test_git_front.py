"""The front with a shell script in git's place: what it passes in, and what it makes of odd replies."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.wire.git_front import GitFront, Target, build_cgi_environment, parse_target
from fairtrial.wire.http1 import BadMessageError, parse_request_head

Act = Callable[[GitFront, int], Awaitable[None]]


@pytest.mark.parametrize(
    ("raw", "target"),
    [
        ("/r.git/HEAD", Target(path="/r.git/HEAD", query="")),
        ("/r.git/info/refs?service=git-upload-pack", Target(path="/r.git/info/refs", query="service=git-upload-pack")),
        ("/a%20b.git/HEAD?%2e", Target(path="/a b.git/HEAD", query="%2e")),
        ("/...git/x..y", Target(path="/...git/x..y", query="")),
    ],
)
def test_a_target_is_decoded_once(raw: str, target: Target) -> None:
    assert parse_target(raw) == target


@settings(deadline=None)
@given(st.text(alphabet="/.%2eE5cfab?\0\\", max_size=20))
def test_no_target_leaves_the_root(raw: str) -> None:
    try:
        target = parse_target(raw)
    except BadMessageError:
        return
    assert target.path.startswith("/")
    assert not {"", ".", ".."} & set(target.path.split("/")[1:])
    assert "\0" not in target.path


def test_the_environment_holds_what_git_needs_and_never_a_length() -> None:
    request = parse_request_head(
        b"POST /r HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Type: a/b\r\n"
        b"Git-Protocol: version=2\r\nX-Other: 1\r\n\r\n"
    )
    environment = build_cgi_environment(
        root=Path("/srv"), git=Path("/opt/git/bin/git"), request=request, target=Target(path="/r", query="")
    )
    assert environment.items() >= {
        ("GIT_PROJECT_ROOT", "/srv"),
        ("CONTENT_TYPE", "a/b"),
        ("HTTP_GIT_PROTOCOL", "version=2"),
        ("REMOTE_USER", "fairtrial"),
        ("PATH", "/opt/git/bin:/usr/bin:/bin"),
    }
    assert {"CONTENT_LENGTH", "HTTP_CONTENT_ENCODING", "HTTP_X_OTHER", "HOME"}.isdisjoint(environment)


def _serve(tmp_path: Path, script: str, act: Act) -> None:
    git = tmp_path / "git"
    git.write_text(f"#!/bin/sh\n{script}\n")
    git.chmod(0o755)

    async def main() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        front = GitFront(root=tmp_path, git=git)
        port = await front.start()
        try:
            async with asyncio.timeout(30):
                await act(front, port)
        finally:
            await front.stop()
        assert front.ledger.running == 0
        assert failures == []

    asyncio.run(main())


async def _talk(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()


GET = b"GET /r HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def test_a_child_without_a_reply_becomes_502_and_is_explained(tmp_path: Path) -> None:
    async def act(front: GitFront, port: int) -> None:
        assert (await _talk(port, GET)).startswith(b"HTTP/1.1 502 ")
        assert front.ledger.stderr_tail == "no luck\nfront: GET /r: its output ended inside the head, after 0 bytes\n"

    _serve(tmp_path, "echo no luck >&2; exit 3", act)


def test_a_reply_shorter_than_its_own_length_ends_the_connection(tmp_path: Path) -> None:
    async def act(_front: GitFront, port: int) -> None:
        reply = await _talk(port, b"GET /r HTTP/1.1\r\nHost: x\r\n\r\n")
        assert reply.endswith(b"\r\n\r\nabc")
        assert b"Content-Length: 9\r\n" in reply

    _serve(tmp_path, r"printf 'Content-Length: 9\r\n\r\nabc'", act)


def test_a_chunked_upload_is_decoded_for_the_child(tmp_path: Path) -> None:
    async def act(_front: GitFront, port: int) -> None:
        head = b"POST /r HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        reply = await _talk(port, head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert reply.endswith(b"\r\n\r\na\r\nabcde none\r\n0\r\n\r\n")

    _serve(tmp_path, r"""body=$(cat); printf 'A: b\r\n\r\n%s %s' "$body" "${CONTENT_LENGTH-none}" """, act)


def test_broken_chunks_end_the_childs_input(tmp_path: Path) -> None:
    async def act(front: GitFront, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /r HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        while front.ledger.running == 0:
            await asyncio.sleep(0)
        writer.write(b"zz\r\n")
        await reader.read()
        writer.close()
        assert await front.drain(10)
        assert (tmp_path / "ended").read_text() == "abc"
        assert "POST /r: bad request: malformed chunk size" in front.ledger.stderr_tail

    _serve(tmp_path, f"cat > {tmp_path}/ended; printf 'A: b\\n\\n'", act)


def test_a_request_that_is_no_http_is_refused_and_kept_for_diagnosis(tmp_path: Path) -> None:
    async def act(front: GitFront, port: int) -> None:
        assert b" 400 " in (await _talk(port, b"POST /r HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n"))[:20]
        assert "a request: bad request: Content-Length" in front.ledger.stderr_tail
        assert front.ledger.requests == 0

    _serve(tmp_path, "exit 1", act)


def test_a_client_that_leaves_takes_its_child_along(tmp_path: Path) -> None:
    async def act(front: GitFront, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /r HTTP/1.1\r\nHost: x\r\n\r\n")
        while front.ledger.running == 0:
            await asyncio.sleep(0)
        writer.close()
        assert await front.drain(10)

    _serve(tmp_path, "exec sleep 600", act)


@pytest.mark.parametrize(
    ("request_head", "printed", "reply"),
    [
        (b"GET /r HTTP/1.0\r\n\r\n", r"A: b\n\nabc", b"HTTP/1.1 200 OK\r\nA: b\r\nConnection: close\r\n\r\nabc"),
        (
            b"HEAD /r HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            r"Content-Length: 3\n\nabc",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\n",
        ),
        (
            b"GET /r HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            r"Content-Length: 2\n\nabc",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab",
        ),
        (
            b"GET /r HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            r"Content-Length: many\n\nabc",
            b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        ),
    ],
)
def test_the_reply_is_framed_for_its_client(tmp_path: Path, request_head: bytes, printed: str, reply: bytes) -> None:
    async def act(_front: GitFront, port: int) -> None:
        assert await _talk(port, request_head) == reply

    _serve(tmp_path, f"printf '{printed}'", act)


def test_an_upload_that_the_child_does_not_want_is_answered_and_not_waited_for(tmp_path: Path) -> None:
    async def act(_front: GitFront, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /r HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc")
        assert (await reader.read()).startswith(b"HTTP/1.1 403 Forbidden\r\n")
        writer.close()

    _serve(tmp_path, r"printf 'Status: 403 Forbidden\r\n\r\n'", act)


def test_a_reply_that_comes_before_the_last_chunk_leaves_the_connection_in_step(tmp_path: Path) -> None:
    async def act(front: GitFront, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /r HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        assert (await reader.readuntil(b"0\r\n\r\n")).endswith(b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        writer.write(b"0\r\n\r\n" + GET)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
        assert front.ledger.requests == 2

    _serve(tmp_path, r"printf 'A: b\r\n\r\n'; head -c 3", act)


def test_stopping_ends_a_child_that_is_at_work(tmp_path: Path) -> None:
    async def act(front: GitFront, port: int) -> None:
        talk = asyncio.ensure_future(_talk(port, GET))
        while front.ledger.running == 0:
            await asyncio.sleep(0)
        assert not await front.drain(0.05)
        await front.stop()
        assert front.ledger.running == 0
        assert await talk == b""

    _serve(tmp_path, "trap '' TERM; while :; do sleep 600; done", act)
