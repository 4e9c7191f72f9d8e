import asyncio
import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.wire.peer import Address, Pace, Peer, connect_peer, listen_for_peers
from fairtrial.wire.reader import ByteCount, CountedReader


def _reader(data: bytes, count: ByteCount) -> CountedReader:
    reader = CountedReader(count, asyncio.get_running_loop())
    reader.feed_data(data)
    reader.feed_eof()
    return reader


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r\n"]), max_size=12), st.lists(st.sampled_from("wrl"), max_size=30)
)
def test_waiting_for_input_loses_and_counts_nothing(parts: Sequence[bytes], steps: Sequence[str]) -> None:
    data = b"".join(parts)

    async def main() -> None:
        count = ByteCount()
        reader = _reader(data, count)
        taken = b""
        for step in steps:
            if step == "w":
                assert await reader.wait_input() == (len(taken) < len(data))
            elif step == "r":
                taken += await reader.read(3)
            else:
                try:
                    taken += await reader.readuntil(b"\n")
                except asyncio.IncompleteReadError as error:
                    taken += error.partial
            assert data.startswith(taken)
            assert count.n_bytes == len(taken)

    asyncio.run(main())


def test_a_wait_that_is_cancelled_takes_nothing() -> None:
    async def main() -> None:
        reader = CountedReader(ByteCount(), asyncio.get_running_loop())
        waiting = asyncio.ensure_future(reader.wait_input())
        await asyncio.sleep(0)
        reader.feed_data(b"x\n")
        waiting.cancel()
        await asyncio.wait([waiting])
        assert await reader.readuntil(b"\n") == b"x\n"

    asyncio.run(main())


def test_a_pace_is_kept_in_small_steps() -> None:
    async def main() -> None:
        peers: list[Peer] = []
        server, port = await listen_for_peers(peers.append, received=ByteCount(), sent=ByteCount())
        sent = ByteCount()
        peer = await connect_peer(Address(host="127.0.0.1", port=port), received=ByteCount(), sent=sent)
        started_s = time.monotonic()
        await Pace(10_000).send(peer, b"x" * 2_000)
        assert time.monotonic() - started_s >= 0.2
        assert sent.n_bytes == 2_000
        peer.abort()
        with pytest.raises(ConnectionError):
            await Pace(10_000).send(peer, b"x")
        assert sent.n_bytes == 2_000
        for accepted in peers:
            await accepted.discard_until_end()
            accepted.close()
        server.close()

    asyncio.run(main())


def test_a_peer_that_has_sent_what_was_left_can_still_be_aborted_or_reset() -> None:
    async def main() -> None:
        peers: list[Peer] = []
        server, port = await listen_for_peers(peers.append, received=ByteCount(), sent=ByteCount())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.transport.pause_reading()
        while not peers:
            await asyncio.sleep(0.01)
        (peer,) = peers

        async def send_without_end() -> None:
            while True:
                await peer.send(b"x" * 65_536)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send_without_end(), 0.5)
        peer.close()  # with something left to send, as the time-out shows
        writer.transport.resume_reading()
        await reader.read()
        await peer.wait_closed()
        peer.abort()
        peer.reset()
        writer.close()
        server.close()

    asyncio.run(main())
