import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.wire.http1 import (
    MAX_HEAD_BYTES,
    BadMessageError,
    BodyKind,
    EndedEarlyError,
    Framing,
    Piece,
    parse_chunk_size,
    parse_reply_head,
    parse_request_head,
    read_body,
    read_head,
    with_connection_close,
)
from fairtrial.wire.reader import ByteCount, CountedReader

CHUNKED = Framing(kind=BodyKind.CHUNKED)


def _fed(parts: Sequence[bytes]) -> CountedReader:
    reader = CountedReader(ByteCount(), asyncio.get_running_loop())
    for part in parts:
        reader.feed_data(part)
    reader.feed_eof()
    return reader


def _read_head(*parts: bytes) -> bytes | None:
    async def read() -> bytes | None:
        return await read_head(_fed(parts))

    return asyncio.run(read())


def _read_body(framing: Framing, *parts: bytes) -> list[Piece]:
    async def read() -> list[Piece]:
        return [piece async for piece in read_body(_fed(parts), framing)]

    return asyncio.run(read())


def _head(*lines: bytes) -> bytes:
    return b"\r\n".join([*lines, b"", b""])


def test_a_plain_request_is_understood() -> None:
    head = parse_request_head(_head(b"POST /a?b HTTP/1.1", b"Host: x", b"Content-Length:  12 ", b"X-Empty:"))
    assert (head.method, head.target, head.keep_alive, head.expects_continue) == ("POST", "/a?b", True, False)
    assert head.framing == Framing(kind=BodyKind.LENGTH, n_bytes=12)
    assert head.fields == (("host", "x"), ("content-length", "12"), ("x-empty", ""))


def test_a_request_without_declared_length_has_no_body() -> None:
    assert parse_request_head(_head(b"GET / HTTP/1.1", b"Host: x")).framing.kind is BodyKind.NONE


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        (b"GET / HTTP/1.1", b"Connection: Keep-Alive, Close", False),
        (b"GET / HTTP/1.1", b"Connection: TE", True),
        (b"GET / HTTP/1.0", b"X: y", False),
        (b"GET / HTTP/1.0", b"Connection: keep-alive", True),
    ],
)
def test_keep_alive_follows_the_version_and_the_connection_header(line: bytes, field: bytes, expected: bool) -> None:
    assert parse_request_head(_head(line, b"Host: x", field)).keep_alive is expected


def test_an_expectation_of_100_continue_is_seen() -> None:
    assert parse_request_head(_head(b"PUT / HTTP/1.1", b"Host: x", b"Expect: 100-Continue")).expects_continue


@pytest.mark.parametrize(
    "raw",
    [
        _head(b"POST / HTTP/1.1", b"Host: x", b"Content-Length: 1", b"Transfer-Encoding: chunked"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Content-Length: 1", b"Content-Length: 1"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Content-Length: 1, 1"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Content-Length: +1"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Content-Length: 0x1"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Content-Length: \xb2"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Content-Length: 1234567890123456789"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Content-Length:"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Transfer-Encoding: gzip, chunked"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Transfer-Encoding: \x0bchunked"),
        _head(b"POST / HTTP/1.0", b"Host: x", b"Transfer-Encoding: chunked"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Transfer-Encoding : chunked"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"A: b", b" folded"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"\tA: folded"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"A: b\rC: d"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"A: b\nC: d"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"A: \x00"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"no colon"),
        _head(b"POST / HTTP/1.1", b"Host: x", b": no name"),
        _head(b"POST / HTTP/1.1", b"Host: x", b"Host: y"),
        _head(b"POST / HTTP/1.1"),
        _head(b"POST /a b HTTP/1.1", b"Host: x"),
        _head(b"POST  / HTTP/1.1", b"Host: x"),
        _head(b"POST / HTTP/2", b"Host: x"),
        _head(b"POST / HTTP/1.1 ", b"Host: x"),
        _head(b"POST / HTTP/1.1\n", b"Host: x"),
        _head(b"POST /", b"Host: x"),
        _head(b"CONNECT a:1 HTTP/1.1", b"Host: x"),
        b"GET / HTTP/1.1\r\nHost: x\r\n",
    ],
)
def test_a_request_that_two_readers_could_frame_differently_is_refused(raw: bytes) -> None:
    with pytest.raises(BadMessageError):
        parse_request_head(raw)


@pytest.mark.parametrize(
    ("method", "lines", "kind", "keep_alive"),
    [
        ("GET", [b"HTTP/1.1 200 OK", b"Content-Length: 5"], BodyKind.LENGTH, True),
        ("GET", [b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked"], BodyKind.CHUNKED, True),
        ("GET", [b"HTTP/1.1 200 OK"], BodyKind.UNTIL_CLOSE, False),
        ("GET", [b"HTTP/1.0 200 OK", b"Content-Length: 5"], BodyKind.LENGTH, False),
        ("HEAD", [b"HTTP/1.1 200 OK", b"Content-Length: 5"], BodyKind.NONE, True),
        ("GET", [b"HTTP/1.1 204 No Content"], BodyKind.NONE, True),
        ("GET", [b"HTTP/1.1 304", b"Content-Length: 5"], BodyKind.NONE, True),
        ("GET", [b"HTTP/1.1 100 Continue"], BodyKind.NONE, True),
    ],
)
def test_a_replys_body_ends_where_the_standard_says(
    method: str, lines: list[bytes], kind: BodyKind, keep_alive: bool
) -> None:
    head = parse_reply_head(_head(*lines), method=method)
    assert (head.framing.kind, head.keep_alive) == (kind, keep_alive)


def test_an_interim_reply_is_told_from_a_final_one() -> None:
    assert parse_reply_head(_head(b"HTTP/1.1 103 Early Hints"), method="GET").interim
    assert not parse_reply_head(_head(b"HTTP/1.1 200 OK"), method="GET").interim


@pytest.mark.parametrize(
    "raw",
    [
        _head(b"HTTP/1.1 101 Switching Protocols"),
        _head(b"HTTP/1.1 0200 OK"),
        _head(b"HTTP/1.1 20 OK"),
        _head(b"200 OK"),
        _head(b"HTTP/1.1 200 OK", b"Content-Length: 1", b"Transfer-Encoding: chunked"),
        _head(b"HTTP/1.1 200 OK", b"Transfer-Encoding: identity"),
    ],
)
def test_a_reply_that_cannot_be_framed_for_certain_is_refused(raw: bytes) -> None:
    with pytest.raises(BadMessageError):
        parse_reply_head(raw, method="GET")


def test_a_head_is_read_up_to_its_empty_line() -> None:
    raw = _head(b"GET / HTTP/1.1", b"Host: x")
    assert _read_head(raw + b"body") == raw


def test_no_head_at_a_clean_end() -> None:
    assert _read_head() is None


@pytest.mark.parametrize("raw", [b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET"])
def test_an_end_inside_the_head_is_said(raw: bytes) -> None:
    with pytest.raises(EndedEarlyError):
        _read_head(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (MAX_HEAD_BYTES // 6) + b"\r\n",
        b"a" * 1024 * 1024,
    ],
)
def test_a_bare_line_feed_an_empty_first_line_and_an_oversized_head_are_refused(raw: bytes) -> None:
    with pytest.raises(BadMessageError):
        _read_head(raw)


def test_a_counted_body_is_read_exactly() -> None:
    pieces = _read_body(Framing(kind=BodyKind.LENGTH, n_bytes=5), b"hel", b"lo and more")
    assert b"".join(piece.wire for piece in pieces) == b"hello"


def test_an_end_inside_a_counted_body_is_said() -> None:
    with pytest.raises(EndedEarlyError):
        _read_body(Framing(kind=BodyKind.LENGTH, n_bytes=5), b"hel")


def test_a_body_until_close_ends_with_the_connection() -> None:
    pieces = _read_body(Framing(kind=BodyKind.UNTIL_CLOSE), b"hel", b"lo")
    assert b"".join(piece.wire for piece in pieces) == b"hello"


def test_chunks_extensions_and_trailers_pass_as_they_are() -> None:
    raw = b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nX-Sum: 1\r\n\r\n"
    pieces = _read_body(CHUNKED, raw + b"next")
    assert b"".join(piece.wire for piece in pieces) == raw
    assert [piece.n_payload_bytes for piece in pieces] == [3, 2, 0]


def test_a_cut_piece_keeps_its_framing_and_loses_the_rest() -> None:
    (piece, _) = _read_body(CHUNKED, b"5\r\nhello\r\n0\r\n\r\n")
    assert piece.cut(2) == b"5\r\nhe"
    assert piece.cut(0) == b"5\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"\r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\n",
        b"0\r\nbad trailer\r\n\r\n",
        b"0\r\n" + b"A: b\r\n" * 20000 + b"\r\n",
        b"5;" + b"x" * 300 + b"\r\nhello\r\n",
    ],
)
def test_broken_chunk_framing_is_refused(raw: bytes) -> None:
    with pytest.raises(BadMessageError):
        _read_body(CHUNKED, raw)


@pytest.mark.parametrize("end", range(30))
def test_an_end_anywhere_inside_chunks_is_said(end: int) -> None:
    raw = b"3\r\nhel\r\n2\r\nlo\r\n0\r\nX-Sum: 1\r\n\r\n"
    assert len(raw) == 30
    with pytest.raises(EndedEarlyError):
        _read_body(CHUNKED, raw[:end])


def test_connection_close_replaces_what_the_head_said_about_the_connection() -> None:
    raw = _head(b"HTTP/1.1 200 OK", b"Connection: keep-alive", b"KEEP-ALIVE: timeout=5", b"X: y")
    closed = with_connection_close(raw)
    assert closed == _head(b"HTTP/1.1 200 OK", b"X: y", b"Connection: close")
    assert not parse_reply_head(closed, method="HEAD").keep_alive


payloads = st.lists(st.binary(min_size=1, max_size=400), max_size=8)


@settings(deadline=None)
@given(payloads, st.data())
def test_any_chunked_body_is_read_whole_however_it_arrives(chunks: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks) + b"0\r\n\r\n"
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=6)))
    parts = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    pieces = _read_body(CHUNKED, *parts)
    assert b"".join(piece.wire for piece in pieces) == raw
    payload = b"".join(piece.wire[piece.n_prefix_bytes :][: piece.n_payload_bytes] for piece in pieces)
    assert payload == b"".join(chunks)


fragments = st.lists(
    st.sampled_from(
        [
            b"GET / HTTP/1.1", b"HTTP/1.1 200 OK", b"\r\n", b"\n", b"\r", b"Host: x", b"Content-Length: 3", b"0", b"5",
            b"Transfer-Encoding: chunked", b":", b" ", b"\t", b"abc", b"\x00", b"\xff", b";", b"ffffffff", b"POST",
        ]
    ) | st.binary(max_size=8),
    max_size=24,
)  # fmt: skip


@settings(deadline=None)
@given(fragments)
def test_a_head_reads_the_same_at_once_and_byte_by_byte(parts: list[bytes]) -> None:
    def outcome(*parts: bytes) -> object:
        try:
            return _read_head(*parts)
        except (BadMessageError, EndedEarlyError) as error:
            return type(error)

    raw = b"".join(parts)
    for whole in (raw, b"GET / HTTP/1.1\r\n" + raw + b"\r\n\r\n"):
        assert outcome(whole) == outcome(*(bytes([byte]) for byte in whole))


@settings(deadline=None)
@given(fragments, st.sampled_from(BodyKind), st.integers(0, 2**40))
def test_whatever_arrives_is_read_to_an_end_or_refused(parts: list[bytes], kind: BodyKind, n_bytes: int) -> None:
    async def read_all() -> None:
        source = _fed(parts)
        raw = await read_head(source)
        if raw is not None:
            request_refused = reply_refused = False
            try:
                parse_request_head(raw)
            except BadMessageError:
                request_refused = True
            try:
                parse_reply_head(raw, method="GET")
            except BadMessageError:
                reply_refused = True
            assert request_refused or reply_refused
        async for piece in read_body(source, Framing(kind=kind, n_bytes=n_bytes)):
            assert piece.wire
            assert piece.n_prefix_bytes + piece.n_payload_bytes <= len(piece.wire)

    async def bounded() -> None:
        async with asyncio.timeout(5):
            await read_all()

    try:
        asyncio.run(bounded())
    except (BadMessageError, EndedEarlyError):
        return


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_a_chunk_size_is_a_number_or_refused(line: bytes) -> None:
    try:
        assert 0 <= parse_chunk_size(line) < 2**60
    except BadMessageError:
        return
