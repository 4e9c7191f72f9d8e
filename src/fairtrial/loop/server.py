"""A tool's own server: started on a free port, ready when it says so, gone with us."""

import hashlib
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.process import Running, start
from fairtrial.model.loop import Serve

__all__ = ["OwnServer", "candidate_ports", "own_server"]

START_S: Final = 20.0
GRACE_S: Final = 2.0
POLL_S: Final = 0.01
N_PORTS: Final = 20
FIRST_PORT: Final = 20_000
LAST_PORT: Final = 32_000  # below the kernel's ephemeral ports, which clients hold for minutes


def candidate_ports(name: str) -> Iterator[int]:
    """Ports to try, spread by a hash so that servers started side by side seldom meet; only a bind tells a free one."""
    for n in range(N_PORTS):
        digest = hashlib.sha256(f"{name}:{n}".encode()).digest()
        yield FIRST_PORT + int.from_bytes(digest[:4], "big") % (LAST_PORT - FIRST_PORT)


class OwnServer:
    """One server on one port.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, serve: Serve, env: Mapping[str, str], log: Path, port: int) -> None:
        self.port = port
        self._serve = serve
        self._env = env
        self._log = log
        self._lives = ExitStack()
        self._running: Running | None = None

    def start(self) -> bool:
        """Start it and wait until it says that it listens; false when it ended instead."""
        self._log.unlink(missing_ok=True)
        command = (argument.replace("{port}", str(self.port)) for argument in self._serve.argv)
        argv = ("/bin/sh", "-c", 'exec "$@" >"$0" 2>&1', str(self._log), *command)
        self._running = self._lives.enter_context(start(argv, env=self._env, cwd=self._serve.cwd))
        return _wait_ready(self._running, self._serve, self._log)

    def revive(self) -> bool:
        """Start it again, on its port, if it has ended; whether it had.

        Raises:
            HostError: It does not come up again.
        """
        if self._running is None or self._running.poll() is None:
            return False
        if not self.start():
            raise HostError(f"{self._serve.argv[0]}: its server does not start again; {_last_line(self._log)}")
        return True

    def stop(self) -> None:
        """End it, politely where it lets us."""
        if self._running is not None:
            self._running.terminate(GRACE_S)
        self.kill()

    def kill(self) -> None:
        """End it and every earlier life of it."""
        self._lives.close()


@contextmanager
def own_server(serve: Serve, env: Mapping[str, str], log: Path) -> Generator[OwnServer]:
    """Run a server for the length of the context; what it prints goes to `log`.

    A server that ends before it is ready, as one does whose port is taken, is tried again on the next port.

    Raises:
        HostError: It cannot be started, is not ready in time, or no port will do.
    """
    for port in candidate_ports(str(log)):
        server = OwnServer(serve, env, log, port)
        try:
            if server.start():
                yield server
                server.stop()
                return
        finally:
            server.kill()
    raise HostError(f"{serve.argv[0]}: its server never came up on any of {N_PORTS} ports; {_last_line(log)}")


def _wait_ready(running: Running, serve: Serve, log: Path) -> bool:
    """Wait for the ready line; False when the server ended instead."""
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        ended = running.wait(POLL_S) is not None
        if log.exists() and serve.ready in log.read_text(errors="replace"):
            return not ended
        if ended:
            return False
    raise HostError(f"{serve.argv[0]}: its server was not ready within {START_S:g} s; {_last_line(log)}")


def _last_line(log: Path) -> str:
    said = log.read_text(errors="replace").split("\n") if log.exists() else []
    lines = [line for line in said if line.strip()]
    return f"it said: {lines[-1][-200:]}" if lines else "it said nothing"
