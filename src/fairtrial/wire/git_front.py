"""A smart-HTTP server for bare git repositories: `git http-backend` behind a loopback front.

Nothing is buffered whole: uploads flow into the child as they arrive (decoded from chunks, never from gzip: git does
that itself), replies flow out as the child writes them.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from fairtrial.errors import HostError
from fairtrial.wire.cgi import BadCgiReplyError, CgiChild, CgiHead, Tail
from fairtrial.wire.exchange import After
from fairtrial.wire.http1 import (
    BadMessageError,
    BodyKind,
    EndedEarlyError,
    Framing,
    RequestHead,
    parse_request_head,
    read_body,
    read_head,
    render_answer,
    render_status_line,
)
from fairtrial.wire.ledger import FrontLedger
from fairtrial.wire.peer import Peer, listen_for_peers
from fairtrial.wire.reader import ByteCount
from fairtrial.wire.tasks import TaskSet

__all__ = ["GitFront", "Target", "build_cgi_environment", "parse_target"]

# Header fields of the request that git's CGI understands.
_PASSED_FIELDS: Final[Mapping[str, str]] = {
    "accept": "HTTP_ACCEPT",
    "content-encoding": "HTTP_CONTENT_ENCODING",
    "content-type": "CONTENT_TYPE",
    "git-protocol": "HTTP_GIT_PROTOCOL",
    "user-agent": "HTTP_USER_AGENT",
}
_UPLOAD_GRACE_S: Final = 1.0
_CONNECTION_FIELDS: Final = frozenset({"connection", "keep-alive", "transfer-encoding"})
# No user or system configuration, and no maintenance that outlives a request.
_GIT_SETTINGS: Final[Mapping[str, str]] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "receive.autogc",
    "GIT_CONFIG_VALUE_0": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a request asks for.

    Attributes:
        path: The decoded path below the project root, beginning with "/".
        query: The query as sent.
    """

    path: str
    query: str


def parse_target(raw: str) -> Target:
    """Split and decode a request target.

    Raises:
        BadMessageError: It could leave the project root, or is no plain path.
    """
    encoded, _, query = raw.partition("?")
    path = unquote(encoded, errors="surrogateescape")
    segments = path.split("/")
    if not encoded.startswith("/") or "\0" in path or not {".", ".."}.isdisjoint(segments) or "" in segments[1:]:
        msg = "not a path below the project root"
        raise BadMessageError(msg)
    return Target(path=path, query=query)


def build_cgi_environment(*, root: Path, git: Path, request: RequestHead, target: Target) -> dict[str, str]:
    """Build the whole environment of one CGI child; nothing is inherited.

    CONTENT_LENGTH is left out, so that git reads to the end of its input. Told a length, git 2.39.5's http-backend
    spins for ever at full load when its input ends early (its loop over a fixed length takes 0 bytes read for
    progress): a killed server would leave one behind for every upload under way.
    """
    environment = {
        **_GIT_SETTINGS,
        "PATH": f"{git.parent}:/usr/bin:/bin",
        "LC_ALL": "C",
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REQUEST_METHOD": request.method,
        "PATH_INFO": target.path,
        "QUERY_STRING": target.query,
        "REMOTE_ADDR": "127.0.0.1",
        "REMOTE_USER": "fairtrial",  # git lets only a named user push
    }
    for name, value in request.fields:
        if name in _PASSED_FIELDS:
            environment[_PASSED_FIELDS[name]] = value
    return environment


class GitFront:
    """Serves every bare repository below one directory, readable and writable to all, on 127.0.0.1.

    Attributes:
        port: Where it listens; 0 before `start`.
    """

    def __init__(self, *, root: Path, git: Path) -> None:
        self.port = 0
        self._root = root
        self._git = git
        self._tail = Tail()
        self._n_requests = 0
        self._n_running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks = TaskSet("the git front")
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen and return the port.

        Raises:
            OSError: There is no free port or descriptor.
        """
        self._server, self.port = await listen_for_peers(self._accept, received=ByteCount(), sent=ByteCount())
        return self.port

    @property
    def ledger(self) -> FrontLedger:
        """What it did so far."""
        return FrontLedger(requests=self._n_requests, running=self._n_running, stderr_tail=self._tail.text)

    async def drain(self, timeout_s: float) -> bool:
        """Wait until no child runs; False when the time is up."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Accept nothing more and end every child and connection."""
        if self._server is None:
            return
        self._server.close()
        await self._tasks.end()

    def _accept(self, client: Peer) -> None:
        self._tasks.start(self._serve_connection(client))

    async def _serve_connection(self, client: Peer) -> None:
        after = After.KEEP
        try:
            while after is After.KEEP:
                after = await self._serve_next(client)
            if after is After.LINGER:
                await client.close_lingering()
            client.close()
            await client.wait_closed()
        except ConnectionError:
            return  # the client is gone, and its child with it
        finally:
            client.abort()

    async def _serve_next(self, client: Peer) -> After:
        """Serve one request, or find that there is none."""
        what = "a request"
        try:
            raw = await read_head(client.reader)
            if raw is None:
                return After.CLOSE
            request = parse_request_head(raw)
            what = f"{request.method} {request.target:.200}"
            return await self._run_child(client, request, parse_target(request.target))
        except EndedEarlyError as error:
            self._say(f"{what}: broken off: {error}")
            return After.CLOSE
        except BadMessageError as error:
            return await self._refuse(client, 400, f"{what}: bad request: {error}")
        except (HostError, BadCgiReplyError) as error:
            return await self._refuse(client, 502, f"{what}: {error}")

    def _say(self, text: str) -> None:
        self._tail.add(f"front: {text}\n".encode("utf-8", "replace"))

    async def _refuse(self, client: Peer, status: int, text: str) -> After:
        self._say(text)
        await client.send(render_answer(status, connection_close=True))
        return After.LINGER

    async def _run_child(self, client: Peer, request: RequestHead, target: Target) -> After:
        """Run a child for the request and see it gone."""
        environment = build_cgi_environment(root=self._root, git=self._git, request=request, target=target)
        self._n_requests += 1
        self._n_running += 1
        self._idle.clear()
        try:
            async with CgiChild((str(self._git), "http-backend"), env=environment, tail=self._tail) as child:
                return await _Exchange(client, request, child).run()
        finally:
            self._n_running -= 1
            if self._n_running == 0:
                self._idle.set()


class _Exchange:
    """One request on its way into a child and the reply on its way out, both at the same time."""

    def __init__(self, client: Peer, request: RequestHead, child: CgiChild) -> None:
        self._client = client
        self._request = request
        self._child = child
        self._uploaded = asyncio.Event()
        self._answered = False

    async def run(self) -> After:
        """Go on until the reply is out or the client is gone, whichever comes first.

        Raises:
            BadCgiReplyError: The child's output does not begin with a head.
            BadMessageError: The body's framing is broken, and nothing has been answered yet.
            EndedEarlyError: The client left inside the body.
            ConnectionError: The client left.
        """
        feeder = asyncio.create_task(self._feed())
        replier = asyncio.create_task(self._reply())
        try:
            await asyncio.wait([feeder, replier], return_when=asyncio.FIRST_COMPLETED)
            if not replier.done():
                await feeder
                return After.CLOSE
            after = await replier
            await self._wait_uploaded(feeder)
        except BadMessageError as error:
            if not self._answered:
                raise
            msg = f"bad body behind the beginning of the reply: {error}"
            raise EndedEarlyError(msg) from error
        finally:
            for task in (feeder, replier):
                task.cancel()
            await asyncio.wait([feeder, replier])
        return after if self._uploaded.is_set() else After.LINGER

    async def _wait_uploaded(self, feeder: asyncio.Task[None]) -> None:
        """Give the rest of the upload a moment: git answers before the empty last chunk of a pack is here."""
        if not self._uploaded.is_set():
            uploaded = asyncio.create_task(self._uploaded.wait())
            await asyncio.wait([uploaded, feeder], timeout=_UPLOAD_GRACE_S, return_when=asyncio.FIRST_COMPLETED)
            uploaded.cancel()

    async def _feed(self) -> None:
        """Move the request's body into the child, then wait for the client to leave; returns only then."""
        if self._request.expects_continue:
            await self._client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        child_reads = True
        async for piece in read_body(self._client.reader, self._request.framing):
            try:
                if child_reads:
                    await self._child.send(piece.payload)
            except BrokenPipeError:
                child_reads = False  # it has seen enough and will say why
        self._child.end_input()
        self._uploaded.set()
        if await self._client.reader.wait_input():
            await asyncio.get_running_loop().create_future()  # its next request; whether it leaves now is seen later

    async def _reply(self) -> After:
        """Pass the child's reply on as it comes."""
        head = await self._child.read_head()
        framing = _decide_framing(head, self._request)
        persists = self._request.keep_alive and framing.kind is not BodyKind.UNTIL_CLOSE
        self._answered = True
        await self._client.send(_render_head(head, framing, persists=persists))
        n_left = framing.n_bytes
        while data := await self._child.read():
            if framing.kind is BodyKind.CHUNKED:
                await self._client.send(b"%x\r\n%b\r\n" % (len(data), data))
            elif framing.kind is BodyKind.UNTIL_CLOSE:
                await self._client.send(data)
            elif n_left:
                await self._client.send(data[:n_left])
                n_left = max(0, n_left - len(data))
        if framing.kind is BodyKind.CHUNKED:
            await self._client.send(b"0\r\n\r\n")
        return After.KEEP if persists and not n_left else After.CLOSE


def _decide_framing(head: CgiHead, request: RequestHead) -> Framing:
    """Decide how the client finds the reply's end."""
    if request.method == "HEAD" or head.status in {204, 304}:
        return Framing(kind=BodyKind.NONE)
    lengths = [value for name, value in head.fields if name.lower() == "content-length"]
    if lengths:
        if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit() and len(lengths[0]) < 19):
            msg = f"its Content-Length is {', '.join(lengths)!r:.80}"
            raise BadCgiReplyError(msg)
        return Framing(kind=BodyKind.LENGTH, n_bytes=int(lengths[0]))
    return Framing(kind=BodyKind.CHUNKED if request.minor_version == 1 else BodyKind.UNTIL_CLOSE)


def _render_head(head: CgiHead, framing: Framing, *, persists: bool) -> bytes:
    lines = [f"{name}: {value}" for name, value in head.fields if name.lower() not in _CONNECTION_FIELDS]
    if framing.kind is BodyKind.CHUNKED:
        lines.append("Transfer-Encoding: chunked")
    if not persists:
        lines.append("Connection: close")
    return "\r\n".join([render_status_line(head.status), *lines, "", ""]).encode("latin-1")
