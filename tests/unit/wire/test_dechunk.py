from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.wire.dechunk import Dechunker
from fairtrial.wire.http1 import BadMessageError

BODY = b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nx-t: 1\r\n\r\n"


def _take(data: bytes, cuts: list[int]) -> tuple[bytes, Dechunker]:
    dechunker = Dechunker()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    parts = [dechunker.feed(data[start:end]) for start, end in pairwise(places)]
    return b"".join(parts), dechunker


@given(st.lists(st.integers(min_value=0, max_value=1000), max_size=8))
def test_the_payload_is_the_same_however_the_bytes_are_split(cuts: list[int]) -> None:
    payload, dechunker = _take(BODY, cuts)
    assert (payload, dechunker.ended, dechunker.surplus) == (b"hello world", True, b"")


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=6), st.lists(st.integers(min_value=0), max_size=6))
def test_any_payload_comes_back(chunks: list[bytes], cuts: list[int]) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    payload, dechunker = _take(body, cuts)
    assert (payload, dechunker.ended) == (b"".join(chunks), True)


def test_payload_is_given_as_soon_as_it_is_there() -> None:
    dechunker = Dechunker()
    assert dechunker.feed(b"5\r\nhe") == b"he"
    assert dechunker.feed(b"llo") == b"llo"
    assert not dechunker.ended


def test_bytes_after_the_end_are_kept_apart() -> None:
    payload, dechunker = _take(BODY + b"HTTP/1.1", [])
    assert (payload, dechunker.surplus) == (b"hello world", b"HTTP/1.1")


@pytest.mark.parametrize(
    "body",
    [
        b"5\nhello\r\n",
        b"g\r\n",
        b"5\r\nhelloXX",
        b"5\r\nhello\nx",
        b"-5\r\n",
        b" 5\r\n",
        b"0\r\nbad trailer\r\n\r\n",
        b"0\r\nx: 1\n\r\n",
        b"1" * 300,
    ],
)
@given(cuts=st.lists(st.integers(min_value=0, max_value=1000), max_size=4))
def test_broken_framing_is_refused_however_it_is_split(body: bytes, cuts: list[int]) -> None:
    with pytest.raises(BadMessageError):
        _take(body, cuts)


def test_an_endless_trailer_is_refused() -> None:
    with pytest.raises(BadMessageError, match="oversized"):
        _take(b"0\r\n" + b"x: 1\r\n" * 20_000, [7])
