"""A smart-HTTP server for bare git repositories: `git http-backend` behind a loopback front.

Nothing is buffered whole: uploads flow into the child as they arrive (decoded from chunks, never from gzip: git does
that itself), replies flow out as the child writes them.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast
from urllib.parse import unquote

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from fairtrial.errors import HostError
from fairtrial.wire.cgi import BadCgiReplyError, CgiChild, CgiHead, Tail
from fairtrial.wire.ledger import FrontLedger

__all__ = ["GitFront", "Target", "build_cgi_environment", "parse_target"]

_MAX_FIELD_BYTES = 64 * 1024
# Headers of the request that git's CGI understands.
_PASSED_HEADERS: Final = ("Accept", "Content-Encoding", "Git-Protocol", "User-Agent")
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


def parse_target(raw: str) -> Target | None:
    """Split and decode a request target; None for one that could leave the project root or is no plain path."""
    encoded, _, query = raw.partition("?")
    path = unquote(encoded, errors="surrogateescape")
    segments = path.split("/")
    if not encoded.startswith("/") or "\0" in path or not {".", ".."}.isdisjoint(segments) or "" in segments[1:]:
        return None
    return Target(path=path, query=query)


def build_cgi_environment(
    *, root: Path, git: Path, method: str, target: Target, headers: Mapping[str, str]
) -> dict[str, str]:
    """Build the whole environment of one CGI child; nothing is inherited."""
    environment = {
        **_GIT_SETTINGS,
        "PATH": f"{git.parent}:/usr/bin:/bin",
        "LC_ALL": "C",
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REQUEST_METHOD": method,
        "PATH_INFO": target.path,
        "QUERY_STRING": target.query,
        "REMOTE_ADDR": "127.0.0.1",
        "REMOTE_USER": "fairtrial",  # git lets only a named user push
    }
    if "Content-Type" in headers:
        environment["CONTENT_TYPE"] = headers["Content-Type"]
    if "Content-Length" in headers:  # absent from a chunked upload: git then reads to the end of its input
        environment["CONTENT_LENGTH"] = headers["Content-Length"]
    for name in _PASSED_HEADERS:
        if name in headers:
            environment[f"HTTP_{name.upper().replace('-', '_')}"] = headers[name]
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
        self._handlers: set[asyncio.Task[object]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._http: web.Server | None = None
        self._listener: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen and return the port.

        Raises:
            OSError: There is no free port or descriptor.
        """
        self._http = web.Server(
            self._handle,
            logger=self._log_into_tail(),
            handler_cancellation=True,  # a client that goes away takes its child with it
            auto_decompress=False,
            access_log=None,
            max_line_size=_MAX_FIELD_BYTES,
            max_field_size=_MAX_FIELD_BYTES,
        )
        self._listener = await asyncio.get_running_loop().create_server(self._http, "127.0.0.1", 0, backlog=1024)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self.port

    def _log_into_tail(self) -> logging.Logger:
        """Return a logger for the HTTP library whose tracebacks end up where the children's do, and nowhere else."""
        logger = logging.Logger("fairtrial.wire.git_front")
        logger.addHandler(logging.StreamHandler(self._tail))
        return logger

    @property
    def ledger(self) -> FrontLedger:
        """What it did so far."""
        return FrontLedger(requests=self._n_requests, running=len(self._handlers), stderr_tail=self._tail.text)

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
        if self._listener is None or self._http is None:
            return
        self._listener.close()
        for task in self._handlers:
            task.cancel()
        if self._handlers:
            await asyncio.wait(self._handlers)
        await self._http.shutdown(0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        target = parse_target(request.raw_path)
        if target is None:
            return web.Response(status=400, text="not a path below the project root\n")
        environment = build_cgi_environment(
            root=self._root, git=self._git, method=request.method, target=target, headers=request.headers
        )
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._handlers.add(task)
        self._idle.clear()
        self._n_requests += 1
        try:
            child = CgiChild((str(self._git), "http-backend"), env=environment, tail=self._tail)
            async with child:
                return await self._serve(request, child)
        except HostError as error:
            return self._explain(f"no child: {error}")
        except BadCgiReplyError as error:
            return self._explain(f"{request.method} {target.path}: {error}")
        except ConnectionError:
            raise  # the client is gone
        except Exception as error:
            # The library would make it a 500 and go on; it is a failure of the instrument and has to be known as one.
            asyncio.get_running_loop().call_exception_handler({"message": "the git front failed", "exception": error})
            raise
        finally:
            self._handlers.discard(task)
            if not self._handlers:
                self._idle.set()

    def _explain(self, text: str) -> web.Response:
        self._tail.add(f"front: {text}\n".encode())
        return web.Response(status=502, text="the repository server failed\n")

    async def _serve(self, request: web.BaseRequest, child: CgiChild) -> web.StreamResponse:
        feeder = asyncio.create_task(self._feed(request.content, child))
        try:
            head = await child.read_head()
            return await _reply(request, head, child)
        finally:
            feeder.cancel()
            await asyncio.wait([feeder])

    async def _feed(self, body: StreamReader, child: CgiChild) -> None:
        """Move the request's body into the child, to the end or for as long as the child reads."""
        try:
            async for data in body.iter_any():
                await child.send(data)
        except BrokenPipeError:
            return  # it has seen enough and will say why
        except (OSError, HttpProcessingError) as error:
            self._tail.add(f"front: the upload broke off: {error}\n".encode())
        finally:
            child.end_input()


async def _reply(request: web.BaseRequest, head: CgiHead, child: CgiChild) -> web.StreamResponse:
    """Pass the child's reply on as it comes."""
    response = web.StreamResponse(status=head.status)
    for name, value in head.fields:
        response.headers.add(name, value)
    response.headers["Server"] = "fairtrial"  # the library's own name would make byte counts depend on its version
    await response.prepare(request)
    n_bytes = 0
    while data := await child.read():
        n_bytes += len(data)
        if request.method != "HEAD":
            await response.write(data)
    if response.content_length not in {None, n_bytes}:
        response.force_close()
    await response.write_eof()
    return response
