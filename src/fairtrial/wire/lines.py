"""Talk on a unix socket, one line each way: a server with an asynchronous handler, and a client without an event loop.

The client is for workers, which must hold no loop and no thread. A connection stands for something that lives as long
as it does, so each end can tell that the other has died.
"""

import asyncio
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from fairtrial.wire.tasks import TaskSet

__all__ = ["LineClient", "LineServer", "LineSession"]

_READ_BYTES: Final = 64 * 1024
_PEER_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid


class LineSession(Protocol):
    """The server's side of one connection."""

    async def answer(self, line: bytes, /) -> bytes:
        """Answer one line by one line, newline included."""
        ...

    async def end(self) -> None:
        """The connection is gone."""
        ...


class LineServer:
    """Listens on a unix socket that only its own user may use."""

    def __init__(self, new_session: Callable[[], LineSession], *, max_line_bytes: int) -> None:
        self._new_session = new_session
        self._max_line = max_line_bytes
        self._server: asyncio.Server | None = None
        self._tasks = TaskSet("a session")

    async def listen(self, path: Path) -> None:
        """Listen on a path that does not exist yet.

        Raises:
            OSError: The socket cannot be made.
        """
        before = os.umask(0o177)  # the socket is never open to others, not even for a moment
        try:
            self._server = await asyncio.start_unix_server(self._accept, str(path), limit=self._max_line)
        finally:
            os.umask(before)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: socket.socket = writer.get_extra_info("socket")
        _, uid, _ = _PEER_CREDENTIALS.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        )
        if uid not in {0, os.geteuid()}:
            writer.close()
            return
        session = self._new_session()
        try:
            while (line := await reader.readline()).endswith(b"\n"):
                writer.write(await session.answer(line))
                await writer.drain()
        except (ConnectionError, ValueError):  # gone, or a line beyond the limit: the session is at its end
            return
        finally:
            writer.close()
            await session.end()

    async def stop(self) -> None:
        """Accept nothing more and end every session."""
        if self._server is None:
            return
        self._server.close()
        await self._tasks.end()


class LineClient:
    """A blocking client; leaving the context ends the connection."""

    def __init__(self, path: Path) -> None:
        """Connect.

        Raises:
            OSError: Nobody listens there.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._buffer = b""

    def fileno(self) -> int:
        """Readable, between two questions, only when the server has gone."""
        return self._socket.fileno()

    @property
    def server_gone(self) -> bool:
        """The server has ended the connection; asked between two questions."""
        watcher = select.poll()
        watcher.register(self._socket, select.POLLIN)
        return bool(watcher.poll(0))

    def ask(self, line: bytes, *, timeout_s: float) -> bytes:
        """Send a line and return the one that answers it, without its newline.

        Raises:
            TimeoutError: There was no answer in time.
            ConnectionError: The server has gone.
        """
        deadline_s = time.monotonic() + timeout_s
        self._socket.settimeout(timeout_s)
        self._socket.sendall(line)
        while b"\n" not in self._buffer:
            self._socket.settimeout(max(0.001, deadline_s - time.monotonic()))
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the server has ended the connection")
            self._buffer += data
        answer, _, self._buffer = self._buffer.partition(b"\n")
        return answer

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
