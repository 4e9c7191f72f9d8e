"""A sweep of the agent lane from the command line, on a small task, against a provider that the test plays."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.host.files import remove_tree

MODEL: Final = "claude-sonnet-4-5"
# Of this process alone: tests look for it in every process of the machine, where tests of other processes run too.
KEY: Final = f"sk-ant-api03-THE-PROVIDERS-OWN-KEY-{os.getpid():010}"
MEND: Final = "sed -i 's/a - b/a + b/' calc.py"
CALC: Final = "def add(a, b):\n    return a - b\n"
ORACLE: Final = """import unittest


class Hidden(unittest.TestCase):
    def test_add(self):
        import calc

        self.assertEqual(calc.add(2, 3), 5)
"""
TASK: Final = {
    "id": "mend-add",
    "class": "bug-fix",
    "repo": "repo",
    "prompt": "Mend add.",
    "verify": "python3 -c 'import calc'",
    "oracle": {
        "runner": "unittest",
        "command": "discover -s $FAIRTRIAL_ORACLE_ROOT",
        "expect_tests": 1,
        "files": [{"source": "test_hidden.py", "target": "test_hidden.py"}],
    },
}

Json = Any
Answer = tuple[int, dict[str, str], bytes]


@dataclass(kw_only=True)
class StandIn:
    """A provider of the Messages API.

    Attributes:
        url: Its address.
        answer: What it answers to a method and a body; a test sets it.
        seen: Method, key and status of each request.
    """

    url: str
    answer: Callable[[str, Json], Answer]
    seen: list[tuple[str, str, int]] = field(default_factory=list)

    def n_seen(self, method: str) -> int:
        return sum(each[0] == method for each in self.seen)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stand_in: StandIn

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def _answer(self, body: Json) -> None:
        status, headers, data = self.stand_in.answer(self.command, body)
        self.stand_in.seen.append((self.command, self.headers.get("x-api-key", ""), status))
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left is no error."""


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    handler = type("Own", (Handler,), {})
    with Server(("127.0.0.1", 0), handler) as server:
        made = StandIn(url=f"http://127.0.0.1:{server.server_address[1]}", answer=lambda _method, body: mend(body))
        handler.stand_in = made
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def mend(body: Json, *, usage: dict[str, int] | None = None, model: str = MODEL) -> Answer:
    """Mend the task's bug by one call of Bash, and then say that it is done."""
    if body is None:
        return 200, {}, b'{"data":[]}'
    has_called = any(message["role"] == "assistant" for message in body["messages"])
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": MEND}}
    content = [{"type": "text", "text": "Done."}] if has_called else [call]
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "end_turn" if has_called else "tool_use",
        "stop_sequence": None,
        "usage": usage or {"input_tokens": 100, "output_tokens": 10},
    }
    return 200, {}, json.dumps(message).encode()


@pytest.fixture
def mended() -> Callable[..., Answer]:
    return mend


@pytest.fixture
def provider_key() -> str:
    return KEY


@dataclass(kw_only=True)
class Sweep:
    """One results directory and how it came about."""

    root: Path
    out: Path

    def command(
        self, *more: object, arms: str = "baseline", agent: str = "bash-agent", model: str = MODEL
    ) -> list[str]:
        words = ["bench", "--tasks", self.root / "tasks.yaml", "--arms", arms, "--out", self.out]
        return [sys.executable, "-m", "fairtrial", *map(str, [*words, "--agent", agent, "--model", model, *more])]

    def start(self, *more: object, **words: str) -> subprocess.Popen[str]:
        env = os.environ | {"ANTHROPIC_API_KEY": KEY}
        argv = self.command(*more, **words)
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

    def run(self, *more: object, **words: str) -> subprocess.CompletedProcess[str]:
        with self.start(*more, **words) as process:
            stdout, stderr = process.communicate(timeout=550)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def resume(self, *more: object) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "fairtrial", "resume", str(self.out), *map(str, more)]
        env = os.environ | {"ANTHROPIC_API_KEY": KEY}
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300, env=env)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return _lines(self.out / "results.jsonl")

    @property
    def events(self) -> list[dict[str, Any]]:
        return _lines(self.out / "events.jsonl")

    def write_script(self, agents: list[dict[str, Any]], **more: object) -> Path:
        path = self.root / "script.yaml"
        path.write_text(json.dumps({"schema": "script/1", "agents": agents, **more}))
        return path

    def write_arms(self, arms: dict[str, Any]) -> Path:
        path = self.root / "arms.yaml"
        path.write_text(json.dumps({"arms": arms}))
        return path


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def make_sweep(root: Path) -> Sweep:
    repository = root / "repo"
    repository.mkdir()
    (repository / "calc.py").write_text(CALC)
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-q", "-m", "base")):
        subprocess.run(["git", *words], cwd=repository, env=env, check=True)
    (root / "test_hidden.py").write_text(ORACLE)
    (root / "tasks.yaml").write_text(json.dumps({"tasks": [TASK]}))
    return Sweep(root=root, out=root / "r")


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """A repository with a bug, and the task to mend it."""
    return make_sweep(tmp_path)


@pytest.fixture(scope="module")
def shared_sweep() -> Iterator[Sweep]:
    """One for a whole file, which a fixture of the file runs."""
    directory = Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"]))
    yield make_sweep(directory)
    remove_tree(directory)


@pytest.fixture
def wait_for() -> Callable[..., None]:
    """Waits for a condition."""

    def wait(condition: Callable[[], object], *, timeout_s: float = 120.0) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, "the condition never came true"
            time.sleep(0.02)

    return wait
