"""One request from its head to the end of its reply: forwarded, watched, and hit by at most one fault.

The two directions run at the same time, because a server may answer before it has read everything (413, 100 Continue,
progress on a side band). A client that has sent a complete request is not needed any more: its request goes on
upstream and its reply is read to the end even when nobody is left to take it. That is how late publication happens on
real networks, so it must happen here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from fairtrial.wire.faults import FaultKind, Garbler, PlannedFault
from fairtrial.wire.gate import NOTHING, AtCut, Gate, ReadAhead, hold_back
from fairtrial.wire.http1 import (
    BadMessageError,
    EndedEarlyError,
    Piece,
    ReplyHead,
    RequestHead,
    parse_reply_head,
    read_body,
    read_head,
    render_answer,
    with_connection_close,
)
from fairtrial.wire.ledger import ConnectionReuse, Delivery, RequestRecord
from fairtrial.wire.peer import Pace, Peer

__all__ = ["After", "Exchange", "Observed"]


class After(Enum):
    """What becomes of the client's connection when an exchange is over."""

    KEEP = "keep"
    CLOSE = "close"
    LINGER = "linger"
    RESET = "reset"


@dataclass(slots=True, kw_only=True, eq=False)
class Observed:
    """A `RequestRecord` in the making; compared by identity, as one of many in flight."""

    connection: int
    started_s: float
    method: str = ""
    target: str = ""
    request_declared_bytes: int | None = None
    request_head_bytes: int = 0
    request_body_bytes: int = 0
    request_wire_bytes: int = 0
    request_complete: bool = False
    delivery: Delivery = Delivery.NOT_SENT
    status: int | None = None
    reply_head_bytes: int = 0
    reply_body_bytes: int = 0
    reply_wire_bytes: int = 0
    reply_complete: bool = False
    client_status: int | None = None
    client_gone: bool = False
    fault: FaultKind | None = None
    fault_fired: bool = False
    error: str | None = None

    def record(self, *, origin_s: float, now_s: float) -> RequestRecord:
        """Freeze it; times on the event loop's clock."""
        return RequestRecord(
            connection=self.connection,
            method=self.method,
            target=self.target,
            started_ms=round((self.started_s - origin_s) * 1000, 3),
            elapsed_ms=round((now_s - self.started_s) * 1000, 3),
            request_declared_bytes=self.request_declared_bytes,
            request_head_bytes=self.request_head_bytes,
            request_body_bytes=self.request_body_bytes,
            request_wire_bytes=self.request_wire_bytes,
            request_complete=self.request_complete,
            delivery=self.delivery,
            status=self.status,
            reply_head_bytes=self.reply_head_bytes,
            reply_body_bytes=self.reply_body_bytes,
            reply_wire_bytes=self.reply_wire_bytes,
            reply_complete=self.reply_complete,
            client_status=self.client_status,
            client_gone=self.client_gone,
            fault=self.fault,
            fault_fired=self.fault_fired,
            error=self.error,
        )


class Exchange:
    """One request, as soon as its head is known.

    Attributes:
        observed: What is seen of it, kept up to date as it goes.
    """

    def __init__(
        self,
        *,
        request: RequestHead,
        raw_head: bytes,
        client: Peer,
        connect: Callable[[], Awaitable[Peer]],
        rule: PlannedFault | None,
        reuse: ConnectionReuse,
        observed: Observed,
        on_upstream_done: Callable[[], None],
        released: asyncio.Event,
    ) -> None:
        self.observed = observed
        self._request = request
        self._raw_head = raw_head
        self._client = client
        self._connect = connect
        self._rule = rule
        self._kind = None if rule is None else rule.fault.kind
        self._parameter = None if rule is None else rule.fault.parameter
        self._closes = request.method == "GET" and reuse is ConnectionReuse.FRESH
        self._on_upstream_done = on_upstream_done
        self._released = released
        self._garbler = Garbler(self._parameter or 0) if self._kind is FaultKind.GARBLE_REPLY else None
        observed.method, observed.target = request.method, request.target
        observed.request_declared_bytes = request.framing.n_bytes
        observed.request_head_bytes = observed.request_wire_bytes = len(raw_head)
        observed.fault = self._kind

    async def run(self) -> After:
        """Serve the request to its end and say what becomes of the client's connection."""
        body = read_body(self._client.reader, self._request.framing)
        try:
            return await self._carry_out(body)
        except BadMessageError as error:
            self.observed.error = f"bad request body: {error}"
            await self._answer(400)
            return After.LINGER
        except EndedEarlyError as error:
            self.observed.client_gone = True
            self.observed.error = f"the client left inside its request: {error}"
            return After.CLOSE

    async def _carry_out(self, body: AsyncIterator[Piece]) -> After:
        match self._kind:
            case FaultKind.RST_CONNECT:
                self._fire()
                return After.RESET
            case FaultKind.DROP_BEFORE_FORWARD:
                await self._discard_request(body)
                self._fire()
                return After.CLOSE
            case FaultKind.STATUS:
                await self._discard_request(body)
                return await self._refuse_as_planned()
            case FaultKind.DELAY:
                return await self._forward_late(body)
            case _:
                return await self._forward(body)

    def _fire(self) -> None:
        self.observed.fault_fired = True
        if self._rule is not None:
            self._rule.n_fired += 1

    async def _refuse_as_planned(self) -> After:
        status = self._parameter or 503
        retry_after_s = None if self._rule is None else self._rule.fault.retry_after_s
        persists = self._request.keep_alive
        await self._send_answer(
            status, render_answer(status, retry_after_s=retry_after_s, connection_close=not persists)
        )
        self._fire()
        return After.KEEP if persists else After.CLOSE

    async def _answer(self, status: int) -> None:
        """Send a reply of our own, unless the client has had the beginning of another one."""
        if self.observed.client_status is None:
            await self._send_answer(status, render_answer(status, connection_close=True))

    async def _send_answer(self, status: int, answer: bytes) -> None:
        try:
            await self._client.send(answer)
        except ConnectionError:
            self.observed.client_gone = True
        else:
            self.observed.client_status = status

    def _count_request(self, piece: Piece) -> None:
        self.observed.request_body_bytes += piece.n_payload_bytes
        self.observed.request_wire_bytes += len(piece.wire)

    async def _discard_request(self, body: AsyncIterator[Piece]) -> None:
        """Read the request to its end and drop it."""
        if self._request.expects_continue:
            with suppress(ConnectionError):  # the reading below finds out and says so
                await self._client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        async for piece in body:
            self._count_request(piece)
        self.observed.request_complete = True

    async def _forward_late(self, body: AsyncIterator[Piece]) -> After:
        ahead = ReadAhead(body)
        try:
            await hold_back((self._parameter or 0) / 1000, self._released)
            return await self._forward(ahead.pieces())
        finally:
            await _end_task(ahead.task)

    async def _forward(self, body: AsyncIterator[Piece]) -> After:
        try:
            upstream = await self._connect()
        except OSError as error:
            self.observed.error = f"the server cannot be reached: {error}"
            await self._discard_request(body)
            await self._answer(502)
            return After.CLOSE
        gate = self._reply_gate()
        sender = asyncio.create_task(self._send_request(upstream, body))
        try:
            reply = await self._receive_reply(upstream, gate)
            persists = reply is not None and reply.keep_alive and self._request.keep_alive and not gate.gone
            if sender.done() or persists:
                await sender
        finally:
            await _end_task(sender)
        self.observed.client_gone = gate.gone
        if reply is not None and not self.observed.request_complete:
            return After.LINGER  # the server answered early and wants no more
        return await self._finish(gate, After.KEEP if persists and not self._closes else After.CLOSE)

    def _reply_gate(self) -> Gate:
        match self._kind:
            case FaultKind.DROP_REPLY | FaultKind.RST_REPLY:
                return Gate(self._client, allowance=NOTHING, at_cut=AtCut.SILENCE)
            case FaultKind.STALL:
                allowance = NOTHING if self._parameter is None else self._parameter
                return Gate(self._client, allowance=allowance, at_cut=AtCut.SILENCE)
            case FaultKind.TRUNCATE_REPLY:
                return Gate(self._client, allowance=self._parameter)
            case _:
                return Gate(self._client, pace=self._pace())

    def _pace(self) -> Pace | None:
        return Pace(self._parameter or 1) if self._kind is FaultKind.THROTTLE else None

    async def _finish(self, gate: Gate, natural: After) -> After:
        """Carry out what a fault has left to do once the server is done."""
        match self._kind:
            case FaultKind.DROP_REPLY if self.observed.reply_complete:
                self._fire()
                return After.CLOSE
            case FaultKind.RST_REPLY if self.observed.reply_complete:
                self._fire()
                return After.RESET
            case FaultKind.TRUNCATE_REPLY if gate.cut:
                self._fire()
                return After.CLOSE
            case FaultKind.STALL if gate.cut:
                self._fire()
                self._on_upstream_done()
                await self._client.discard_until_end()
                self.observed.client_gone = True
                return After.CLOSE
            case FaultKind.GARBLE_REPLY if self._garbler is not None and self._garbler.done:
                self._fire()
                return natural
            case FaultKind.DELAY | FaultKind.THROTTLE if self.observed.delivery is Delivery.COMPLETE:
                self._fire()
                return natural
            case _:
                return natural

    async def _send_request(self, upstream: Peer, body: AsyncIterator[Piece]) -> None:
        """Send the request on, to its end or to where a fault cuts it."""
        allowance = self._parameter if self._kind is FaultKind.DROP_MID_REQUEST else None
        gate = Gate(upstream, pace=self._pace(), allowance=allowance)
        try:
            await gate.send_head(self._raw_head)
            self.observed.delivery = Delivery.PARTIAL
            async for piece in body:
                self._count_request(piece)
                await gate.send_piece(piece)
                if gate.cut:
                    self._fire()
                    return
        except BaseException:
            upstream.abort()  # the other direction ends too, and the server never sees an end of this request
            raise
        self.observed.request_complete = True
        if not gate.gone:
            self.observed.delivery = Delivery.COMPLETE

    async def _receive_reply(self, upstream: Peer, gate: Gate) -> ReplyHead | None:
        """Read the reply to its end and pass on what the gate lets through; None when there was no whole reply."""
        try:
            head = await self._receive_heads(upstream, gate)
            async for piece in read_body(upstream.reader, head.framing):
                self.observed.reply_body_bytes += piece.n_payload_bytes
                self.observed.reply_wire_bytes += len(piece.wire)
                if self._garbler is not None:
                    piece = piece.with_payload(self._garbler.garble(piece.payload))  # noqa: PLW2901
                await gate.send_piece(piece)
        except EndedEarlyError as error:
            # After a planned cut of the request it is we who left.
            self.observed.error = None if self.observed.fault_fired else f"the server left inside its reply: {error}"
        except BadMessageError as error:
            self.observed.error = f"bad reply: {error}"
            await self._answer(502)
        else:
            self.observed.reply_complete = True
            return head
        return None

    async def _receive_heads(self, upstream: Peer, gate: Gate) -> ReplyHead:
        """Read interim heads, which always pass, and the final one."""
        while True:
            raw = await read_head(upstream.reader)
            if raw is None:
                msg = "closed without a reply"
                raise EndedEarlyError(msg)
            self.observed.reply_head_bytes += len(raw)
            self.observed.reply_wire_bytes += len(raw)
            head = parse_reply_head(raw, method=self._request.method)
            if head.interim:
                await gate.send(raw)
                continue
            self.observed.status = head.status
            await gate.send_head(with_connection_close(raw) if self._closes else raw)
            self.observed.client_status = None if gate.cut else head.status
            return head


async def _end_task(task: asyncio.Task[None]) -> None:
    """Cancel a task unless it is done, and wait until it is."""
    if task.cancel():
        await asyncio.wait([task])
