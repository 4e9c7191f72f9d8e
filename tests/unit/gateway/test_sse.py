"""Events come out the same however the bytes were split, and memory stays bounded whatever comes in."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairtrial.gateway.sse import SseReader


def read(data: bytes, *, size: int = 1 << 20, limit: int = 1 << 20) -> tuple[list[bytes], str | None]:
    reader = SseReader(max_event_bytes=limit)
    events: list[bytes] = []
    for start in range(0, len(data), size):
        events += reader.feed(data[start : start + size])
    return events + reader.finish(), reader.problem


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_kind_of_line_end_is_read(end: bytes) -> None:
    data = end.join([b": hello", b"event: a", b"data: 1", b"data:2", b"id: 7", b"retry: 10", b"", b"data: 3", b"", b""])
    for size in (1, 2, 3, 1000):
        assert read(data, size=size) == ([b"1\n2", b"3"], None)


def test_a_last_event_without_its_blank_line_counts() -> None:
    assert read(b"data: 1\n\ndata: 2") == ([b"1", b"2"], None)


def test_a_byte_order_mark_and_events_without_data_are_no_events() -> None:
    assert read(b"\xef\xbb\xbfdata: 1\n\nevent: ping\n\n: beat\n\n") == ([b"1"], None)


def test_what_is_no_field_is_named_and_the_rest_is_read() -> None:
    assert read(b"<html>\n\ndata: 1\n\n") == ([b"1"], "a line that is no field of an event")


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_an_event_above_the_limit_is_dropped_and_the_next_one_is_read(size: int) -> None:
    data = b"data: " + b"x" * 5000 + b"\n\ndata: 2\n\n"
    events, problem = read(data, size=size, limit=1000)
    assert events == [b"2"]
    assert problem == "an event of more than 1000 bytes"


def test_a_stream_without_any_blank_line_is_held_in_bounded_memory() -> None:
    reader = SseReader(max_event_bytes=1000)
    for _ in range(1000):
        assert reader.feed(b"y" * 999) == []
        assert sum(map(len, reader._lines + reader._line)) <= 2000
    assert reader.problem is not None


@given(
    st.lists(
        st.sampled_from([b"\r", b"\n", b"\r\n", b"data:", b"data: ", b"event: e", b": c", b"x", b"\xc3\xa9", b" "]),
        max_size=40,
    ),
    st.integers(1, 9),
)
@example([b"data: ", b"x", b"\r", b"\n", b"\r", b"\n"], 1)
@example([b"data: ", b"x", b"\r", b"\r"], 1)
def test_the_split_of_the_bytes_does_not_matter(pieces: list[bytes], size: int) -> None:
    data = b"".join(pieces)
    assert read(data, size=size) == read(data)
