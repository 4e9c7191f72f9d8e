"""A gateway in a process of its own, and a real HTTP server that stands in for the provider."""

import http.client
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import fairtrial
from fairtrial.gateway.client import GatewayProcess, OpenTrial
from fairtrial.gateway.control import TrialOpening
from fairtrial.gateway.ledger import WireRow, read_ledger
from fairtrial.gateway.settings import GatewaySettings, UpstreamSettings

Json = Any

# Of this process alone: a test looks for it in every process of the machine, where tests of other processes run too.
KEY = f"sk-ant-api03-THE-GATEWAYS-OWN-KEY-{os.getpid():010}"
MODEL = "claude-sonnet-4-5"
USAGE = {"input_tokens": 10, "output_tokens": 4, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}
JSON = {"content-type": "application/json"}


@dataclass(kw_only=True)
class Seen:
    path: str
    headers: dict[str, str]
    body: bytes


Behaviour = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.provider.seen.append(Seen(path=self.path, headers=headers, body=body))
        behaviours = self.server.provider.behaviours
        (behaviours.popleft() if behaviours else answer())(self)

    def do_GET(self) -> None:
        """A probe."""
        self.server.provider.n_probes += 1
        probes = self.server.provider.probes
        (probes.popleft() if probes else answer(body=b'{"data":[]}'))(self)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        pass

    def send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def break_off(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    provider: "Provider"

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the base class names them
        self.provider.broken += 1


@dataclass(kw_only=True)
class Provider:
    """The stand-in: it answers well unless told what to do with the next requests, and with the next probes."""

    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    behaviours: deque[Behaviour] = field(default_factory=deque)
    n_probes: int = 0
    probes: deque[Behaviour] = field(default_factory=deque)
    broken: int = 0
    stop: Callable[[], None] = lambda: None  # from then on it cannot be reached

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def then(self, *behaviours: Behaviour) -> None:
        self.behaviours.extend(behaviours)


def message(usage: Mapping[str, object] | None = None, *, model: str = MODEL, text: str = "hello") -> bytes:
    value = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
    }
    return json.dumps(value if usage is None else {**value, "usage": usage}).encode()


def answer(
    status: int = 200, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Callable[[Handler], None]:
    def behave(handler: Handler) -> None:
        handler.send(status, {**JSON, **(headers or {})}, message(USAGE) if body is None else body)

    return behave


def event(name: str, value: Mapping[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **value})}\n\n".encode()


STREAM = (
    event("message_start", {"message": {**json.loads(message({**USAGE, "output_tokens": 1})), "content": []}}),
    event("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
    event("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "hello"}}),
    event("content_block_stop", {"index": 0}),
    event("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}),
    event("message_stop", {}),
)


def stream(n_events: int = len(STREAM), *, then: Callable[[Handler], object] | None = None) -> Behaviour:
    def behave(handler: Handler) -> None:
        handler.begin_stream()
        for each in STREAM[:n_events]:
            handler.chunk(each)
        if then is not None:
            then(handler)
        else:
            handler.chunk(b"")

    return behave


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=200)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(200)
        self.sock.connect(self._path)


@dataclass(kw_only=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> "Json":
        return json.loads(self.body)


def request_body(**changes: object) -> dict[str, object]:
    return {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], **changes}


@dataclass(kw_only=True)
class Trial:
    open: OpenTrial
    ledger: Path
    client: UnixConnection
    n_asked: int = 0

    @property
    def token(self) -> str:
        return self.open.opened.token

    def connect(self) -> UnixConnection:
        return UnixConnection(self.open.opened.socket)

    def ask(
        self,
        body: object = None,
        *,
        path: str = "/v1/messages",
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        client: http.client.HTTPConnection | None = None,
    ) -> Reply:
        own = self.client if client is None else client
        self.n_asked += 1
        data = body if isinstance(body, bytes) else json.dumps(request_body() if body is None else body).encode()
        own.request(method, path, data, {**JSON, "x-api-key": self.token, **(headers or {})})
        reply = own.getresponse()
        return Reply(status=reply.status, headers=dict(reply.headers.items()), body=reply.read())

    @property
    def rows(self) -> list[WireRow]:
        """Those of `ask`; a row is written when the client has its reply already."""
        return self.wait_rows(self.n_asked)

    def wait_rows(self, n: int) -> list[WireRow]:
        wait_until(lambda: sum(b'"request"' in line for line in self.ledger.read_bytes().splitlines()) >= n)
        return list(read_ledger(self.ledger))


def wait_until(condition: Callable[[], object], *, timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition never came true"
        time.sleep(0.01)


@contextmanager
def run_provider() -> Iterator[Provider]:
    with Server(("127.0.0.1", 0), Handler) as server:
        provider = Provider(port=server.server_address[1])
        server.provider = provider
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()

        def stop() -> None:
            server.shutdown()
            server.server_close()

        provider.stop = stop
        yield provider
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[GatewayProcess, Path, Provider]]:
    """One gateway and provider for a whole file: it starts in a second."""
    directory = Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"]))
    with run_provider() as provider, GatewayProcess() as process:
        yield process, start_gateway(process, directory, provider), provider
    shutil.rmtree(directory)


@pytest.fixture
def provider(shared: tuple[GatewayProcess, Path, Provider]) -> Provider:
    provider = shared[2]
    provider.seen.clear()
    provider.behaviours.clear()
    return provider


@dataclass(kw_only=True)
class Scene:
    """A gateway with an upstream called `up`, and trials at it."""

    tmp: Path
    process: GatewayProcess
    control: Path
    trials: list[Trial]

    def open(self, **changes: "Json") -> Trial:
        number = len(self.trials) + 1
        ledger = self.tmp / f"attempt{number}" / "wire.jsonl"
        ledger.parent.mkdir()
        script = changes.pop("script_text", None)
        if script is not None:
            path = self.tmp / f"{number}.yaml"
            path.write_text(script)
            changes["script"] = str(path)
        changes.setdefault("upstream", None if "script" in changes else "up")
        opening = TrialOpening(
            **{
                "trial": f"trial-{number}",
                "ledger": str(ledger),
                "models": (MODEL,),
                "dialects": ("anthropic-messages", "openai-chat", "openai-responses", "gemini"),
                **changes,
            }
        )
        open_trial = OpenTrial(self.control, opening)
        trial = Trial(open=open_trial, ledger=ledger, client=UnixConnection(open_trial.opened.socket))
        self.trials.append(trial)
        return trial


def gateway_env() -> dict[str, str]:
    return {"PATH": os.defpath, "PYTHONPATH": str(Path(fairtrial.__file__).parents[1]), "UP_KEY": KEY}


def start_gateway(process: GatewayProcess, tmp: Path, provider: Provider, **changes: "Json") -> Path:
    upstream = UpstreamSettings(name="up", url=provider.url, key_variable="UP_KEY")
    settings = GatewaySettings(directory=str(tmp / "gw"), upstreams=(upstream,), **changes)
    return process.start(settings, gateway_env())


@contextmanager
def run_scene(process: GatewayProcess, control: Path, tmp: Path) -> Iterator[Scene]:
    scene = Scene(tmp=tmp, process=process, control=control, trials=[])
    yield scene
    for trial in scene.trials:
        trial.client.close()
        with trial.open:
            pass


@pytest.fixture
def scene(
    shared: tuple[GatewayProcess, Path, Provider],
    provider: Provider,  # noqa: ARG001 - forgets what other tests did
    tmp_path: Path,
) -> Iterator[Scene]:
    with run_scene(shared[0], shared[1], tmp_path) as scene:
        yield scene


@pytest.fixture
def own_provider() -> Iterator[Provider]:
    """A provider that only this test's gateway asks, so that its trouble is nobody else's."""
    with run_provider() as provider:
        yield provider


@pytest.fixture
def own_settings() -> dict[str, "Json"]:
    """What a gateway of the test's own is told beside its directory and its provider; a test may say something else."""
    return {}


@pytest.fixture
def own_scene(own_provider: Provider, own_settings: dict[str, "Json"], tmp_path: Path) -> Iterator[Scene]:
    with GatewayProcess() as process:
        control = start_gateway(process, tmp_path, own_provider, **own_settings)
        with run_scene(process, control, tmp_path) as scene:
            yield scene


class _MakeStream:
    """`stream`, and the rest of one for who does something in between."""

    def __call__(self, n_events: int = len(STREAM), *, then: Callable[[Handler], object] | None = None) -> Behaviour:
        return stream(n_events, then=then)

    def rest(self, handler: Handler, start: int) -> None:
        for each in STREAM[start:]:
            handler.chunk(each)
        handler.chunk(b"")


@pytest.fixture
def make_stream() -> _MakeStream:
    return _MakeStream()


@pytest.fixture
def make_answer() -> Callable[..., Behaviour]:
    return answer


@pytest.fixture
def plain_message() -> bytes:
    return message(USAGE)


@pytest.fixture
def local_message() -> bytes:
    return message(USAGE, model="my-own-model")


@pytest.fixture
def rss_bytes() -> Callable[[int], int]:
    def read(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    return read


@pytest.fixture
def key() -> str:
    return KEY


@pytest.fixture
def eventually() -> Callable[..., None]:
    return wait_until


@pytest.fixture
def server_env() -> dict[str, str]:
    return gateway_env()
