"""What does the gateway cost? Latency, throughput, many streams and memory, each beside the same work done without it.

    python benchmarks/gateway.py                    full size, about two minutes
    python benchmarks/gateway.py --requests 2000 --megabytes 50

The path is the real one: this client, the relay on loopback TCP, the trial's unix socket, the gateway with its meter,
an upstream on loopback TCP. The floor is the same client at the same upstream without what lies between. Both take
turns, so that drift falls on both sides. Exits 1 when a figure is over its limit; on a busy machine repeat it.
"""

import argparse
import http.client
import json
import math
import os
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import fairtrial
from fairtrial.gateway.client import GatewayProcess, OpenTrial
from fairtrial.gateway.control import TrialOpening
from fairtrial.gateway.settings import GatewaySettings, UpstreamSettings

ADDED_LATENCY_LIMIT_MS: Final = 1.0
STREAM_LIMIT_MB_S: Final = 100.0
N_ROUNDS: Final = 5
N_STREAMS: Final = 64
STREAM_RATE_MB_S: Final = 2.0
BEHIND_LIMIT_RATIO: Final = 1.10
GROWTH_LIMIT_MB: Final = 8.0
MODEL: Final = "claude-sonnet-4-5"
RELAY: Final = Path(fairtrial.__file__).parent / "payload" / "relay.py"
READ_BYTES: Final = 1 << 18
PIECE_CHARACTERS: Final = 20_000
APART_S: Final = 0.4 / N_STREAMS
LAST_CHUNK: Final = b"\r\n0\r\n\r\n"

REPLY: Final = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": MODEL,
    "content": [{"type": "text", "text": "x" * 800}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that runs.

    Attributes:
        direct: Connects to the upstream itself.
        through: Connects to it through relay and gateway.
        gateway_pid: Process id of the gateway.
        token: What the trial must present.
    """

    direct: Callable[[], http.client.HTTPConnection]
    through: Callable[[], http.client.HTTPConnection]
    gateway_pid: int
    token: str


@dataclass(slots=True, kw_only=True)
class Stream:
    """A stream of several replies.

    Attributes:
        begun_s: When it began.
        n_left: Replies that are to come.
        tail: The last bytes.
    """

    begun_s: float
    n_left: int
    tail: bytes = b""


def serve_upstream(n_bytes: int) -> None:
    """Be the provider: a small reply to a small request, and a stream of so many bytes to one that wants a stream."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    small = render(json.dumps(REPLY).encode(), "application/json")
    while True:
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer_all, args=(client, small, n_bytes), daemon=True).start()


def render(body: bytes, content_type: str) -> bytes:
    """A whole reply."""
    return f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def answer_all(client: socket.socket, small: bytes, n_bytes: int) -> None:
    """Answer every request of one connection."""
    reader = client.makefile("rb")
    while head := reader.readline():
        length = 0
        while (line := reader.readline()) not in {b"\r\n", b""}:
            head += line
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = reader.read(length)
        if b'"stream":true' in body:
            send_stream(client, n_bytes)
        else:
            client.sendall(small)


def send_stream(client: socket.socket, n_bytes: int) -> None:
    """Send a stream of text deltas as fast as it is taken, chunked as providers do."""
    client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    client.sendall(chunk(event("message_start", {"message": {**REPLY, "content": []}})))
    client.sendall(chunk(event("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}})))
    text = "y" * (16 * 1024)
    delta = chunk(event("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text}}))
    for _ in range(n_bytes // len(delta)):
        client.sendall(delta)
    client.sendall(chunk(event("content_block_stop", {"index": 0})))
    client.sendall(
        chunk(event("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 20}}))
    )
    client.sendall(chunk(event("message_stop", {})) + b"0\r\n\r\n")


def event(name: str, value: dict[str, object]) -> bytes:
    """One event of a stream."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **value})}\n\n".encode()


def chunk(data: bytes) -> bytes:
    """One chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@contextmanager
def open_scene(scratch: Path, n_bytes: int) -> Iterator[Scene]:
    """Start upstream, gateway, trial and relay."""
    with ExitStack() as stack:
        argv = [sys.executable, __file__, "--upstream", str(n_bytes)]
        upstream = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE))
        stack.callback(upstream.kill)
        port = int(upstream.stdout.readline() if upstream.stdout else b"0")
        gateway, trial = open_trial(stack, scratch, "one", url=f"http://127.0.0.1:{port}")
        relay_port = free_port()
        argv = ["python3", "-I", "-S", str(RELAY), str(relay_port), trial.opened.socket, "--", "sleep", "3600"]
        relay = stack.enter_context(subprocess.Popen(argv, env={"PATH": os.defpath}))
        stack.callback(relay.terminate)
        wait_for_port(relay_port)
        yield Scene(
            direct=lambda: connection(port),
            through=lambda: connection(relay_port),
            gateway_pid=gateway.pid,
            token=trial.opened.token,
        )


def open_trial(
    stack: ExitStack, scratch: Path, name: str, *, url: str | None = None, script: Path | None = None
) -> tuple[GatewayProcess, OpenTrial]:
    """Start a gateway with one trial."""
    upstreams = () if url is None else (UpstreamSettings(name="upstream", url=url),)
    gateway = stack.enter_context(GatewayProcess())
    control = gateway.start(
        GatewaySettings(directory=str(scratch / name), upstreams=upstreams),
        {"PATH": os.defpath, "PYTHONPATH": str(Path(fairtrial.__file__).parents[1])},
    )
    opening = TrialOpening(
        trial=name,
        ledger=str(scratch / f"{name}.jsonl"),
        models=(MODEL,),
        dialects=("anthropic-messages",),
        upstream=None if url is None else "upstream",
        script=None if script is None else str(script),
    )
    return gateway, stack.enter_context(OpenTrial(control, opening))


def connection(port: int) -> http.client.HTTPConnection:
    """A connection that does not wait for acknowledgements."""
    made = http.client.HTTPConnection("127.0.0.1", port)
    made.connect()
    made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for_port(port: int) -> None:
    """Wait until somebody listens."""
    deadline_s = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)
        else:
            return


def ask(client: http.client.HTTPConnection, token: str, *, stream: bool) -> http.client.HTTPResponse:
    """Send one request."""
    body = json.dumps(
        {"model": MODEL, "max_tokens": 1000, "stream": stream, "messages": [{"role": "user", "content": "hi " * 500}]},
        separators=(",", ":"),
    )
    client.request("POST", "/v1/messages", body, {"x-api-key": token, "content-type": "application/json"})
    reply = client.getresponse()
    if reply.status != 200:
        raise RuntimeError(f"status {reply.status}: {reply.read()!r:.200}")
    return reply


def measure_latency(scene: Scene, n: int) -> Iterator[str]:
    """Median milliseconds of a small request on a kept connection, one right after the other; the best round."""
    rounds = [measure_latency_once(scene, n // N_ROUNDS) for _ in range(N_ROUNDS)]
    floor_ms, own_ms = min(rounds, key=lambda found: found[1] - found[0])
    added_ms = own_ms - floor_ms
    yield from report(
        "latency, ms a request", floor_ms, own_ms, f"added {added_ms:.3f}", ADDED_LATENCY_LIMIT_MS, added_ms
    )


def measure_latency_once(scene: Scene, n: int) -> tuple[float, float]:
    """Median milliseconds directly and through the gateway, in turns."""
    direct, through = scene.direct(), scene.through()
    times: dict[http.client.HTTPConnection, list[float]] = {direct: [], through: []}
    for turn in range(n + 20):
        for client, found in times.items():
            begun_s = time.perf_counter()
            ask(client, scene.token, stream=False).read()
            if turn >= 20:  # the first ones open connections and fill caches
                found.append((time.perf_counter() - begun_s) * 1000)
    floor_ms, own_ms = (statistics.median(found) for found in times.values())
    return floor_ms, own_ms


def measure_stream(scene: Scene, n_bytes: int, n: int) -> Iterator[str]:
    """MB/s of one stream, the best of some turns each."""
    rates: dict[str, list[float]] = {"direct": [], "through": []}
    for _ in range(n):
        for name, connect in (("direct", scene.direct), ("through", scene.through)):
            begun_s = time.perf_counter()
            n_read = drain(ask(connect(), scene.token, stream=True))
            rates[name].append(n_read / 1e6 / (time.perf_counter() - begun_s))
            if n_read < n_bytes * 0.95:
                raise RuntimeError(f"a stream of {n_read} bytes instead of {n_bytes}")
    floor, own = (max(found) for found in rates.values())
    yield from report("one stream, MB/s", floor, own, "through", -STREAM_LIMIT_MB_S, -own)


def drain(reply: http.client.HTTPResponse) -> int:
    """Read a reply to its end; returns the bytes of its body."""
    n_bytes = 0
    buffer = bytearray(READ_BYTES)
    while n := reply.readinto(buffer):
        n_bytes += n
    return n_bytes


def measure_streams(scratch: Path, duration_s: float) -> Iterator[str]:
    """How much longer than planned do many paced streams of a script take?"""
    # A script file has at most 1 MiB, so a long stream is several replies, one after the other.
    n_pieces = 800_000 // PIECE_CHARACTERS
    n_replies = max(1, round(STREAM_RATE_MB_S * 1e6 * duration_s / (n_pieces * PIECE_CHARACTERS)))
    planned_s = n_replies * n_pieces * PIECE_CHARACTERS / (STREAM_RATE_MB_S * 1e6)
    script = scratch / "streams.yaml"
    turn = {
        "text": "z" * (n_pieces * PIECE_CHARACTERS),
        "piece_characters": PIECE_CHARACTERS,
        "piece_delay_s": PIECE_CHARACTERS / (STREAM_RATE_MB_S * 1e6),
        "usage": {"output": 10},
    }
    script.write_text(json.dumps({"schema": "script/1", "agents": [{"name": "all", "turns": [turn]}]}))
    with ExitStack() as stack:
        _, trial = open_trial(stack, scratch, "streams", script=script)
        argv = [sys.executable, __file__, "--drain", trial.opened.socket, trial.opened.token, str(n_replies)]
        drainer = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE))
        out, _ = drainer.communicate()
        took = json.loads(out)
    ratio = max(took) / planned_s
    yield from report(f"{N_STREAMS} streams, s", planned_s, max(took), "slowest", BEHIND_LIMIT_RATIO, ratio)


def drain_streams(path: str, token: str, n_replies: int) -> None:
    """Read all streams at once, in one thread and without parsing; print the seconds that each took.

    They begin one after the other, within the time of one reply, as trials do.
    """
    body = json.dumps(
        {"model": MODEL, "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    )
    head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()
    selector = selectors.DefaultSelector()
    streams: dict[socket.socket, Stream] = {}
    took: list[float] = []
    opened_s = time.perf_counter()
    while len(took) < N_STREAMS:
        now_s = time.perf_counter()
        if len(streams) < N_STREAMS and now_s >= opened_s + len(streams) * APART_S:
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            client.sendall(request)
            selector.register(client, selectors.EVENT_READ)
            streams[client] = Stream(begun_s=now_s, n_left=n_replies)
        for key, _ in selector.select(APART_S if len(streams) < N_STREAMS else None):
            stream = streams[key.fileobj]
            data = key.fileobj.recv(READ_BYTES)
            stream.tail = (stream.tail + data)[-len(LAST_CHUNK) :]
            if stream.tail == LAST_CHUNK:
                stream.n_left -= 1
                if stream.n_left:
                    key.fileobj.sendall(request)
            if not data or not stream.n_left:
                took.append(math.inf if stream.n_left else time.perf_counter() - stream.begun_s)
                selector.unregister(key.fileobj)
    print(json.dumps(took))


def measure_memory(scene: Scene, n: int) -> Iterator[str]:
    """How much the gateway grows over many requests, after the first tenth of them."""
    client = scene.through()
    early_mb = 0.0
    for turn in range(n):
        if turn == n // 10:
            early_mb = rss_mb(scene.gateway_pid)
        ask(client, scene.token, stream=False).read()
    late_mb = rss_mb(scene.gateway_pid)
    yield from report(f"memory over {n} requests, MB", early_mb, late_mb, "grew", GROWTH_LIMIT_MB, late_mb - early_mb)


def rss_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def report(what: str, floor: float, own: float, note: str, limit: float, figure: float) -> Iterator[str]:
    """Print one line; yield what is over its limit."""
    verdict = "ok" if figure <= limit else "OVER"
    print(
        f"{what:34}{floor:12.3f}{own:12.3f}{own / floor:8.2f}x  {note:18} limit {abs(limit):g}  {verdict}", flush=True
    )
    if figure > limit:
        yield f"over: {what}: {abs(figure):.3f} against {abs(limit):g}"


def main() -> int:
    """Measure, print; 1 when a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000, help="for memory; a tenth of them for latency")
    parser.add_argument("--megabytes", type=int, default=200, help="of the one stream")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the many streams")
    parser.add_argument("--upstream", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--drain", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.upstream is not None:
        serve_upstream(arguments.upstream)
    if arguments.drain is not None:
        path, token, n_replies = arguments.drain
        drain_streams(path, token, int(n_replies))
        return 0
    scratch = Path(tempfile.mkdtemp(prefix="ft-", dir="/var/tmp"))
    n_bytes = arguments.megabytes * 1_000_000
    print(f"{'':34}{'floor':>12}{'gateway':>12}{'ratio':>9}")
    try:
        with open_scene(scratch, n_bytes) as scene:
            problems = [*measure_latency(scene, arguments.requests // 10), *measure_stream(scene, n_bytes, 3)]
            problems += measure_memory(scene, arguments.requests)
        problems += measure_streams(scratch, arguments.seconds)
    finally:
        shutil.rmtree(scratch)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
