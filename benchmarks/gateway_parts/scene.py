"""Everything that runs around a measurement: provider, gateway, trials, relays, and the clients of many streams."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import fairtrial
from fairtrial.gateway.client import GatewayProcess, OpenTrial
from fairtrial.gateway.control import TrialOpened, TrialOpening
from fairtrial.gateway.settings import GatewaySettings, UpstreamSettings
from gateway_parts.provider import MODEL

_RELAY: Final = Path(fairtrial.__file__).parent / "payload" / "relay.py"
_HERE: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A port that leads to a model.

    Attributes:
        port: It, on 127.0.0.1.
        token: What must be presented there.
        pid: The process that listens.
    """

    port: int
    token: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A provider, and a trial's way to it.

    Attributes:
        direct: Connects to the provider itself.
        through: Connects to it through relay and gateway.
        gateway_pid: Process id of the gateway.
        token: What the trial must present.
    """

    direct: Callable[[], http.client.HTTPConnection]
    through: Callable[[], http.client.HTTPConnection]
    gateway_pid: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What became of many streams.

    Attributes:
        took_s: Seconds that each took.
        elapsed_s: Seconds from the first one's beginning to the last one's end.
        cpu_s: Seconds of one core that the clients took.
    """

    took_s: tuple[float, ...]
    elapsed_s: float
    cpu_s: float

    @property
    def slowest_s(self) -> float:
        """The slowest one's."""
        return max(self.took_s)


@contextmanager
def open_scene(scratch: Path, n_bytes: int) -> Iterator[Scene]:
    """Start provider, gateway, trial and relay."""
    with ExitStack() as stack:
        provider = serve(stack, "answer", n_bytes)
        upstream = UpstreamSettings(name="upstream", url=f"http://127.0.0.1:{provider.port}")
        control, gateway_pid = open_gateway(stack, scratch / "one", (upstream,))
        way = open_relay(stack, open_trial(stack, control, scratch / "one.jsonl", upstream="upstream"))
        yield Scene(
            direct=lambda: _connect(provider.port),
            through=lambda: _connect(way.port),
            gateway_pid=gateway_pid,
            token=way.token,
        )


def serve(stack: ExitStack, *arguments: object) -> Way:
    """Start a stand-in for a provider."""
    argv = [sys.executable, "-m", "gateway_parts.provider", *map(str, arguments)]
    server = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=_HERE))
    stack.callback(server.kill)
    return Way(port=int(server.stdout.readline() if server.stdout else b"0"), token="", pid=server.pid)


def open_gateway(stack: ExitStack, directory: Path, upstreams: Sequence[UpstreamSettings]) -> tuple[Path, int]:
    """Start a gateway; return its control socket and its process id."""
    gateway = stack.enter_context(GatewayProcess())
    control = gateway.start(
        GatewaySettings(directory=str(directory), upstreams=tuple(upstreams)),
        {"PATH": os.defpath, "PYTHONPATH": str(Path(fairtrial.__file__).parents[1])},
    )
    return control, gateway.pid


def open_trial(
    stack: ExitStack, control: Path, ledger: Path, *, upstream: str | None = None, script: Path | None = None
) -> TrialOpened:
    """Open a trial."""
    opening = TrialOpening(
        trial=ledger.stem,
        ledger=str(ledger),
        models=(MODEL,),
        dialects=("anthropic-messages",),
        upstream=upstream,
        script=None if script is None else str(script),
    )
    return stack.enter_context(OpenTrial(control, opening)).opened


def open_relay(stack: ExitStack, opened: TrialOpened) -> Way:
    """Start a relay to a trial's socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    argv = ["python3", "-I", "-S", str(_RELAY), str(port), opened.socket, "--", "sleep", "3600"]
    relay = stack.enter_context(subprocess.Popen(argv, env={"PATH": os.defpath}))
    stack.callback(relay.terminate)
    deadline_s = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)
        else:
            return Way(port=port, token=opened.token, pid=relay.pid)


def drain_streams(ways: Sequence[Way], n_streams: int, n_replies: int, reply_s: float) -> Drained:
    """Read many streams in a process of their own; they begin within the time of one reply."""
    numbers = map(str, (n_streams, n_replies, reply_s / n_streams))
    argv = [sys.executable, "-m", "gateway_parts.clients", *numbers, *(f"{way.port}:{way.token}" for way in ways)]
    found = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True, cwd=_HERE).stdout)
    return Drained(took_s=tuple(found["took_s"]), elapsed_s=found["elapsed_s"], cpu_s=found["cpu_s"])


def cpu_s(pid: int) -> float:
    """Seconds of one core that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _connect(port: int) -> http.client.HTTPConnection:
    """A connection that does not wait for acknowledgements."""
    made = http.client.HTTPConnection("127.0.0.1", port)
    made.connect()
    made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
