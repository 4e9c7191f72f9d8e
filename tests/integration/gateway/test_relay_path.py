"""The whole way that a session's requests take: relay on loopback, the trial's socket, gateway, provider."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

import fairtrial
from fairtrial.gateway.client import GatewayProcess, OpenTrial
from fairtrial.gateway.control import TrialOpening
from fairtrial.gateway.ledger import Ending
from fairtrial.gateway.settings import GatewaySettings, UpstreamSettings

Scene = Any
Provider = Any
Trial = Any
Handler = Any
MakeStream = Any
MakeAnswer = Callable[..., object]

RELAY = Path(fairtrial.__file__).parent / "payload" / "relay.py"
MEGA = 1_000_000
DIALECTS = {
    "anthropic-messages": ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}),
    "openai-chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "openai-responses": ("/v1/responses", {"input": "hi", "store": False}),
    "gemini": (
        "/v1beta/models/claude-sonnet-4-5:streamGenerateContent?alt=sse",
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A relay that leads to a trial."""

    port: int
    pid: int
    trial: Trial

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=200)

    def ask(self, dialect: str, *, client: http.client.HTTPConnection, **changes: object) -> http.client.HTTPResponse:
        path, body = DIALECTS[dialect]
        named = {} if dialect == "gemini" else {"model": "claude-sonnet-4-5", "stream": True}
        name, token = {
            "anthropic-messages": ("x-api-key", self.trial.token),
            "gemini": ("x-goog-api-key", self.trial.token),
        }.get(dialect, ("authorization", f"Bearer {self.trial.token}"))
        data = json.dumps({**named, **body, **changes}).encode()
        client.request("POST", path, data, {"content-type": "application/json", name: token})
        return client.getresponse()


@contextmanager
def relayed(trial: Trial) -> Iterator[Way]:
    argv = ["python3", "-I", "-S", str(RELAY), "0", trial.open.opened.socket, "--", "sh", "-c"]
    argv.append("echo $FAIRTRIAL_RELAY_PORT; exec cat")
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env={"PATH": os.defpath}, stdin=pipe, stdout=pipe) as relay:
        assert relay.stdout is not None
        yield Way(port=int(relay.stdout.readline()), pid=relay.pid, trial=trial)
        relay.kill()


def memory_mb(pid: int, name: str) -> float:
    """`VmRSS` or `VmHWM`, the most it ever was."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024 / MEGA


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_client_that_leaves_a_stream_ends_it_at_the_provider(
    scene: Scene, provider: Provider, make_stream: MakeStream, dialect: str
) -> None:
    noticed = threading.Event()

    def go_on(handler: Handler) -> None:
        try:
            while True:
                handler.chunk(b": and on\n\n" * 1000)
        except OSError:
            noticed.set()
            handler.close_connection = True

    trial = scene.open()
    provider.then(make_stream(1, then=go_on))
    with relayed(trial) as way:
        client = way.connect()
        assert way.ask(dialect, client=client).read1(10)
        client.close()
        assert noticed.wait(30)
    (row,) = trial.wait_rows(1)
    assert (row.ending, row.dialect) == (Ending.CLIENT_GONE, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_client_that_leaves_before_the_reply_ends_the_request_at_the_provider(
    scene: Scene, provider: Provider, dialect: str
) -> None:
    arrived, over = threading.Event(), threading.Event()

    def wait(handler: Handler) -> None:
        arrived.set()
        if handler.rfile.read(1) == b"":
            over.set()
        handler.close_connection = True

    trial = scene.open()
    provider.then(wait)
    with relayed(trial) as way:
        client = way.connect()

        def ask_in_vain() -> None:
            with pytest.raises((OSError, http.client.HTTPException)):
                way.ask(dialect, client=client)

        asking = threading.Thread(target=ask_in_vain)
        asking.start()
        assert arrived.wait(30)
        client.sock.shutdown(socket.SHUT_RDWR)
        asking.join()
        client.close()
        assert over.wait(30)
    (row,) = trial.wait_rows(1)
    assert (row.ending, row.dialect) == (Ending.CLIENT_GONE, dialect)


LARGE: Final = "A" * 100 * MEGA
IMAGE: Final = "data:image/png;base64," + "A" * 40 * MEGA
LARGE_BODIES: Final[dict[str, dict[str, object]]] = {
    "anthropic-messages": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": LARGE}},
                    {"type": "tool_result", "tool_use_id": "t", "content": "\u20ac\n" * MEGA},
                ],
            }
        ]
    },
    "openai-chat": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]}]},
    "openai-responses": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]}]},
    "gemini": {
        "contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": IMAGE[22:]}}]}],
    },
}


@pytest.mark.timeout(500)
def test_a_hundred_megabytes_up_are_never_in_memory(own_scene: Scene, own_provider: Provider) -> None:
    """The body is spooled, and judged by its outline; asking for the usage of a stream changes nothing about that."""
    trial = own_scene.open(include_usage=True)
    with relayed(trial) as way:
        client = way.connect()
        assert way.ask("anthropic-messages", client=client).read()
        before_mb = memory_mb(own_scene.process.pid, "VmRSS")
        for dialect, (_, plain) in DIALECTS.items():
            reply = way.ask(dialect, client=client, **LARGE_BODIES[dialect])
            assert (reply.status, len(reply.read()) > 100) == (200, True), dialect
            assert memory_mb(own_scene.process.pid, "VmHWM") - before_mb < 40, dialect
            got = json.loads(own_provider.seen.pop().body)
            assert got.items() >= {**plain, **LARGE_BODIES[dialect]}.items(), dialect
            assert got.get("stream_options") == ({"include_usage": True} if dialect == "openai-chat" else None)
        client.close()
        assert memory_mb(way.pid, "VmHWM") < 30
    _, *large = trial.wait_rows(1 + len(DIALECTS))
    assert [row.dialect for row in large] == list(DIALECTS)
    assert [row.dialect for row in large if row.usage_was_asked_for] == ["openai-chat"]
    assert large[0].request_bytes > 100 * MEGA
    assert all(row.request_bytes > 40 * MEGA for row in large)
    assert [result.n_characters for result in large[0].tool_results] == [2 * MEGA]


def test_a_large_body_is_judged_as_a_small_one_is(own_scene: Scene, own_provider: Provider) -> None:
    long = {"role": "user", "content": "A" * 2 * MEGA}
    away = {"type": "image", "source": {"type": "url", "url": "https://example.org/" + "a" * 5000}}
    mark = "the-marker-of-a-skill"
    trial = own_scene.open(markers=(mark, "another"))
    with relayed(trial) as way:
        client = way.connect()
        for changes in (
            {"messages": [long, {"role": "user", "content": [away]}]},
            {"messages": [long], "tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            {"messages": [long], "model": "claude-opus-4-1", "system": mark},
            {"messages": [long], "k" * 5000: 1},
            {"messages": [{"role": "user", "content": "A" * (256 * 1024 * 5 - 110) + mark}]},
        ):
            assert way.ask("anthropic-messages", client=client, **changes).read()
        client.close()
    *refused, passed = trial.wait_rows(5)
    assert [row.refusal for row in refused] == ["egress", "egress", "model", "body"]
    assert refused[0].refused == ("remote-url messages[1].content[0].source",)
    assert [row.markers for row in refused] == [()] * 4, "nothing is looked for in what is refused"
    assert (passed.ending, passed.markers) == (Ending.ANSWERED, (mark,))
    assert len(own_provider.seen) == 1


def test_a_retry_of_a_large_body_is_known_as_one(
    own_scene: Scene, own_provider: Provider, make_answer: MakeAnswer
) -> None:
    trial = own_scene.open()
    own_provider.then(make_answer(500, b"{}"))
    with relayed(trial) as way:
        client = way.connect()
        for end in ("one", "one", "two"):
            text = [{"role": "user", "content": "A" * 2 * MEGA + end}]
            assert way.ask("anthropic-messages", client=client, messages=text).read()
        client.close()
    assert [row.attempt for row in trial.wait_rows(3)] == [1, 2, 1]


@pytest.mark.timeout(500)
def test_a_body_that_would_fill_the_memory_is_refused(own_scene: Scene, own_provider: Provider) -> None:
    """A session that ended the gateway would make its trial a void one."""
    trial = own_scene.open()
    values = ("[],", "{},", '"",', "0,", " ", '"' + "x" * 4000 + '",')
    for value in values:
        data = b'{"model":"claude-sonnet-4-5","messages":[' + value.encode() * (40 * MEGA // len(value)) + b"0]}"
        reply = trial.ask(data)
        assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error"), value
        assert memory_mb(own_scene.process.pid, "VmHWM") < 300, value
    assert [row.refusal for row in trial.rows] == ["body"] * len(values)
    assert own_provider.seen == []
    assert trial.ask().status == 200


def test_large_bodies_at_once_are_never_in_memory_either(own_scene: Scene, own_provider: Provider) -> None:
    size = 30 * MEGA
    text = [{"role": "user", "content": "A" * size}]
    ways: list[Way] = []
    with ExitStack() as stack:
        ways.extend(stack.enter_context(relayed(own_scene.open())) for _ in range(4))
        before_mb = memory_mb(own_scene.process.pid, "VmRSS")
        statuses: list[int] = []

        def ask(way: Way) -> None:
            client = way.connect()
            statuses.append(way.ask("anthropic-messages", client=client, messages=text).status)
            client.close()

        threads = [threading.Thread(target=ask, args=(way,)) for way in ways]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == [200] * 4
    assert sum(len(seen.body) > size for seen in own_provider.seen) == 4
    assert memory_mb(own_scene.process.pid, "VmHWM") - before_mb < 60


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_hundred_megabytes_down_are_passed_on_as_they_come(
    own_scene: Scene, own_provider: Provider, make_stream: MakeStream, is_stream: bool
) -> None:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "y" * 100_000}}
    piece = f"data: {json.dumps(delta)}\n\n".encode() if is_stream else b" " * 100_000

    def flood(handler: Handler) -> None:
        if not is_stream:
            handler.send_response(200)
            handler.send_header("content-type", "application/json")
            handler.send_header("transfer-encoding", "chunked")
            handler.end_headers()
        for _ in range(1000):
            handler.chunk(piece)
        make_stream.rest(handler, 3)

    own_provider.then(make_stream(3, then=flood) if is_stream else flood)
    trial = own_scene.open()
    with relayed(trial) as way:
        client = way.connect()
        reply = way.ask("anthropic-messages", client=client)
        n_bytes = 0
        while data := reply.read(1 << 20):
            n_bytes += len(data)
        client.close()
        assert n_bytes > 100 * MEGA
        assert memory_mb(way.pid, "VmHWM") < 30
    (row,) = trial.wait_rows(1)
    assert row.reply_bytes == n_bytes
    if is_stream:
        assert row.ending is Ending.ANSWERED
        assert row.usage is not None
        assert row.usage.output == 4
    else:
        assert row.usage is None
        assert "it was not read" in (row.usage_problem or "")
    assert memory_mb(own_scene.process.pid, "VmHWM") < 180


def test_a_client_that_does_not_read_holds_the_provider(
    own_scene: Scene, own_provider: Provider, make_stream: MakeStream
) -> None:
    """Nothing between them takes in more than a few pieces."""
    sent: list[int] = []

    def flood(handler: Handler) -> None:
        try:
            for _ in range(2000):
                handler.chunk(b": and on\n" * 10_000)
                sent.append(90_000)
        except OSError:
            handler.close_connection = True

    own_provider.then(make_stream(1, then=flood))
    trial = own_scene.open()
    with relayed(trial) as way:
        client = way.connect()
        assert way.ask("anthropic-messages", client=client).status == 200
        before, since_s = -1, time.monotonic()
        while len(sent) != before or time.monotonic() - since_s < 0.5:
            if len(sent) != before:
                before, since_s = len(sent), time.monotonic()
            time.sleep(0.02)
        assert sum(sent) < 40 * MEGA  # of 180: what loopback sockets hold is most of it
        client.close()
    trial.wait_rows(1)


def test_a_provider_that_proves_who_it_is_is_asked_over_tls(
    own_provider: Provider, clone: Path, tmp_path: Path, server_env: dict[str, str]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(clone / "tests" / "tls" / "server.pem")
    with socket.create_server(("127.0.0.1", 0)) as front:
        front.settimeout(30)
        url = f"https://localhost:{front.getsockname()[1]}"

        def serve() -> None:
            """End the TLS of one connection and pass it on to the provider."""
            plain, _ = front.accept()
            plain.settimeout(30)
            with context.wrap_socket(plain, server_side=True) as client:
                request = b""
                while b'"hi"' not in request:
                    request += client.recv(65536)
                with socket.create_connection(("127.0.0.1", own_provider.port)) as server:
                    server.sendall(request)
                    answer = server.recv(65536)
                    while not answer.endswith(b"}"):
                        answer += server.recv(65536)
                client.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        upstream = UpstreamSettings(
            name="up", url=url, key_variable="UP_KEY", ca_file=str(clone / "tests" / "tls" / "ca.pem")
        )
        with GatewayProcess() as process:
            settings = GatewaySettings(directory=str(tmp_path / "gw"), upstreams=(upstream,))
            control = process.start(settings, server_env)
            opening = TrialOpening(
                trial="tls",
                ledger=str(tmp_path / "tls.jsonl"),
                models=("claude-sonnet-4-5",),
                dialects=("anthropic-messages",),
                upstream="up",
            )
            with OpenTrial(control, opening) as trial:
                client = http.client.HTTPConnection("localhost", timeout=30)
                client.sock = socket.socket(socket.AF_UNIX)
                client.sock.connect(trial.opened.socket)
                path, body = DIALECTS["anthropic-messages"]
                data = json.dumps({"model": "claude-sonnet-4-5", **body})
                client.request(
                    "POST", path, data, {"x-api-key": trial.opened.token, "content-type": "application/json"}
                )
                reply = client.getresponse()
                assert (reply.status, json.loads(reply.read())["content"][0]["text"]) == (200, "hello")
                client.close()
                assert trial.close().totals.spend.usage is not None
        serving.join()
    (seen,) = own_provider.seen
    assert seen.headers["host"] == url.removeprefix("https://")
    assert seen.headers["x-api-key"] == server_env["UP_KEY"]
