"""A tool's own server: started on a free port, ready when it says so, gone with us."""

import hashlib
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.process import Running, start
from fairtrial.model.loop import Serve

__all__ = ["candidate_ports", "own_server"]

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


@contextmanager
def own_server(serve: Serve, env: Mapping[str, str], log: Path) -> Generator[int]:
    """Run a server for the length of the context and yield its port; what it prints goes to `log`.

    A server that ends before it is ready, as one does whose port is taken, is tried again on the next port.

    Raises:
        HostError: It cannot be started, is not ready in time, or no port will do.
    """
    for port in candidate_ports(str(log)):
        log.unlink(missing_ok=True)
        command = (argument.replace("{port}", str(port)) for argument in serve.argv)
        argv = ("/bin/sh", "-c", 'exec "$@" >"$0" 2>&1', str(log), *command)
        with start(argv, env=env, cwd=serve.cwd) as running:
            if _wait_ready(running, serve, log):
                yield port
                running.terminate(GRACE_S)
                return
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
