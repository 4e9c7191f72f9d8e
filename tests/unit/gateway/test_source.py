"""Replies that are coded although we asked for none are read all the same, or said to be unreadable."""

import gzip
import zlib

import pytest

from fairtrial.gateway.source import Decoder

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
    parts = [decoder.decode(data[start : start + size]) for start in range(0, len(data), size)]
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
