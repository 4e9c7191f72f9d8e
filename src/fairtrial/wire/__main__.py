"""`python -m fairtrial.wire`: one wire server in a process of its own, told what to do on standard input.

The first line is its configuration, each further line a command; every line is answered by one JSON line. The end of
input is the end of the server: whoever holds the other end of the pipe cannot die without ending it.
"""

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import Awaitable
from pathlib import Path
from typing import Final

from fairtrial.errors import FairtrialError, HostError, UsageError
from fairtrial.wire.fixture import SilentServer
from fairtrial.wire.forward import Forwarder
from fairtrial.wire.git_front import GitFront
from fairtrial.wire.ledger import LEDGER_SCHEMA, ForwardLedger, RequestRecord, WireLedger, render_ledger
from fairtrial.wire.peer import Address, parse_address
from fairtrial.wire.pipes import read_pipe, write_pipe
from fairtrial.wire.settings import (
    FRONT,
    Command,
    Deed,
    ForwardSettings,
    FrontSettings,
    WireSettings,
    parse_command,
    parse_settings,
)
from fairtrial.wire.stream import StreamForwarder

_STDIN, _STDOUT = 0, 1
_MAX_LINE_BYTES: Final = 1024 * 1024
_MAX_INTERNAL_ERRORS: Final = 20


class _Input:
    """Standard input as lines, read ahead so that its end is noticed whatever else goes on.

    Attributes:
        ended: Set at the end of input.
    """

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        os.set_blocking(_STDIN, False)
        data = b""
        while more := await read_pipe(_STDIN):
            *lines, data = (data + more).split(b"\n")
            for line in lines:
                self._lines.put_nowait(line.decode("utf-8", "replace"))
            if len(data) > _MAX_LINE_BYTES:
                break
        self.ended.set()
        self._lines.put_nowait(None)

    async def next_line(self) -> str | None:
        """Return the next whole line; None at the end."""
        return await self._lines.get()


class _WireServer:
    """A front, a forwarder, or both, and what they saw."""

    def __init__(self) -> None:
        self._front: GitFront | None = None
        self._forwarder: Forwarder | StreamForwarder | None = None
        self._fixture: SilentServer | None = None
        self._records: list[RequestRecord] = []
        self._internal_errors: deque[str] = deque(maxlen=_MAX_INTERNAL_ERRORS)
        asyncio.get_running_loop().set_exception_handler(self._on_internal_error)

    def _on_internal_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        self._internal_errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def start(self, settings: WireSettings) -> dict[str, object]:
        """Start what is asked for and return the ready line.

        Raises:
            UsageError: The front's directory does not exist.
            HostError: git is missing, or there is no free port.
        """
        try:
            if settings.front is not None:
                self._front = await _start_front(settings.front)
            if settings.forward is not None:
                self._forwarder = await self._start_forwarder(settings.forward)
            if settings.fixture is not None:
                self._fixture = SilentServer(settings.fixture)
                await self._fixture.start()
        except OSError as error:
            msg = f"cannot listen on 127.0.0.1: {error}; free a port or a descriptor"
            raise HostError(msg) from error
        front_port = None if self._front is None else self._front.port
        port = front_port if self._forwarder is None else self._forwarder.port
        port = port if self._fixture is None else self._fixture.port
        return {"schema": "wire-ready/1", "port": port, "front_port": front_port}

    async def _start_forwarder(self, settings: ForwardSettings) -> Forwarder | StreamForwarder:
        if settings.upstream == FRONT and self._front is not None:
            upstream = Address(host="127.0.0.1", port=self._front.port)
        else:
            upstream = parse_address(settings.upstream)
        if settings.watch is not None:
            stream = StreamForwarder(
                upstream=upstream, watch=settings.watch, faults=settings.faults, on_record=self._records.append
            )
            await stream.start()
            return stream
        forwarder = Forwarder(
            upstream=upstream,
            reuse=settings.connection_reuse,
            faults=settings.faults,
            on_record=self._records.append,
        )
        await forwarder.start()
        return forwarder

    async def obey(self, command: Command, ended: asyncio.Event) -> str:
        """Carry a command out and return the answer; DRAIN gives up when `ended` is set.

        Raises:
            UsageError: There is no forwarder to plan faults for.
        """
        match command.do:
            case Deed.LEDGER:
                return render_ledger(self._ledger())
            case Deed.DRAIN:
                quiet = await _first_of(self._drain(command.timeout_s), ended)
                return json.dumps({"schema": "wire-drain/1", "quiet": quiet})
            case Deed.FAULTS:
                if self._forwarder is None:
                    msg = "faults: this server has no forwarder"
                    raise UsageError(msg)
                self._forwarder.set_faults(command.faults)
                if command.connection_reuse is not None:
                    self._forwarder.reuse = command.connection_reuse
                return json.dumps({"schema": "wire-faults/1", "n_faults": len(command.faults)})

    async def _drain(self, timeout_s: float) -> bool:
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while True:
            for part in (self._forwarder, self._front):
                left_s = max(0.0, deadline_s - asyncio.get_running_loop().time())
                if part is not None and not await part.drain(left_s):
                    return False
            if self._forwarder is None or self._forwarder.n_in_flight == 0:
                return True

    def _ledger(self) -> WireLedger:
        forward = None
        if self._forwarder is not None:
            reports = self._forwarder.fault_reports
            forward = ForwardLedger(
                connection_reuse=self._forwarder.reuse,
                connections=self._forwarder.n_connections,
                in_flight=self._forwarder.n_in_flight,
                bytes=self._forwarder.counts,
                requests=tuple(self._records),
                faults=reports,
                faults_as_planned=all(report.as_planned for report in reports),
            )
        return WireLedger(
            schema=LEDGER_SCHEMA,
            forward=forward,
            front=None if self._front is None else self._front.ledger,
            internal_errors=tuple(self._internal_errors),
            fixture=None if self._fixture is None else self._fixture.ledger,
        )

    async def stop(self) -> None:
        """End every connection and every child at once."""
        if self._forwarder is not None:
            await self._forwarder.stop(0)
        if self._front is not None:
            await self._front.stop()
        if self._fixture is not None:
            await self._fixture.stop()


async def _start_front(settings: FrontSettings) -> GitFront:
    root, git = Path(settings.root), Path(settings.git)
    if not root.is_dir():
        msg = f"front.root: {root} is not a directory"
        raise UsageError(msg)
    if not os.access(git, os.X_OK):
        msg = f"front.git: {git} is not a program; install git or name it by its absolute path"
        raise HostError(msg)
    front = GitFront(root=root, git=git)
    await front.start()
    return front


async def _first_of(work: Awaitable[bool], ended: asyncio.Event) -> bool:
    """Return what the work returns, or False when `ended` is set before."""
    task = asyncio.ensure_future(work)
    end = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait([task, end], return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else False
    finally:
        for future in (task, end):
            future.cancel()
        await asyncio.wait([task, end])


def _render_error(text: str) -> str:
    return json.dumps({"error": text})


async def _serve() -> int:
    source = _Input()
    server = _WireServer()
    os.set_blocking(_STDOUT, False)
    try:
        line = await source.next_line()
        if line is None:
            msg = "no configuration line on standard input"
            raise UsageError(msg)
        ready = await server.start(parse_settings(line))
        await write_pipe(_STDOUT, json.dumps(ready).encode() + b"\n")
        while (line := await source.next_line()) is not None:
            try:
                answer = await server.obey(parse_command(line), source.ended)
            except UsageError as error:
                answer = _render_error(str(error))
            await write_pipe(_STDOUT, answer.encode() + b"\n")
    except FairtrialError as error:
        await write_pipe(_STDOUT, _render_error(str(error)).encode() + b"\n")
        return error.exit_code
    except BrokenPipeError:
        return 0  # nobody is left to answer: the same as the end of input
    finally:
        await server.stop()
    return 0


def main() -> int:
    """Serve until the end of input and return the exit code."""
    try:
        return asyncio.run(_serve())
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the top of a process: a bug becomes one line and exit code 70
        sys.stdout.write(_render_error(f"internal: {error!r}") + "\n")
        return 70


if __name__ == "__main__":
    sys.exit(main())
