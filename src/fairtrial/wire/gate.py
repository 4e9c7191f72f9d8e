"""What of one direction of an exchange gets through, how fast, and how a held body is kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from enum import Enum

from fairtrial.wire.http1 import BadMessageError, EndedEarlyError, Piece
from fairtrial.wire.peer import Pace, Peer

__all__ = ["NOTHING", "AtCut", "Gate", "ReadAhead", "hold_back"]

NOTHING = -1
"""The allowance that does not even let the head through."""

_AHEAD_PIECES = 64


class AtCut(Enum):
    """What a gate does to the connection when its allowance is used up."""

    CLOSE = "close"
    SILENCE = "silence"


class Gate:
    """Passes a message on until its allowance is used up or the receiver is gone; the rest is swallowed.

    A receiver that is gone is no error here: whoever sends must still be read to the end, so that what it did is known.

    Attributes:
        cut: Something was held back by the allowance.
        gone: The receiver took no more.
    """

    def __init__(
        self, receiver: Peer, *, pace: Pace | None = None, allowance: int | None = None, at_cut: AtCut = AtCut.CLOSE
    ) -> None:
        """Open the gate.

        Args:
            receiver: Who the message is for.
            pace: How fast; None = as fast as the receiver takes it.
            allowance: Payload bytes of the body that may pass; None = all, `NOTHING` = not even the head.
            at_cut: What happens to the connection at the first byte beyond.
        """
        self._receiver = receiver
        self._pace = pace
        self._left = allowance
        self._at_cut = at_cut
        self.cut = False
        self.gone = False

    async def send(self, data: bytes) -> None:
        """Pass bytes that no allowance concerns."""
        if self.gone:
            return
        try:
            await (self._receiver.send(data) if self._pace is None else self._pace.send(self._receiver, data))
        except ConnectionError:
            self.gone = True

    async def send_head(self, raw: bytes) -> None:
        """Pass the head of the message."""
        if self._left == NOTHING:
            self.cut = True
        else:
            await self.send(raw)

    async def send_piece(self, piece: Piece) -> None:
        """Pass a piece of the body, or as much of it as is allowed."""
        if self.cut:
            return
        if self._left is None or piece.n_payload_bytes <= self._left:
            self._left = None if self._left is None else self._left - piece.n_payload_bytes
            await self.send(piece.wire)
            return
        self.cut = True
        await self.send(piece.cut(self._left))
        if self._at_cut is AtCut.CLOSE:
            self._receiver.close()


class ReadAhead:
    """Takes a held body out of its sender's hands, so that it lives on when the sender dies; at most 16 MiB of it.

    Attributes:
        task: The reading; whoever made this ends it.
    """

    def __init__(self, body: AsyncIterator[Piece]) -> None:
        self._queue: asyncio.Queue[Piece | BadMessageError | EndedEarlyError | None] = asyncio.Queue(_AHEAD_PIECES)
        self.task = asyncio.create_task(self._fill(body))

    async def _fill(self, body: AsyncIterator[Piece]) -> None:
        try:
            async for piece in body:
                await self._queue.put(piece)
        except (BadMessageError, EndedEarlyError) as error:
            await self._queue.put(error)
        else:
            await self._queue.put(None)

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the body from its beginning, ending as it ended.

        Raises:
            BadMessageError: The chunk framing is broken.
            EndedEarlyError: The sender left before the body's end.
        """
        while (item := await self._queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item


async def hold_back(time_s: float, released: asyncio.Event) -> None:
    """Wait so long, or until whoever wants to see the end of it lets it go."""
    with suppress(TimeoutError):
        async with asyncio.timeout(time_s):
            await released.wait()
