"""The gateway from outside: the sweep starts the process, workers open and close trials. Blocking, without a loop."""

import json
import os
import select
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from fairtrial.errors import FairtrialError, HostError
from fairtrial.gateway.control import (
    DirectoryReleased,
    DirectoryReleasing,
    Message,
    Status,
    StatusAsked,
    TrialClosed,
    TrialClosing,
    TrialOpened,
    TrialOpening,
    parse_message,
    render_message,
)
from fairtrial.gateway.settings import GatewaySettings, render_settings
from fairtrial.host.files import remove_tree
from fairtrial.host.process import Plumbing, Running, start
from fairtrial.wire.lines import LineClient

__all__ = ["GatewayGoneError", "GatewayProcess", "OpenTrial", "ask_status", "release_directory"]

M = TypeVar("M", bound=Message)

_ANSWER_S: Final = 60.0
_READY_S: Final = 60.0
_STOP_S: Final = 10.0

# Left to itself, glibc gives memory back after each piece of a stream and takes it again for the next one: 400 page
# faults a megabyte. What is as large as a whole body still goes back at once.
_ALLOCATOR: Final = {"MALLOC_TRIM_THRESHOLD_": str(32 << 20), "MALLOC_MMAP_THRESHOLD_": str(4 << 20)}


class GatewayGoneError(HostError):
    """The gateway has died or does not answer: a trial that needed it is void (session-error), not a failure."""


class GatewayProcess:
    """A gateway in a process of its own; leaving the context ends it and removes its directory.

    Attributes:
        control: Path of its control socket, for `OpenTrial` and `ask_status`.
        pid: Its process id; 0 before `start`.
    """

    def __init__(self, *, python: str = sys.executable) -> None:
        self.control = Path()
        self.pid = 0
        # -P: the caller's directory is often a repository, whose files must not become our modules.
        self._argv = (python, "-P", "-m", "fairtrial", "gateway")
        self._running: Running | None = None
        self._directory: Path | None = None

    def start(self, settings: GatewaySettings, env: Mapping[str, str]) -> Path:
        """Start it with `env`, keys included, and what its allocator is told; return the path of its control socket.

        Call it on the main thread: the gateway ends with the thread that started it.

        Raises:
            FairtrialError: It cannot be started, refuses its settings, or is not ready in time.
        """
        whole = {**_ALLOCATOR, **env}
        running = start(self._argv, env=whole, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE, stderr=Plumbing.INHERIT)
        self._running, self.pid, self._directory = running, running.pid, Path(settings.directory)
        os.write(cast("int", running.stdin_fd), render_settings(settings))
        line = _read_line(cast("int", running.stdout_fd), time.monotonic() + _READY_S)
        ready: dict[str, object] = json.loads(line) if line else {"error": "gateway: ended, or silent, at its start"}
        if "error" in ready:
            # What it could not start it has removed, and what stood in its way is not ours to remove.
            self._directory = None
            code = running.wait(_STOP_S)
            self.stop()
            error = HostError(str(ready["error"]))
            error.exit_code = code if code in {2, 3, 4, 70} else 3  # type: ignore[misc] # of this instance
            raise error
        self.control = Path(str(ready["control"]))
        return self.control

    @property
    def has_ended(self) -> bool:
        """It does not run any more, or never did."""
        return self._running is None or self._running.poll() is not None

    def stop(self) -> None:
        """End it, in order if it can; harmless when it has ended.

        Raises:
            HostError: It had to be killed, or its directory cannot be removed.
        """
        running, self._running = self._running, None
        directory, self._directory = self._directory, None
        if running is None:
            return
        try:
            running.close_stdin()
            if running.wait(_STOP_S) is None:
                raise HostError(f"gateway (pid {running.pid}): alive {_STOP_S:g} s after the end of its input; killed")
        finally:
            running.kill()
            running.close()
            if directory is not None and directory.exists():
                _remove(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _remove(directory: Path) -> None:
    try:
        remove_tree(directory)
    except OSError as error:
        raise HostError(f"gateway directory {directory} cannot be removed: {error}") from error


def _read_line(fd: int, deadline_s: float) -> bytes:
    """Read one line; b"" at the end of input or when the time is up."""
    data = b""
    watcher = select.poll()
    watcher.register(fd, select.POLLIN)
    while not data.endswith(b"\n"):
        if not watcher.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            return b""
        more = os.read(fd, 64 * 1024)
        if not more:
            return b""
        data += more
    return data


class OpenTrial:
    """A trial at the gateway, open until `close`; leaving the context without it gives the attempt up.

    Attributes:
        opened: Its socket and token.
    """

    def __init__(self, control: Path, opening: TrialOpening) -> None:
        """Open the trial.

        Raises:
            GatewayGoneError: There is no gateway.
            UsageError: The gateway refused.
        """
        self._control = control
        self._directory = Path(opening.ledger).parent
        self._is_closed = False
        self._client = _connect(control)
        try:
            self.opened = _ask(self._client, opening, TrialOpened)
        except FairtrialError:
            self._client.close()
            raise

    def fileno(self) -> int:
        """Becomes readable when the gateway dies: wait on it together with the session."""
        return self._client.fileno()

    @property
    def gateway_gone(self) -> bool:
        """The gateway has died."""
        return self._client.server_gone

    def close(self) -> TrialClosed:
        """Close the trial and return what it came to.

        Raises:
            GatewayGoneError: The gateway has died; the wire log holds what was seen till then.
        """
        self._is_closed = True
        try:
            return _ask(self._client, TrialClosing(), TrialClosed)
        finally:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_closed:
            return
        self._client.close()
        with suppress(GatewayGoneError):  # what is gone writes nothing more
            release_directory(self._control, self._directory)


def ask_status(control: Path) -> Status:
    """Ask the gateway how it and its providers are.

    Raises:
        GatewayGoneError: There is no gateway.
    """
    with _connect(control) as client:
        return _ask(client, StatusAsked(), Status)


def release_directory(control: Path, directory: Path) -> None:
    """Have the gateway write no more for an attempt whose worker is gone; returns when its wire logs are at rest.

    Raises:
        GatewayGoneError: There is no gateway, or its answer did not come.
    """
    with _connect(control) as client:
        _ask(client, DirectoryReleasing(directory=str(directory)), DirectoryReleased)


def _connect(control: Path) -> LineClient:
    try:
        return LineClient(control)
    except OSError as error:
        raise GatewayGoneError(f"gateway: nobody answers at {control}: {error.strerror}") from error


def _ask(client: LineClient, question: Message, kind: type[M]) -> M:
    try:
        line = client.ask(render_message(question), timeout_s=_ANSWER_S)
    except TimeoutError as error:
        raise GatewayGoneError(f"gateway: no answer within {_ANSWER_S:g} s") from error
    except OSError as error:
        raise GatewayGoneError(f"gateway: died: {error}") from error
    answer = parse_message(line)
    if not isinstance(answer, kind):
        raise HostError(f"gateway: answered with {type(answer).__name__}; reinstall fairtrial, its parts do not fit")
    return answer
