"""One CGI child: its pipes, its reply's head, and its certain end.

Source: RFC 3875 (CGI/1.1), section 6: the reply's head ends with an empty line; `Status:` carries the code.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, cast

from fairtrial.host.process import Plumbing, start
from fairtrial.wire.pipes import READ_BYTES, wait_readable, write_pipe

__all__ = ["BadCgiReplyError", "CgiChild", "CgiHead", "Tail", "parse_cgi_head"]

_MAX_HEAD_BYTES = 64 * 1024
_TAIL_BYTES = 16 * 1024
_HANG_UP_GRACE_S = 0.5


class BadCgiReplyError(Exception):
    """The child's output does not begin with a CGI head."""


class Tail:
    """The last bytes of what many children wrote."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Append, dropping what is oldest."""
        self._data += data
        del self._data[:-_TAIL_BYTES]

    @property
    def text(self) -> str:
        """What is kept, as text."""
        return self._data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class CgiHead:
    """The head of a CGI reply.

    Attributes:
        status: The status code.
        fields: Header fields in order, without `Status`.
    """

    status: int
    fields: tuple[tuple[str, str], ...]


def parse_cgi_head(raw: bytes) -> CgiHead:
    """Parse a head without its final empty line.

    Raises:
        BadCgiReplyError: A line is no header field, or the status is no number from 200 to 599.
    """
    status = 200
    fields: list[tuple[str, str]] = []
    for line in raw.decode("latin-1").split("\n"):
        name, colon, value = line.removesuffix("\r").partition(":")
        if not colon or not name.isascii() or not name.replace("-", "").isalnum() or not value.isprintable():
            msg = f"not a header line: {line[:80]!r}"
            raise BadCgiReplyError(msg)
        value = value.strip()
        if name.lower() != "status":
            fields.append((name, value))
        elif value[:3].isascii() and value[:3].isdigit() and 200 <= int(value[:3]) <= 599:
            status = int(value[:3])
        else:
            msg = f"not a status: {value[:80]!r}"
            raise BadCgiReplyError(msg)
    return CgiHead(status=status, fields=tuple(fields))


class CgiChild:
    """A running CGI program; leaving its context ends it, whatever it is doing."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], tail: Tail) -> None:
        """Start it.

        Raises:
            HostError: It cannot be started.
        """
        self._running = start(argv, env=env, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE, stderr=Plumbing.PIPE)
        self._tail = tail
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._left = b""
        # All three are pipes, so all three are there.
        self._stdin = cast("int", self._running.stdin_fd)
        self._stdout = cast("int", self._running.stdout_fd)
        self._stderr = cast("int", self._running.stderr_fd)
        for fd in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        self._loop.add_reader(self._running.pidfd, self._on_exit)
        self._loop.add_reader(self._stderr, self._on_stderr)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._running.pidfd)
        self._exited.set_result(None)

    def _on_stderr(self) -> None:
        try:
            data = os.read(self._stderr, READ_BYTES)
        except BlockingIOError:
            return
        self._tail.add(data)
        if not data:
            self._loop.remove_reader(self._stderr)

    async def send(self, data: bytes) -> None:
        """Write to its standard input.

        Raises:
            BrokenPipeError: It reads no more.
        """
        await write_pipe(self._stdin, data)

    def end_input(self) -> None:
        """Close its standard input."""
        self._running.close_stdin()

    async def read_head(self) -> CgiHead:
        """Read the head of its reply.

        Raises:
            BadCgiReplyError: There is none, or it is malformed or too long.
        """
        data = b""
        while len(data) <= _MAX_HEAD_BYTES:
            # Whichever empty line comes first ends the head: "\n\r\n" also ends a line that "\r\n\r\n" ends.
            ends = [at + len(mark) for mark in (b"\n\r\n", b"\n\n") if (at := data.find(mark)) >= 0]
            if ends:
                end = min(ends)
                self._left = data[end:]
                return parse_cgi_head(data[:end].rstrip(b"\r\n"))
            more = await self.read()
            if not more:
                msg = f"its output ended inside the head, after {len(data)} bytes"
                raise BadCgiReplyError(msg)
            data += more
        msg = f"its head is longer than {_MAX_HEAD_BYTES} bytes"
        raise BadCgiReplyError(msg)

    async def read(self) -> bytes:
        """Read some of its output; b"" at the end, which comes with its exit even when a descendant holds the pipe."""
        if self._left:
            left, self._left = self._left, b""
            return left
        while True:
            has_exited = self._exited.done()
            try:
                return os.read(self._stdout, READ_BYTES)
            except BlockingIOError:
                if has_exited:
                    return b""
            readable = asyncio.ensure_future(wait_readable(self._stdout))
            try:
                await asyncio.wait([readable, self._exited], return_when=asyncio.FIRST_COMPLETED)
            finally:
                readable.cancel()
                await asyncio.wait([readable])

    async def end(self) -> None:
        """See it gone with its whole process group: it hears that its input is over, gets a moment, then KILL.

        The moment lets git take its lock files and quarantine directories away.
        """
        try:
            self.end_input()
            await asyncio.wait([self._exited], timeout=_HANG_UP_GRACE_S)
        finally:
            self._running.kill()
            self._on_stderr()
            self._loop.remove_reader(self._stderr)
            self._loop.remove_reader(self._running.pidfd)
            self._running.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.end()
