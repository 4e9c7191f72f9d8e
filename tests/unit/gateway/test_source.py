"""Replies that are coded although we asked for none are read all the same, or said to be unreadable."""

import gzip
import zlib

import pytest

from fairtrial.gateway.source import MAX_DECODED_BYTES, Decoder
from fairtrial.wire.http1 import PIECE_BYTES

TEXT = b"event: message_stop\n\n" * 50
CODED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT[:333]) + gzip.compress(b"") + gzip.compress(TEXT[333:]),
    "deflate": zlib.compress(TEXT),
    " Identity ": TEXT,
    "": TEXT,
}


def decode(coding: str, data: bytes, size: int) -> tuple[bytes, str | None]:
    decoder = Decoder(coding)
    parts = [part for start in range(0, len(data), size) for part in decoder.decode(data[start : start + size])]
    return b"".join(parts), decoder.problem


@pytest.mark.parametrize("coding", CODED)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_coding_is_read_wherever_it_was_cut(coding: str, size: int) -> None:
    assert decode(coding, CODED[coding], size) == (TEXT, None)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br"])
def test_another_coding_is_named(coding: str) -> None:
    assert decode(coding, b"\x1b\x00", 1) == (b"", f"content-encoding {coding!r}")


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_what_comes_before_a_broken_place_is_read(size: int) -> None:
    text, problem = decode("gzip", CODED["gzip"] + b"nonsense", size)
    assert text == TEXT
    assert problem is not None
    assert problem.startswith("broken content-encoding")
    assert decode("gzip", b"plain text", size)[0] == b""


@pytest.mark.parametrize("n_bytes", [PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES, 2 * PIECE_BYTES + 1])
def test_nothing_of_a_large_piece_is_lost_where_it_is_given_in_parts(n_bytes: int) -> None:
    text = b"x" * n_bytes
    coder = zlib.compressobj()
    coded = coder.compress(text) + coder.flush(zlib.Z_SYNC_FLUSH)  # the provider may break off here
    assert decode("deflate", coded, len(coded)) == (text, None)


def test_a_bomb_is_given_in_small_parts_and_given_up() -> None:
    """One read off the wire may hold a thousand times as much, and a whole reply more than the machine's memory."""
    coder = zlib.compressobj()
    zeros = bytes(1 << 20)
    coded = b"".join(coder.compress(zeros) for _ in range(1 + MAX_DECODED_BYTES // len(zeros))) + coder.flush()
    decoder = Decoder("deflate")
    n_bytes = 0
    for start in range(0, len(coded), PIECE_BYTES):
        for part in decoder.decode(coded[start : start + PIECE_BYTES]):
            assert len(part) <= PIECE_BYTES
            n_bytes += len(part)
    assert n_bytes == MAX_DECODED_BYTES
    assert decoder.problem == f"content-encoding: holds more than {MAX_DECODED_BYTES} bytes"
    assert tuple(decoder.decode(coded)) == ()
