"""One side of a connection: bytes counted both ways, back-pressure, and the ways to end it."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from typing_extensions import override

from fairtrial.errors import UsageError
from fairtrial.wire.http1 import PIECE_BYTES
from fairtrial.wire.reader import ByteCount, CountedReader

__all__ = ["Address", "Pace", "Peer", "connect_peer", "listen_for_peers", "parse_address"]

# SO_LINGER on with zero seconds: close() sends RST instead of FIN.
_LINGER_ZERO = struct.pack("ii", 1, 0)
_LINGER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens.

    Attributes:
        host: Host name or address; the path of a unix socket when `port` is None.
        port: TCP port, or None.
    """

    host: str
    port: int | None


def parse_address(text: str) -> Address:
    """Parse `host:port`, `[v6address]:port` or `unix:/path`.

    Raises:
        UsageError: It is neither.
    """
    if text.startswith("unix:/"):
        return Address(host=text.removeprefix("unix:"), port=None)
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        msg = f"upstream {text!r} is neither host:port nor unix:/path"
        raise UsageError(msg)
    return Address(host=host.removeprefix("[").removesuffix("]"), port=int(port))


class Peer:
    """One open connection.

    Attributes:
        reader: What comes from the peer.
        count_noticed: How often something has come so far, the end included; only where we connected.
    """

    def __init__(
        self,
        reader: CountedReader,
        writer: asyncio.StreamWriter,
        sent: ByteCount,
        count_noticed: Callable[[], int] = int,
    ) -> None:
        """Wrap a connection.

        Args:
            reader: What comes from the peer.
            writer: What goes there.
            sent: Counts what goes there.
            count_noticed: How often something has come so far, the end included.
        """
        self.reader = reader
        self.count_noticed = count_noticed
        self._writer = writer
        self._sent = sent

    async def send(self, data: bytes) -> None:
        """Send, waiting while the peer does not take it.

        Raises:
            ConnectionError: The connection is gone.
        """
        transport = self._writer.transport
        if transport.is_closing():
            # write() on a lost transport only logs, and drain() would return.
            msg = "the connection is closed"
            raise ConnectionResetError(msg)
        self._sent.n_bytes += len(data)
        transport.write(data)
        if transport.get_write_buffer_size() or transport.is_closing():  # nearly always the kernel has taken it all
            await self._writer.drain()

    def close(self) -> None:
        """Send what is left and then FIN (RST where the kernel still holds unread input), without waiting."""
        self._writer.close()

    def abort(self) -> None:
        """Drop what is left and close."""
        transport = self._writer.transport
        if transport.is_closing() and not transport.get_write_buffer_size():
            return  # asyncio fails on an abort after a close that had something left to send
        transport.abort()

    def reset(self) -> None:
        """Drop what is left and send RST; nothing where the connection is gone already."""
        if not self._writer.transport.is_closing():
            sock = cast("socket.socket", self._writer.get_extra_info("socket"))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        self.abort()

    def end_sending(self) -> None:
        """Send FIN and go on reading."""
        if self._writer.can_write_eof() and not self._writer.transport.is_closing():
            self._writer.write_eof()

    async def wait_closed(self) -> None:
        """Wait until a closed connection has sent what was left."""
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            # The peer was faster; the connection is as closed as it can be.
            return

    async def discard_until_end(self) -> None:
        """Read and drop until the peer leaves."""
        try:
            while await self.reader.read(PIECE_BYTES):
                pass
        except ConnectionError:
            return

    async def close_lingering(self) -> None:
        """Send FIN, then give the peer a second to stop sending: RST on unread input could overtake the reply."""
        self.end_sending()
        try:
            async with asyncio.timeout(_LINGER_S):
                await self.discard_until_end()
        except TimeoutError:
            self.abort()
        self.close()


class Pace:
    """Sends no faster than so many bytes a second, in steps of a twentieth of a second's worth."""

    def __init__(self, rate_bytes_per_s: int) -> None:
        self._rate = rate_bytes_per_s
        self._step = max(1, rate_bytes_per_s // 20)
        self._clock = asyncio.get_running_loop().time
        self._due_s = self._clock()

    async def send(self, peer: Peer, data: bytes) -> None:
        """Send at the pace.

        Raises:
            ConnectionError: The connection is gone.
        """
        for start in range(0, len(data), self._step):
            part = data[start : start + self._step]
            # A part arrives when its last byte would; idle time is not made up for.
            self._due_s = max(self._due_s, self._clock()) + len(part) / self._rate
            await asyncio.sleep(self._due_s - self._clock())
            await peer.send(part)


class _Noticing(asyncio.StreamReaderProtocol):
    """Counts what comes from the server, its end included.

    Attributes:
        n_noticed: How often something came.
    """

    def __init__(self, reader: CountedReader, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(reader, loop=loop)
        self.n_noticed = 0
        self._reader = reader

    @override
    def data_received(self, data: bytes) -> None:
        self.n_noticed += 1
        self._reader.feed_data(data)

    @override
    def eof_received(self) -> bool | None:
        self.n_noticed += 1
        return super().eof_received()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.n_noticed += 1
        super().connection_lost(exc)


async def connect_peer(
    address: Address, *, received: ByteCount, sent: ByteCount, tls: ssl.SSLContext | None = None
) -> Peer:
    """Connect, with TLS if a context is given; the server must prove to be `address.host`.

    Raises:
        OSError: Nobody listens there, or it cannot prove who it is.
    """
    loop = asyncio.get_running_loop()
    reader = CountedReader(received, loop)
    protocol = _Noticing(reader, loop)
    if address.port is None:
        transport, _ = await loop.create_unix_connection(lambda: protocol, address.host)
    else:
        transport, _ = await loop.create_connection(lambda: protocol, address.host, address.port, ssl=tls)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    return Peer(reader, writer, sent, lambda: protocol.n_noticed)


async def listen_for_peers(
    on_peer: Callable[[Peer], None], *, received: ByteCount, sent: ByteCount
) -> tuple[asyncio.Server, int]:
    """Listen on a free port of 127.0.0.1 and return the server and the port.

    Raises:
        OSError: There is no free port or descriptor.
    """
    loop = asyncio.get_running_loop()

    def make_protocol() -> asyncio.StreamReaderProtocol:
        reader = CountedReader(received, loop)
        return asyncio.StreamReaderProtocol(reader, lambda _, writer: on_peer(Peer(reader, writer, sent)), loop=loop)

    # Port 0: the kernel picks and holds the port in one step, so nobody else can take it in between.
    server = await loop.create_server(make_protocol, "127.0.0.1", 0, backlog=1024)
    return server, server.sockets[0].getsockname()[1]
