"""The loop of our own: its selector leaves out looks for input, and none too many of them."""

import os

from fairtrial.wire.loop import run_until_done, sleep_s, watch_fd

_MOST_TURNS = 10


def test_input_is_seen_while_work_never_ends() -> None:
    seen: list[bytes] = []
    read_fd, write_fd = os.pipe()

    async def work() -> int:
        watch_fd(read_fd, lambda: seen.append(os.read(read_fd, 1)))
        os.write(write_fd, b"x")
        n_turns = 0
        while not seen and n_turns < _MOST_TURNS:
            await sleep_s(0)
            n_turns += 1
        return n_turns

    try:
        assert run_until_done(work) < _MOST_TURNS
    finally:
        os.close(read_fd)
        os.close(write_fd)
    assert seen == [b"x"]
