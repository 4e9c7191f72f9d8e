"""Many clients in one thread, which read their streams without looking into them.

    clients N_STREAMS N_REPLIES APART_S PORT:TOKEN...

Streams are dealt out to the ports in turn and begin APART_S one after the other, as trials do; each asks for its next
reply when it has the one before. Prints one JSON object: the seconds that each stream took, and what this process used.
"""

import json
import math
import selectors
import socket
import sys
import time
from dataclasses import dataclass
from typing import Final

from gateway_parts.provider import MODEL

_READ_BYTES: Final = 1 << 18
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"


@dataclass(slots=True, kw_only=True)
class _Stream:
    """A stream of several replies.

    Attributes:
        client: Its connection.
        request: What asks for one of them.
        begun_s: When it began.
        n_left: Replies that are to come.
        tail: The last bytes.
    """

    client: socket.socket
    request: bytes
    begun_s: float
    n_left: int
    tail: bytes = b""


def render_request(token: str) -> bytes:
    """A request for a stream."""
    body = json.dumps(
        {"model": MODEL, "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    )
    head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


def drain(ways: list[tuple[int, str]], n_streams: int, n_replies: int, apart_s: float) -> list[float]:
    """Read all streams; return the seconds that each took, infinite where it broke."""
    selector = selectors.DefaultSelector()
    n_begun = 0
    took_s: list[float] = []
    buffer = memoryview(bytearray(_READ_BYTES))
    opened_s = time.perf_counter()
    while len(took_s) < n_streams:
        now_s = time.perf_counter()
        if n_begun < n_streams and now_s >= opened_s + n_begun * apart_s:
            port, token = ways[n_begun % len(ways)]
            client = socket.create_connection(("127.0.0.1", port))
            stream = _Stream(client=client, request=render_request(token), begun_s=now_s, n_left=n_replies)
            client.sendall(stream.request)
            selector.register(client, selectors.EVENT_READ, stream)
            n_begun += 1
        for key, _ in selector.select(apart_s if n_begun < n_streams else None):
            stream = key.data
            n_read = stream.client.recv_into(buffer)
            end = bytes(buffer[max(0, n_read - len(_LAST_CHUNK)) : n_read])
            stream.tail = (stream.tail + end)[-len(_LAST_CHUNK) :]
            if stream.tail == _LAST_CHUNK:
                stream.n_left -= 1
                if stream.n_left:
                    stream.client.sendall(stream.request)
            if not n_read or not stream.n_left:
                took_s.append(math.inf if stream.n_left else time.perf_counter() - stream.begun_s)
                selector.unregister(stream.client)
                stream.client.close()
    return took_s


def main() -> None:
    """Drain and print."""
    n_streams, n_replies, apart_s, *ways = sys.argv[1:]
    split = [way.partition(":") for way in ways]
    begun_s = time.perf_counter()
    cpu_begun_s = time.process_time()
    took_s = drain([(int(port), token) for port, _, token in split], int(n_streams), int(n_replies), float(apart_s))
    elapsed_s = time.perf_counter() - begun_s
    print(json.dumps({"took_s": took_s, "elapsed_s": elapsed_s, "cpu_s": time.process_time() - cpu_begun_s}))


if __name__ == "__main__":
    main()
