"""The stand-in for a provider: quick, dumb, and no part of what is measured.

    provider answer BYTES                       a small reply to a small request, a stream of BYTES to one for a stream
    provider pace PIECES CHARACTERS DELAY_S     to each request a stream of so many pieces, one each DELAY_S

Prints its port and serves until it is killed.
"""

import json
import selectors
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final

MODEL: Final = "claude-sonnet-4-5"
_USAGE: Final = {
    "input_tokens": 10,
    "output_tokens": 20,
    "cache_read_input_tokens": 5,
    "cache_creation_input_tokens": 0,
}
_REPLY: Final = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": MODEL,
    "content": [{"type": "text", "text": "x" * 800}],
    "stop_reason": "end_turn",
    "usage": _USAGE,
}
_STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_DELTA_CHARACTERS: Final = 16 * 1024


def render_whole(body: bytes) -> bytes:
    """A reply in one piece."""
    return f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def render_chunk(name: str, value: dict[str, object]) -> bytes:
    """One event of a stream, chunked as providers do."""
    data = f"event: {name}\ndata: {json.dumps({'type': name, **value})}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def render_delta(n_characters: int) -> bytes:
    """An event with so much text."""
    return render_chunk(
        "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "y" * n_characters}}
    )


_BEGIN: Final = render_chunk("message_start", {"message": {**_REPLY, "content": []}}) + render_chunk(
    "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
)
_END: Final = b"".join(
    (
        render_chunk("content_block_stop", {"index": 0}),
        render_chunk("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 20}}),
        render_chunk("message_stop", {}),
        b"0\r\n\r\n",
    )
)


def serve_answers(listener: socket.socket, n_bytes: int) -> None:
    """Answer as fast as replies are taken, each connection in a thread."""
    small = render_whole(json.dumps(_REPLY).encode())
    while True:
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer_all, args=(client, small, n_bytes), daemon=True).start()


def _answer_all(client: socket.socket, small: bytes, n_bytes: int) -> None:
    reader = client.makefile("rb")
    while reader.readline():
        length = 0
        while (line := reader.readline()) not in {b"\r\n", b""}:
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if b'"stream":true' not in reader.read(length):
            client.sendall(small)
            continue
        delta = render_delta(_DELTA_CHARACTERS)
        client.sendall(_STREAM_HEAD + _BEGIN)
        for _ in range(n_bytes // len(delta)):
            client.sendall(delta)
        client.sendall(_END)


@dataclass(slots=True, kw_only=True)
class _Paced:
    """A stream under way.

    Attributes:
        due_s: When the next piece is due.
        n_sent: Pieces sent so far.
    """

    due_s: float
    n_sent: int = 0


def serve_paced(listener: socket.socket, n_pieces: int, n_characters: int, delay_s: float) -> None:
    """Answer every request with a paced stream, all in one thread; requests are small and come in one read."""
    delta = render_delta(n_characters)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    streams: dict[socket.socket, _Paced] = {}
    while True:
        now_s = time.monotonic()
        pause_s = min((each.due_s for each in streams.values()), default=now_s + 1) - now_s
        for key, _ in selector.select(max(0.0, pause_s)):
            if key.fileobj is listener:
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(client, selectors.EVENT_READ)
            elif isinstance(key.fileobj, socket.socket):
                if not key.fileobj.recv(1 << 16):
                    selector.unregister(key.fileobj)
                    continue
                key.fileobj.sendall(_STREAM_HEAD + _BEGIN + delta)
                streams[key.fileobj] = _Paced(due_s=time.monotonic() + delay_s, n_sent=1)
        now_s = time.monotonic()
        for client, stream in tuple(streams.items()):
            while stream.due_s <= now_s and stream.n_sent < n_pieces:
                client.sendall(delta)
                stream.n_sent += 1
                stream.due_s += delay_s
            if stream.due_s <= now_s:
                client.sendall(_END)
                del streams[client]


def main() -> None:
    """Listen, print the port, serve."""
    kind, *numbers = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    if kind == "answer":
        serve_answers(listener, int(numbers[0]))
    else:
        serve_paced(listener, int(numbers[0]), int(numbers[1]), float(numbers[2]))


if __name__ == "__main__":
    main()
