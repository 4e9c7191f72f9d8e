"""Pieces come out as they came in, however they are asked for, and a reader that is slow holds its peer."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.wire.http1 import PIECE_BYTES
from fairtrial.wire.reader import ByteCount, CountedReader


class Pausable(asyncio.Transport):
    """A transport that only notes whether it may read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def run(work: Callable[[CountedReader, ByteCount], Awaitable[None]]) -> None:
    async def main() -> None:
        count = ByteCount()
        async with asyncio.timeout(20):
            await work(CountedReader(count, asyncio.get_running_loop()), count)

    asyncio.run(main())


def test_a_piece_is_handed_on_without_a_copy() -> None:
    piece = b"x" * 1000

    async def work(reader: CountedReader, count: ByteCount) -> None:
        reader.feed_data(piece)
        assert await reader.read(PIECE_BYTES) is piece
        assert count.n_bytes == 1000

    run(work)


@given(
    st.lists(st.binary(min_size=1, max_size=9).map(lambda data: data.replace(b"\n", b"-")), max_size=12),
    st.lists(st.integers(1, 20), max_size=20),
)
def test_all_that_came_is_read_once_and_in_order(pieces: list[bytes], sizes: list[int]) -> None:
    async def work(reader: CountedReader, count: ByteCount) -> None:
        for piece in pieces:
            reader.feed_data(piece)
        reader.feed_eof()
        taken = b""
        for size in sizes:
            data = await reader.read(size)
            assert len(data) == min(size, len(b"".join(pieces)) - len(taken))
            taken += data
        taken += await reader.read()
        assert taken == b"".join(pieces)
        assert count.n_bytes == len(taken)
        assert reader.at_eof()
        assert await reader.read(1) == b""

    run(work)


@given(st.lists(st.sampled_from([b"\n", b"a", b"bc\n", b"d\ne", b"fgh"]), max_size=12), st.booleans())
def test_a_line_is_found_wherever_it_was_cut(pieces: list[bytes], arrives_later: bool) -> None:
    whole = b"".join(pieces)

    async def work(reader: CountedReader, _: ByteCount) -> None:
        async def feed() -> None:
            for piece in pieces:
                reader.feed_data(piece)
                if arrives_later:
                    await asyncio.sleep(0)
            reader.feed_eof()

        feeding = asyncio.create_task(feed())
        lines: list[bytes] = []
        try:
            while True:
                lines.append(await reader.readuntil(b"\n"))
        except asyncio.IncompleteReadError as error:
            lines.append(error.partial)
        await feeding
        assert lines == [*(line + b"\n" for line in whole.split(b"\n")[:-1]), whole.split(b"\n")[-1]]

    run(work)


def test_a_line_that_never_ends_is_refused() -> None:
    async def work(reader: CountedReader, _: ByteCount) -> None:
        for _i in range(3):
            reader.feed_data(b"x" * PIECE_BYTES)
        with pytest.raises(asyncio.LimitOverrunError):
            await reader.readuntil(b"\n")

    run(work)


def test_a_reader_that_is_slow_holds_its_peer_and_lets_it_go_again() -> None:
    async def work(reader: CountedReader, _: ByteCount) -> None:
        transport = Pausable()
        reader.set_transport(transport)
        for _i in range(2):
            reader.feed_data(b"x" * PIECE_BYTES)
            assert transport.reads
        reader.feed_data(b"x")
        assert not transport.reads
        await reader.read(PIECE_BYTES)
        assert not transport.reads
        await reader.read(1)
        assert transport.reads

    run(work)


def test_a_line_longer_than_what_is_held_is_still_waited_for() -> None:
    """Nothing more would come of a peer that is held while more than it has sent is wanted."""

    async def work(reader: CountedReader, _: ByteCount) -> None:
        transport = Pausable()
        reader.set_transport(transport)
        reader.feed_data(b"x" * 10)
        waiting = asyncio.create_task(reader.readuntil(b"\n"))
        await asyncio.sleep(0)
        assert transport.reads
        reader.feed_data(b"\n")
        assert await waiting == b"x" * 10 + b"\n"

    run(work)


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_connection_that_broke_says_so_to_whoever_reads(is_waiting: bool) -> None:
    async def work(reader: CountedReader, _: ByteCount) -> None:
        if is_waiting:
            waiting = asyncio.create_task(reader.read(1))
            await asyncio.sleep(0)
        reader.set_exception(ConnectionResetError("gone"))
        with pytest.raises(ConnectionResetError):
            await (waiting if is_waiting else reader.read(1))
        assert isinstance(reader.exception(), ConnectionResetError)
        with pytest.raises(ConnectionResetError):
            await reader.readuntil(b"\n")
        with pytest.raises(ConnectionResetError):
            await reader.wait_input()

    run(work)


def test_what_is_here_up_to_an_end_is_taken_and_else_nothing() -> None:
    async def work(reader: CountedReader, count: ByteCount) -> None:
        reader.feed_data(b"one\r\n\r\ntwo\r\n")
        assert await reader.take_until(b"\r\n\r\n") == b"one\r\n\r\n"
        reader.feed_data(b"\r\nthree")
        assert await reader.take_until(b"\r\n\r\n") == b"", "it is in two pieces"
        assert count.n_bytes == len(b"one\r\n\r\n")
        assert await reader.read() == b"two\r\n\r\nthree"
        reader.feed_eof()
        assert await reader.take_until(b"\r\n\r\n") == b""

    run(work)
