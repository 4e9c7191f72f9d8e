"""What does the gateway cost? Latency, throughput, many streams and memory, each beside the same work done without it.

    python benchmarks/gateway.py                     full size, about two minutes
    python benchmarks/gateway.py --only memory       resident memory over 10,000 requests alone
    python benchmarks/gateway.py --requests 2000 --megabytes 50

The path is the real one: this client, the relay on loopback TCP, the trial's unix socket, the gateway with its meter,
an upstream on loopback TCP. The floor is the same client at the same upstream without what lies between. Both take
turns, so that drift falls on both sides. The many streams are a script's, so that the model's part is played by the
gateway itself; their floor is the same clients at a bare server that keeps the same pace.

Exits 1 when a figure is over its limit. Run it on a quiet machine; where there is none, `chrt -f 1 python
benchmarks/gateway.py` (as root) puts both sides, and what they start, before all other work.
"""

import argparse
import http.client
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from gateway_parts.provider import MODEL
from gateway_parts.scene import (
    Scene,
    Way,
    cpu_s,
    drain_streams,
    open_gateway,
    open_relay,
    open_scene,
    open_trial,
    serve,
)

ADDED_LATENCY_LIMIT_MS: Final = 1.0
STREAM_LIMIT_MB_S: Final = 100.0
N_ROUNDS: Final = 5
N_STREAMS: Final = 64
N_RELAYS: Final = 8
STREAM_RATE_MB_S: Final = 2.0
BEHIND_LIMIT_RATIO: Final = 1.10
GROWTH_LIMIT_MB: Final = 8.0
READ_BYTES: Final = 1 << 18
PIECE_CHARACTERS: Final = 20_000
N_PIECES: Final = 1_000_000 // PIECE_CHARACTERS
REPLY_S: Final = N_PIECES * PIECE_CHARACTERS / (STREAM_RATE_MB_S * 1e6)
N_FRAME_EVENTS: Final = 5
"""Events of a scripted reply beside its pieces of text; each but the first has the script's delay before it."""


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
    """How much longer than planned do many paced streams of a script take?

    Where the floor itself takes longer than planned the machine is too busy, and time counts against the floor's.
    """
    # A script file has at most 1 MiB, so a long stream is several replies; what passes between them is in the time.
    n_replies = max(1, round(duration_s / REPLY_S))
    planned_s = n_replies * REPLY_S
    script = scratch / "streams.yaml"
    turn = {
        "text": "z" * (N_PIECES * PIECE_CHARACTERS),
        "piece_characters": PIECE_CHARACTERS,
        "piece_delay_s": REPLY_S / (N_PIECES + N_FRAME_EVENTS - 1),
        "usage": {"output": 10},
    }
    script.write_text(json.dumps({"schema": "script/1", "agents": [{"name": "all", "turns": [turn]}]}))
    with ExitStack() as stack:
        bare = serve(stack, "pace", N_PIECES, PIECE_CHARACTERS, REPLY_S / N_PIECES)
        floor = drain_streams([bare], N_STREAMS, n_replies, REPLY_S)
        control, gateway_pid = open_gateway(stack, scratch / "streams", ())
        relays: list[Way] = []
        for number in range(N_RELAYS):
            opened = open_trial(stack, control, scratch / f"streams-{number}.jsonl", script=script)
            relays.append(open_relay(stack, opened))
        pids = (gateway_pid, *(relay.pid for relay in relays))
        before_s = [cpu_s(pid) for pid in pids]
        own = drain_streams(relays, N_STREAMS, n_replies, REPLY_S)
        used_s = [cpu_s(pid) - early_s for pid, early_s in zip(pids, before_s, strict=True)]
    ratio = own.slowest_s / max(planned_s, floor.slowest_s)
    name = f"{N_STREAMS} streams of {planned_s:.1f} s, s"
    yield from report(name, floor.slowest_s, own.slowest_s, "slowest", BEHIND_LIMIT_RATIO, ratio)
    cores = [each / own.elapsed_s for each in (used_s[0], sum(used_s[1:]), own.cpu_s)]
    shares = "gateway {:.2f}, relays {:.2f}, clients {:.2f}".format(*cores)
    print(f"{'  cores at work':34}{floor.cpu_s / floor.elapsed_s:12.2f}{sum(cores):12.2f}{'':11}{shares}", flush=True)


def measure_memory(scene: Scene, n: int) -> Iterator[str]:
    """How much the gateway grows over many requests, after the first tenth of them."""
    client = scene.through()
    found_mb: list[float] = []
    for turn in range(n):
        if turn and turn % (n // 10) == 0:
            found_mb.append(rss_mb(scene.gateway_pid))
        ask(client, scene.token, stream=False).read()
    found_mb.append(rss_mb(scene.gateway_pid))
    grew_mb = found_mb[-1] - found_mb[0]
    yield from report(f"memory over {n} requests, MB", found_mb[0], found_mb[-1], "grew", GROWTH_LIMIT_MB, grew_mb)
    print(f"{'  after each tenth':34}{' '.join(f'{each:.1f}' for each in found_mb)}", flush=True)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("latency", "stream", "streams", "memory"), help="one measurement alone")
    parser.add_argument("--requests", type=int, default=10_000, help="for memory; a tenth of them for latency")
    parser.add_argument("--megabytes", type=int, default=200, help="of the one stream")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the many streams")
    arguments = parser.parse_args()
    chosen = {arguments.only} if arguments.only else {"latency", "stream", "streams", "memory"}
    scratch = Path(tempfile.mkdtemp(prefix="ft-", dir="/var/tmp"))
    n_bytes = arguments.megabytes * 1_000_000
    problems: list[str] = []
    print(f"{'':34}{'floor':>12}{'gateway':>12}{'ratio':>9}")
    try:
        with open_scene(scratch, n_bytes) as scene:
            if "latency" in chosen:
                problems += measure_latency(scene, arguments.requests // 10)
            if "stream" in chosen:
                problems += measure_stream(scene, n_bytes, 3)
            if "memory" in chosen:
                problems += measure_memory(scene, arguments.requests)
        if "streams" in chosen:
            problems += measure_streams(scratch, arguments.seconds)
    finally:
        shutil.rmtree(scratch)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
