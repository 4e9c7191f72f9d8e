from hypothesis import given
from hypothesis import strategies as st

from fairtrial.host.tally import StreamTally
from fairtrial.model.process import StreamCapture


def tally(chunks: list[bytes], *, tail_bytes: int = 8, capture_bytes: int = 0) -> StreamCapture:
    stream = StreamTally(tail_bytes=tail_bytes, capture_bytes=capture_bytes)
    for chunk in chunks:
        stream.take(chunk)
    return stream.capture()


@given(
    chunks=st.lists(st.binary(max_size=40), max_size=12),
    tail_bytes=st.integers(1, 64),
    capture_bytes=st.integers(0, 64),
)
def test_any_cutting_of_a_stream_gives_what_the_whole_gives(
    chunks: list[bytes], tail_bytes: int, capture_bytes: int
) -> None:
    whole = b"".join(chunks)
    assert tally(chunks, tail_bytes=tail_bytes, capture_bytes=capture_bytes) == StreamCapture(
        n_bytes=len(whole),
        n_characters=len(whole.decode("utf-8", errors="replace")),
        head=whole[:capture_bytes],
        head_truncated=len(whole) > capture_bytes,
        tail=whole[-tail_bytes:],
        tail_truncated=len(whole) > tail_bytes,
    )


def test_a_character_split_between_two_reads_counts_once() -> None:
    euro = "\u20ac".encode()
    assert tally([euro[:1], euro[1:2], euro[2:]]).n_characters == 1


def test_a_character_that_never_ends_counts_once() -> None:
    assert tally([b"a\xe2\x82"]).n_characters == 2


def test_bytes_that_are_no_text_are_kept_as_they_are() -> None:
    assert tally([b"\xff\x00\xfe"]).tail == b"\xff\x00\xfe"


def test_a_stream_of_exactly_the_limit_is_not_truncated() -> None:
    captured = tally([b"12345678"], tail_bytes=8, capture_bytes=8)
    assert (captured.head_truncated, captured.tail_truncated) == (False, False)


def test_a_result_taken_twice_is_the_same() -> None:
    stream = StreamTally(tail_bytes=4, capture_bytes=0)
    stream.take(b"ab\xe2")
    assert stream.capture() == stream.capture()
