"""The other end of a wire server: plain blocking pipes with a deadline on every answer.

No thread and no event loop: a worker that holds either spawns slowly and forks unsafely. A server that does not answer
in time is killed and becomes a `HostError`, never a hang.
"""

import json
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from types import TracebackType
from typing import Self, cast

from pydantic import TypeAdapter, ValidationError

from fairtrial.errors import HostError
from fairtrial.host.process import Plumbing, Running, start
from fairtrial.wire.faults import Fault
from fairtrial.wire.ledger import ConnectionReuse, WireLedger
from fairtrial.wire.pipes import READ_BYTES
from fairtrial.wire.settings import Command, Deed, WireSettings, render_command, render_settings

__all__ = ["WireServer", "parse_ledger"]

_STOP_S = 10.0
_STDERR_TAIL_BYTES = 1024


@cache
def _ledger_adapter() -> TypeAdapter[WireLedger]:
    return TypeAdapter(WireLedger)


def parse_ledger(text: str) -> WireLedger:
    """Parse what `render_ledger` wrote.

    Raises:
        HostError: It is something else.
    """
    try:
        return _ledger_adapter().validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        msg = f"wire server: unreadable ledger: {error.errors()[0]}; reinstall fairtrial, its parts do not fit"
        raise HostError(msg) from error


class WireServer:
    """A wire server in a process of its own; leaving the context ends it.

    Attributes:
        port: Where clients connect; 0 before `start`.
        front_port: Where the git front itself listens; None without one.
    """

    def __init__(self, *, python: str = sys.executable, answer_timeout_s: float = 20.0) -> None:
        """Prepare; nothing runs yet.

        Args:
            python: The interpreter that runs the server.
            answer_timeout_s: How long an answer may take, beyond what a drain may wait, before it counts as hung.
        """
        self.port = 0
        self.front_port: int | None = None
        # -P: the caller's directory is often a repository, whose files must not become our modules.
        self._argv = (python, "-P", "-m", "fairtrial.wire")
        self._answer_s = answer_timeout_s
        self._running: Running | None = None
        self._buffer = b""
        self._stderr_tail = b""

    def start(self, settings: WireSettings, env: Mapping[str, str]) -> int:
        """Start the server with `env` as its whole environment and return the port for clients.

        Raises:
            HostError: It cannot be started, refuses its settings, or is not ready in time.
        """
        self._running = start(self._argv, env=env, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE, stderr=Plumbing.PIPE)
        for fd in (self._running.stdin_fd, self._running.stdout_fd, self._running.stderr_fd):
            os.set_blocking(cast("int", fd), False)
        ready = _as_object(self._ask(render_settings(settings), what="its configuration", timeout_s=self._answer_s))
        self.port = cast("int", ready["port"])
        self.front_port = cast("int | None", ready["front_port"])
        return self.port

    @property
    def pid(self) -> int | None:
        """The server's process id; None while it does not run."""
        return None if self._running is None else self._running.pid

    def ledger(self) -> WireLedger:
        """Return what the server saw so far.

        Raises:
            HostError: It does not answer.
        """
        return parse_ledger(self._ask(render_command(Command(do=Deed.LEDGER)), what="ledger", timeout_s=self._answer_s))

    def drain(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight, for at most so long; return whether nothing is.

        Raises:
            HostError: It does not answer.
        """
        command = render_command(Command(do=Deed.DRAIN, timeout_s=timeout_s))
        return _as_object(self._ask(command, what="drain", timeout_s=timeout_s + self._answer_s))["quiet"] is True

    def set_faults(self, faults: Sequence[Fault], reuse: ConnectionReuse | None = None) -> None:
        """Replace the plan of faults and its counts, and the factor unless it is None.

        Raises:
            HostError: It does not answer, or has no forwarder.
        """
        command = render_command(Command(do=Deed.FAULTS, faults=tuple(faults), connection_reuse=reuse))
        self._ask(command, what="faults", timeout_s=self._answer_s)

    def stop(self) -> None:
        """End the server and whatever it started; harmless when it has ended.

        Raises:
            HostError: It had to be killed.
        """
        running, self._running = self._running, None
        if running is None:
            return
        try:
            running.close_stdin()
            returncode = running.wait(_STOP_S)
            self._read_stderr(running)
            if returncode is None:
                raise HostError(self._describe(running, f"alive {_STOP_S:g} s after the end of its input; killed"))
        finally:
            running.kill()
            running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _ask(self, line: str, *, what: str, timeout_s: float) -> str:
        """Send one line and return the one that answers it.

        Raises:
            HostError: There is no answer in time, the server is gone, or the answer is an error.
        """
        if self._running is None:
            msg = f"wire server: asked for {what} while it does not run"
            raise HostError(msg)
        try:
            answer = self._exchange(self._running, line.encode() + b"\n", time.monotonic() + timeout_s)
        except TimeoutError as error:
            msg = self._describe(self._running, f"no answer to {what} within {timeout_s:g} s; killed")
            self._running.kill()
            raise HostError(msg) from error
        except (BrokenPipeError, EOFError) as error:
            self._running.wait(_STOP_S)
            self._read_stderr(self._running)
            msg = self._describe(self._running, f"gone (exit status {self._running.poll()}) when asked for {what}")
            raise HostError(msg) from error
        if answer.startswith('{"error"'):
            msg = f"wire server: {_as_object(answer)['error']}"
            raise HostError(msg)
        return answer

    def _exchange(self, running: Running, data: bytes, deadline_s: float) -> str:
        """Write all of `data`, read one line, keep standard error flowing.

        Raises:
            TimeoutError: The deadline passed.
            BrokenPipeError: The server reads no more.
            EOFError: The server writes no more.
        """
        stdin, stdout, stderr = (cast("int", fd) for fd in (running.stdin_fd, running.stdout_fd, running.stderr_fd))
        poller = select.poll()
        poller.register(stdin, select.POLLOUT)
        poller.register(stdout, select.POLLIN)
        poller.register(stderr, select.POLLIN)
        left = memoryview(data)
        while b"\n" not in self._buffer:
            events = dict(poller.poll(max(0.0, deadline_s - time.monotonic()) * 1000))
            if not events:
                raise TimeoutError
            if stderr in events and not self._read_stderr(running):
                poller.unregister(stderr)
            if stdin in events:
                left = left[os.write(stdin, left) :]
                if not left:
                    poller.unregister(stdin)
            if stdout in events:
                more = os.read(stdout, READ_BYTES)
                if not more:
                    raise EOFError
                self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def _read_stderr(self, running: Running) -> bool:
        """Keep the end of what is on standard error; return whether there may be more."""
        try:
            while data := os.read(cast("int", running.stderr_fd), READ_BYTES):
                self._stderr_tail = (self._stderr_tail + data)[-_STDERR_TAIL_BYTES:]
        except BlockingIOError:
            return True
        return False

    def _describe(self, running: Running, what: str) -> str:
        said = " ".join(self._stderr_tail.decode("utf-8", "replace").split())
        return f"wire server (pid {running.pid}): {what}" + (f"; it said: {said}" if said else "")


def _as_object(answer: str) -> Mapping[str, object]:
    return cast("Mapping[str, object]", json.loads(answer))
