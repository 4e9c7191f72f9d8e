"""What comes from a peer: counted as it is taken, and handed on as the kernel gave it.

asyncio's own reader copies every byte into a buffer and out of it again, which costs a gateway more than
anything else it does with them. This one keeps the pieces; it stands in for asyncio's where that is expected.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

from typing_extensions import override

from fairtrial.wire.http1 import PIECE_BYTES

__all__ = ["ByteCount", "CountedReader"]


@dataclass(slots=True)
class ByteCount:
    """A running count of bytes.

    Attributes:
        n_bytes: The count.
    """

    n_bytes: int = 0


class CountedReader(asyncio.StreamReader):
    """A stream reader that counts what is taken out of it, and can wait for input without taking it.

    It holds at most two pieces of `PIECE_BYTES` and what the kernel gave last; then the peer has to wait.
    """

    def __init__(self, count: ByteCount, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._count = count
        self._clock = loop
        self._pieces: deque[bytes] = deque()
        self._n_taken = 0  # of the first piece
        self._n_held = 0
        self._at_end = False
        self._broken: Exception | None = None
        self._wanted: asyncio.Future[None] | None = None
        self._source: asyncio.Transport | None = None
        self._is_paused = False

    @override
    def set_transport(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._source = transport

    @override
    def feed_data(self, data: bytes) -> None:  # type: ignore[override] # a transport gives bytes
        if data:
            self._pieces.append(data)
            self._n_held += len(data)
            self._wake()
            if self._n_held > 2 * PIECE_BYTES and self._source is not None and not self._is_paused:
                self._source.pause_reading()
                self._is_paused = True

    @override
    def feed_eof(self) -> None:
        self._at_end = True
        self._wake()

    @override
    def at_eof(self) -> bool:
        return self._at_end and not self._n_held

    @override
    def exception(self) -> Exception | None:
        return self._broken

    @override
    def set_exception(self, exc: Exception) -> None:
        self._broken = exc
        self._wake()

    def _wake(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    async def wait_input(self) -> bool:
        """Wait until there is something to read; False when the end has come instead.

        Raises:
            OSError: The connection broke.
        """
        return await self._wait_more(0)

    async def _wait_more(self, n_held: int) -> bool:
        """Wait until more is here than so much."""
        if self._broken is not None:
            raise self._broken
        while self._n_held <= n_held and not self._at_end:
            self._resume()
            self._wanted = self._clock.create_future()
            try:
                await self._wanted
            finally:
                self._wanted = None
            if self._broken is not None:
                raise self._broken
        return self._n_held > n_held

    def _resume(self) -> None:
        if self._is_paused and self._source is not None:
            self._is_paused = False
            self._source.resume_reading()

    @override
    async def read(self, n: int = -1) -> bytes:
        """Read at least one byte and at most `n`; b"" at the end.

        Raises:
            OSError: The connection broke.
        """
        if not await self._wait_more(0):
            return b""
        return self._take(self._n_held if n < 0 else min(n, self._n_held))

    @override
    async def readuntil(self, separator: bytes = b"\n") -> bytes:  # type: ignore[override] # nobody looks for more
        """Read up to and with the one-byte separator.

        Raises:
            asyncio.IncompleteReadError: The end came first.
            asyncio.LimitOverrunError: It is further away than `PIECE_BYTES`.
            OSError: The connection broke.
        """
        n_searched = 0
        while await self._wait_more(n_searched):
            if n_searched:
                self._pieces = deque([self._peek()])
                self._n_taken = 0
            at = self._pieces[0].find(separator, self._n_taken + n_searched)
            n_searched = len(self._pieces[0]) - self._n_taken
            if at >= 0:
                return self._take(at + 1 - self._n_taken)
            if n_searched > PIECE_BYTES:
                raise asyncio.LimitOverrunError("no separator within the limit", n_searched)
        raise asyncio.IncompleteReadError(self._take(self._n_held), None)

    async def take_until(self, end: bytes) -> bytes:
        """Wait for input; take it up to and with `end` if all of that is here in one piece, else nothing: b"".

        Raises:
            OSError: The connection broke.
        """
        if not await self._wait_more(0):
            return b""
        at = self._pieces[0].find(end, self._n_taken)
        return b"" if at < 0 else self._take(at + len(end) - self._n_taken)

    def _peek(self) -> bytes:
        """All that is held, in one piece."""
        first, *others = self._pieces
        return b"".join((first[self._n_taken :], *others))

    def _take(self, n: int) -> bytes:
        """Take so many bytes of what is held."""
        parts: list[bytes] = []
        left = n
        while left:
            first = self._pieces[0]
            here = len(first) - self._n_taken
            if here <= left:
                parts.append(first[self._n_taken :] if self._n_taken else first)
                self._pieces.popleft()
                self._n_taken = 0
                left -= here
            else:
                parts.append(first[self._n_taken : self._n_taken + left])
                self._n_taken += left
                left = 0
        self._n_held -= n
        self._count.n_bytes += n
        if self._is_paused and self._n_held <= PIECE_BYTES:
            self._resume()
        return parts[0] if len(parts) == 1 else b"".join(parts)
