"""A request's body while it is looked at: small ones in memory, large ones in a file without a name."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Self

from fairtrial.wire.http1 import PIECE_BYTES
from fairtrial.wire.loop import sleep_s

__all__ = ["IN_MEMORY_BYTES", "MAX_BODY_BYTES", "Spool", "TooLargeError"]

IN_MEMORY_BYTES: Final = 1 << 20
MAX_BODY_BYTES: Final = 128 << 20


class TooLargeError(Exception):
    """The body is larger than any model call's."""


class Spool:
    """A body that is taken in whole before any of it goes on; leaving the context frees it.

    Attributes:
        n_bytes: What was taken in.
    """

    def __init__(self, directory: Path) -> None:
        self.n_bytes = 0
        self._directory = directory
        self._memory: list[bytes] = []
        self._file: BinaryIO | None = None

    async def fill(self, body: AsyncIterator[bytes]) -> None:
        """Take the body in.

        Raises:
            TooLargeError: It has more than `MAX_BODY_BYTES`; what came so far is forgotten.
            OSError: The disk is full.
        """
        async for data in body:
            self.n_bytes += len(data)
            if self.n_bytes > MAX_BODY_BYTES:
                self.close()
                raise TooLargeError
            if self._file is None and self.n_bytes > IN_MEMORY_BYTES:
                # Unbuffered: each piece is large, and nothing of it stays in our memory.
                self._file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115 - closed by `close`
                for held in self._memory:
                    _write_all(self._file.fileno(), held)
                self._memory.clear()
            if self._file is None:
                self._memory.append(data)
            else:
                _write_all(self._file.fileno(), data)

    @property
    def is_large(self) -> bool:
        """It is in a file."""
        return self._file is not None

    def read_all(self) -> bytes:
        """The whole body; the caller drops it as soon as it is parsed."""
        if self._file is None:
            self._memory = [b"".join(self._memory)]
            return self._memory[0]
        return os.pread(self._file.fileno(), self.n_bytes, 0)

    async def pieces(self, n_bytes: int | None = None) -> AsyncIterator[bytes]:
        """Yield the body, or its first so many bytes."""
        left = self.n_bytes if n_bytes is None else min(n_bytes, self.n_bytes)
        if self._file is None:
            yield self.read_all()[:left]
            return
        position = 0
        while left:
            data = os.pread(self._file.fileno(), min(PIECE_BYTES, left), position)
            position += len(data)
            left -= len(data)
            yield data

    def part(self, start: int, n_bytes: int) -> Iterator[bytes]:
        """Yield a part of it, in pieces."""
        if self._file is None:
            yield self.read_all()[start : start + n_bytes]
            return
        end = min(start + n_bytes, self.n_bytes)
        while start < end:
            data = os.pread(self._file.fileno(), min(PIECE_BYTES, end - start), start)
            start += len(data)
            yield data

    async def words_in(self, words: Iterable[str]) -> tuple[str, ...]:
        """Those of the words that stand in it; between two pieces others may run."""
        asked = tuple(dict.fromkeys(words))
        sought = {word: word.encode() for word in asked}
        longest = max(map(len, sought.values()), default=0)
        tail = b""
        for data in self.part(0, self.n_bytes) if sought else ():
            seen = tail + data
            sought = {word: written for word, written in sought.items() if written not in seen}
            if not sought:
                break
            tail = seen[len(seen) - longest + 1 :] if longest > 1 else b""
            await sleep_s(0)
        return tuple(word for word in asked if word not in sought)

    def replace_large(self, pieces: Iterable[bytes]) -> None:
        """Hold another body instead, which is made from this one.

        Raises:
            OSError: The disk is full.
        """
        file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115 - closed by `close`
        try:
            n_bytes = 0
            for data in pieces:
                _write_all(file.fileno(), data)
                n_bytes += len(data)
        except BaseException:
            file.close()
            raise
        self.close()
        self._file, self.n_bytes = file, n_bytes

    def replace(self, data: bytes) -> None:
        """Hold another body instead."""
        self.close()
        self._memory = [data]
        self.n_bytes = len(data)

    def close(self) -> None:
        """Free it."""
        self._memory.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exit: object) -> None:
        self.close()


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
