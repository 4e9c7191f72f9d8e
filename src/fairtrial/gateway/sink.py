"""The client's side of a reply, where a planned fault does its work."""

from collections.abc import Sequence
from typing import Final

from fairtrial.wire.faults import FaultKind, Garbler, PlannedFault
from fairtrial.wire.loop import loop_s, sleep_s
from fairtrial.wire.serve import Incoming

__all__ = ["CutError", "Sink"]

_SWALLOWING: Final = frozenset({FaultKind.DROP_REPLY, FaultKind.RST_REPLY})


class CutError(Exception):
    """A planned fault has cut the reply: nothing more is wanted of whoever answers."""


class Sink:
    """Passes a reply on to the client, or as much of it as a fault lets through.

    Attributes:
        status: The status that the client was sent; None while it was sent none.
        fired: The fault's effect is complete.
        replied_s: When a whole reply was handed to the client, on the loop's clock; None while none was.
    """

    def __init__(self, incoming: Incoming, rule: PlannedFault | None) -> None:
        self.status: int | None = None
        self.fired = False
        self.replied_s: float | None = None
        self._incoming = incoming
        self._rule = rule
        self._kind = None if rule is None else rule.fault.kind
        self._parameter = None if rule is None else rule.fault.parameter
        self._garbler = Garbler(self._parameter or 0) if self._kind is FaultKind.GARBLE_REPLY else None
        cuts = self._kind in {FaultKind.TRUNCATE_REPLY, FaultKind.STALL}
        self._left = self._parameter if cuts else None
        self._silent = self._kind in _SWALLOWING or (self._kind is FaultKind.STALL and self._parameter is None)

    @property
    def broken(self) -> bool:
        """The client does not get the reply whole and as it was, by plan."""
        return self._silent or self.garbled

    @property
    def garbled(self) -> bool:
        """All of the planned nonsense has gone to the client."""
        return self._garbler is not None and self._garbler.done

    def fire(self) -> None:
        """Note that the fault's effect is complete."""
        if self._rule is not None and not self.fired:
            self.fired = True
            self._rule.n_fired += 1

    async def begin(self, status: int, fields: Sequence[tuple[str, str]], *, n_bytes: int | None) -> None:
        """Pass the head on."""
        if not self._silent:
            await self._incoming.begin(status, fields, n_bytes=n_bytes)
            self.status = status

    async def send(self, data: bytes) -> None:
        """Pass a part of the body on.

        Raises:
            CutError: A fault has cut the reply.
        """
        if self._silent:
            return
        if self._garbler is not None:
            data = self._garbler.garble(data)
        if self._kind is FaultKind.THROTTLE:
            await sleep_s(len(data) / (self._parameter or 1))
        if self._left is not None and len(data) > self._left:
            await self._incoming.send(data[: self._left])
            self._silent = True
            self.fire()
            if self._kind is FaultKind.TRUNCATE_REPLY:
                self._incoming.break_off()
                raise CutError
            # Nothing more is read either: what a stalled provider had said by then is all that is known of its reply.
            await self._incoming.stay_silent()
        if self._left is not None:
            self._left -= len(data)
        await self._incoming.send(data)

    async def end(self) -> None:
        """End the reply as it should end, or as the fault wants it."""
        if not self._silent:
            await self._incoming.end()
            if self._kind in {FaultKind.DELAY, FaultKind.THROTTLE} or self.garbled:
                self.fire()
            return
        self.fire()
        match self._kind:
            case FaultKind.RST_REPLY:
                self._incoming.reset()
            case FaultKind.STALL:
                await self._incoming.stay_silent()
            case _:
                self._incoming.break_off()

    async def reply(self, status: int, fields: Sequence[tuple[str, str]], body: bytes) -> None:
        """Send a whole reply."""
        self.replied_s = loop_s()
        if self._kind is None or self._kind is FaultKind.STATUS:
            await self._incoming.reply(status, fields, body)
            self.status = status
            return
        await self.begin(status, fields, n_bytes=len(body))
        await self.send(body)
        await self.end()
