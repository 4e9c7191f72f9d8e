"""A forwarder for any protocol over TCP: it counts bytes, and finds a publication by a mark in what the client sends.

It knows no requests and no replies. A fault begins where the mark has just passed: the upload is cut, reset or held,
or what the server says from then on is swallowed. The end of the server's answer is its FIN or a short silence.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import override

from fairtrial.wire.faults import Fault, FaultKind, PlannedFault, take_due
from fairtrial.wire.forwarding import Forwarding
from fairtrial.wire.gate import hold_back
from fairtrial.wire.http1 import PIECE_BYTES
from fairtrial.wire.ledger import ConnectionReuse, Delivery, RequestRecord
from fairtrial.wire.peer import Address, Peer

__all__ = ["METHOD", "STREAM_KINDS", "StreamForwarder"]

METHOD: Final = "TCP"
"""What stands for a method in the record of a mark, so that rules and readers need no second form."""

STREAM_KINDS: Final = frozenset(
    {
        FaultKind.DROP_REPLY,
        FaultKind.RST_REPLY,
        FaultKind.DROP_MID_REQUEST,
        FaultKind.RST_CONNECT,
        FaultKind.DELAY,
        FaultKind.STALL,
    }
)
_SWALLOW: Final = frozenset({FaultKind.DROP_REPLY, FaultKind.RST_REPLY, FaultKind.STALL})
_QUIET_S: Final = 0.3
_AHEAD_PIECES: Final = 256


@dataclass(slots=True, eq=False)
class _Mark:
    """One passing of the mark, and the fault that hit it."""

    started_s: float
    rule: PlannedFault | None
    up_bytes: int = 0
    down_bytes: int = 0
    sent_bytes: int = 0
    cut: bool = False
    fired: bool = False

    @property
    def kind(self) -> FaultKind | None:
        return None if self.rule is None else self.rule.fault.kind

    def fire(self) -> None:
        if self.rule is not None and not self.fired:
            self.fired = True
            self.rule.n_fired += 1


class StreamForwarder(Forwarding):
    """Forwards bytes both ways. Reuse is without meaning here; it is what the ledger repeats."""

    def __init__(
        self, *, upstream: Address, watch: str, faults: Sequence[Fault], on_record: Callable[[RequestRecord], None]
    ) -> None:
        super().__init__(upstream=upstream, reuse=ConnectionReuse.REUSED, faults=faults, on_record=on_record)
        self._watch = watch

    @property
    @override
    def n_in_flight(self) -> int:
        """Connections that have not ended on both sides."""
        return len(self._tasks)

    @override
    async def _wait_idle(self) -> None:
        await self._tasks.wait_none()

    @override
    async def _serve(self, client: Peer, number: int) -> None:
        try:
            server = await self._connect()
        except OSError:
            client.reset()  # as a direct client would have found
            return
        mark = self._watch.encode()
        connection = _Connection(client=client, server=server, watch=mark, take=self._take, released=self._released)
        try:
            await connection.run()
        finally:
            client.abort()
            server.abort()
            for each in connection.marks:
                self._on_record(self._record(each, number))

    def _take(self) -> PlannedFault | None:
        return take_due(self._planned, method=METHOD, target=self._watch)

    def _record(self, mark: _Mark, number: int) -> RequestRecord:
        """A mark in the form of a request; what only HTTP has is unknown, and so are ends: TCP announces no length."""
        now_s = asyncio.get_running_loop().time()
        delivery = Delivery.COMPLETE
        if mark.cut or mark.sent_bytes < mark.up_bytes:  # by a fault, or because the server left
            delivery = Delivery.PARTIAL if mark.sent_bytes else Delivery.NOT_SENT
        return RequestRecord(
            connection=number,
            method=METHOD,
            target=self._watch,
            started_ms=round((mark.started_s - self._origin_s) * 1000, 3),
            elapsed_ms=round((now_s - mark.started_s) * 1000, 3),
            request_declared_bytes=None,
            request_head_bytes=0,
            request_body_bytes=mark.up_bytes,
            request_wire_bytes=mark.up_bytes,
            request_complete=None,
            delivery=delivery,
            status=None,
            reply_head_bytes=0,
            reply_body_bytes=mark.down_bytes,
            reply_wire_bytes=mark.down_bytes,
            reply_complete=None,
            client_status=None,
            client_gone=None,
            fault=mark.kind,
            fault_fired=mark.fired,
            error=None,
        )


@dataclass(slots=True, kw_only=True)
class _Connection:
    """Both directions of one connection until both have ended."""

    client: Peer
    server: Peer
    watch: bytes
    take: Callable[[], PlannedFault | None]
    released: asyncio.Event
    marks: list[_Mark] = field(default_factory=list[_Mark])
    _tail: bytes = b""
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _client_left: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Forward both ways; the server's last words are waited for when the client has left.

        There is no limit to that: what the server does so late may land yet, and whoever drains must be told.
        """
        pieces: asyncio.Queue[bytes] = asyncio.Queue(_AHEAD_PIECES)
        reading = asyncio.create_task(self._read_client(pieces))
        up = asyncio.create_task(self._send_up(pieces))
        down = asyncio.create_task(self._send_down())
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait([up, down, ended], return_when=asyncio.FIRST_COMPLETED)
            if up.done() and not self._ended.is_set():
                self.server.end_sending()
                await asyncio.wait([down, ended], return_when=asyncio.FIRST_COMPLETED)
            if up.done():
                await up  # a bug of ours is not swallowed
            if down.done():
                await down
            if down.done() and not self._ended.is_set():
                self.client.close()
                await self.client.wait_closed()
        finally:
            for task in (reading, up, down, ended):
                task.cancel()
            await asyncio.wait([reading, up, down, ended])

    async def _read_client(self, pieces: asyncio.Queue[bytes]) -> None:
        """Take what the client sends out of its hands, so that it lives on when the client dies."""
        try:
            while data := await self.client.reader.read(PIECE_BYTES):
                await pieces.put(data)
        except ConnectionError:
            pass  # it left: what came before counts
        self._client_left.set()
        await pieces.put(b"")

    async def _send_up(self, pieces: asyncio.Queue[bytes]) -> None:
        try:
            while data := await pieces.get():
                for start, stop, mark in self._split(data):
                    if mark is not None and not await self._hit(mark):
                        return
                    if not await self._pass_up(data[start:stop]):
                        return
        except ConnectionError:
            return  # the server has left; its direction ends by itself

    def _split(self, data: bytes) -> list[tuple[int, int, _Mark | None]]:
        """Parts of a piece, cut behind each mark; a mark may have begun in the piece before."""
        seen = self._tail + data
        ahead = len(self._tail)
        cuts = [0]
        at = seen.find(self.watch)
        while at >= 0:
            cuts.append(at + len(self.watch) - ahead)
            at = seen.find(self.watch, at + len(self.watch))
        self._tail = seen[max(0, len(seen) - len(self.watch) + 1) :] if cuts[-1] < len(data) else b""
        parts: list[tuple[int, int, _Mark | None]] = []
        for index, start in enumerate(cuts):
            stop = cuts[index + 1] if index + 1 < len(cuts) else len(data)
            mark = None if index == 0 else _Mark(asyncio.get_running_loop().time(), self.take())
            parts.append((start, stop, mark))
        return parts

    async def _hit(self, mark: _Mark) -> bool:
        """Begin what a fault does at the mark; false when nothing more goes up."""
        self.marks.append(mark)
        match mark.kind:
            case FaultKind.RST_CONNECT:
                mark.cut = True
                mark.fire()
                self.client.reset()
                self._ended.set()
                return False
            case FaultKind.DELAY:
                await hold_back((mark.rule.fault.parameter or 0) / 1000 if mark.rule else 0, self.released)
                mark.fire()
            case _:
                pass
        return True

    async def _pass_up(self, data: bytes) -> bool:
        """Send a part on, to where a fault cuts it; false when it was cut."""
        mark = self.marks[-1] if self.marks else None
        if mark is None:
            await self.server.send(data)
            return True
        mark.up_bytes += len(data)
        if mark.kind is FaultKind.DROP_MID_REQUEST and mark.rule is not None:
            left = (mark.rule.fault.parameter or 0) - mark.sent_bytes
            if len(data) > left:
                if left:
                    await self.server.send(data[:left])
                mark.sent_bytes += left
                mark.cut = True
                mark.fire()
                self.client.close()
                self.server.close()
                await self.server.wait_closed()
                self._ended.set()
                return False
        await self.server.send(data)
        mark.sent_bytes += len(data)
        return True

    async def _send_down(self) -> None:
        while data := await self._read_server():
            mark = self.marks[-1] if self.marks else None
            if mark is not None:
                mark.down_bytes += len(data)
            if mark is not None and mark.kind in _SWALLOW:
                continue
            try:
                await self.client.send(data)
            except ConnectionError:
                continue  # it left; the server is heard to its end all the same
        mark = self.marks[-1] if self.marks else None
        if mark is not None and mark.kind in _SWALLOW and mark.down_bytes:
            await self._end_swallowed(mark)

    async def _read_server(self) -> bytes:
        """Read what the server says; b"" at its end, or when it has been silent after an answer that was swallowed."""
        mark = self.marks[-1] if self.marks else None
        swallowing = mark is not None and mark.kind in _SWALLOW and mark.down_bytes > 0
        try:
            async with asyncio.timeout(_QUIET_S if swallowing else None):
                return await self.server.reader.read(PIECE_BYTES)
        except (TimeoutError, ConnectionError):
            return b""

    async def _end_swallowed(self, mark: _Mark) -> None:
        mark.fire()
        if mark.kind is FaultKind.RST_REPLY:
            self.client.reset()
        elif mark.kind is FaultKind.STALL:
            await self._client_left.wait()
        self._ended.set()
