"""Where a body is while it is looked at: in memory when small, in a file without a name when large, nowhere after."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fairtrial.gateway.spool import IN_MEMORY_BYTES, MAX_BODY_BYTES, Spool, TooLargeError
from fairtrial.wire.http1 import PIECE_BYTES


def run(directory: Path, pieces: list[bytes], look: Callable[[Spool], Awaitable[None]]) -> None:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def main() -> None:
        with Spool(directory) as spool:
            await spool.fill(body())
            await look(spool)

    asyncio.run(main())


def files_in(directory: Path) -> list[str]:
    """What our descriptors hold open there, with or without a name."""
    found: list[str] = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor that lists them
            found.append(str(entry.readlink()))
    return [target for target in found if target.startswith(f"{directory}/")]


async def read(spool: Spool, n_bytes: int | None = None) -> list[bytes]:
    return [piece async for piece in spool.pieces(n_bytes)]


@pytest.mark.parametrize("n_bytes", [0, 1, IN_MEMORY_BYTES])
def test_a_small_body_touches_no_disk(tmp_path: Path, n_bytes: int) -> None:
    async def look(spool: Spool) -> None:
        assert files_in(tmp_path) == []
        assert spool.n_bytes == n_bytes
        assert spool.read_all() == b"x" * n_bytes
        assert b"".join(await read(spool)) == b"x" * n_bytes

    run(tmp_path, [b"x" * (n_bytes // 2), b"x" * (n_bytes - n_bytes // 2)], look)


def test_a_large_body_is_in_a_file_that_has_no_name_and_ends_with_it(tmp_path: Path) -> None:
    pieces = [bytes([n]) * PIECE_BYTES for n in range(IN_MEMORY_BYTES // PIECE_BYTES + 1)]

    async def look(spool: Spool) -> None:
        (path,) = files_in(tmp_path)
        assert path.endswith("(deleted)")
        assert list(tmp_path.iterdir()) == []
        assert spool.n_bytes == len(pieces) * PIECE_BYTES
        assert spool.read_all() == b"".join(pieces)
        assert await read(spool) == pieces
        assert await read(spool) == pieces  # it can be read again

    run(tmp_path, pieces, look)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("n_pieces", [1, 6])
def test_the_beginning_of_a_body_is_given_for_a_request_that_is_cut(tmp_path: Path, n_pieces: int) -> None:
    whole = bytes(range(256)) * (PIECE_BYTES // 256) * n_pieces

    async def look(spool: Spool) -> None:
        for n_bytes in (0, 1, 1000, PIECE_BYTES - 1, len(whole), len(whole) + 1):
            assert b"".join(await read(spool, n_bytes)) == whole[:n_bytes]

    run(tmp_path, [whole[start : start + PIECE_BYTES] for start in range(0, len(whole), PIECE_BYTES)], look)


@pytest.mark.parametrize("is_large", [False, True])
def test_another_body_takes_its_place(tmp_path: Path, is_large: bool) -> None:
    async def look(spool: Spool) -> None:
        spool.replace(b"changed")
        assert files_in(tmp_path) == []
        assert (spool.n_bytes, spool.read_all()) == (7, b"changed")

    run(tmp_path, [b"x" * PIECE_BYTES] * (8 if is_large else 1), look)


def test_a_body_beyond_the_limit_is_let_go_at_once(tmp_path: Path) -> None:
    piece = b"x" * (8 << 20)

    async def look(_: Spool) -> None:
        raise AssertionError("it was taken in")

    with pytest.raises(TooLargeError):
        run(tmp_path, [piece] * (MAX_BODY_BYTES // len(piece) + 1), look)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("is_large", [False, True])
def test_words_are_found_wherever_they_stand_also_across_two_pieces(tmp_path: Path, is_large: bool) -> None:
    n_pieces = 6 if is_large else 2
    data = bytearray(b"x" * PIECE_BYTES * n_pieces)
    across = PIECE_BYTES * (n_pieces - 1) - 3
    data[:5], data[across : across + 6], data[-4:] = b"first", b"across", b"last"

    async def look(spool: Spool) -> None:
        assert spool.is_large is is_large
        assert await spool.words_in(["last", "none", "first", "across", "last"]) == ("last", "first", "across")
        assert await spool.words_in(["none"]) == ()
        assert await spool.words_in([]) == ()

    run(tmp_path, [bytes(data[start : start + PIECE_BYTES]) for start in range(0, len(data), PIECE_BYTES)], look)


def test_others_run_while_a_large_body_is_looked_through(tmp_path: Path) -> None:
    n_turns = 0

    async def look(spool: Spool) -> None:
        nonlocal n_turns
        looking = asyncio.create_task(spool.words_in(["none"]))
        while not looking.done():
            n_turns += 1
            await asyncio.sleep(0)
        assert looking.result() == ()

    run(tmp_path, [b"x" * PIECE_BYTES] * 8, look)
    assert n_turns >= 8


def test_a_body_is_looked_through_no_further_than_to_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    pread = os.pread

    def count(fd: int, n_bytes: int, start: int) -> bytes:
        read.append(start)
        return pread(fd, n_bytes, start)

    async def look(spool: Spool) -> None:
        monkeypatch.setattr(os, "pread", count)
        assert await spool.words_in(["abc", "b"]) == ("abc", "b")
        monkeypatch.undo()

    run(tmp_path, [b"x" * PIECE_BYTES, b"abc" + b"x" * PIECE_BYTES, *[b"x" * PIECE_BYTES] * 6], look)
    assert read == [0, PIECE_BYTES]
