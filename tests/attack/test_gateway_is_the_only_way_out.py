"""From inside a sandbox without network: the model answers, and nothing else in the world does."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairtrial
from fairtrial.gateway.client import GatewayProcess, OpenTrial
from fairtrial.gateway.control import TrialOpening
from fairtrial.gateway.settings import GatewaySettings

pytestmark = pytest.mark.needs("bwrap")

RELAY = Path(fairtrial.__file__).parent / "payload" / "relay.py"
SCRIPT = {
    "schema": "script/1",
    "agents": [{"name": "all", "beyond": "repeat", "turns": [{"text": "hello", "usage": {"output": 4}}]}],
}

INSIDE = r"""
import json, os, socket, urllib.error, urllib.request

def reach(address):
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as probe:
        probe.settimeout(3)
        try:
            probe.connect(address)
        except OSError as problem:
            return type(problem).__name__
    return "reached"

def ask(path, body, token):
    url = "http://127.0.0.1:8080" + path
    headers = {"x-api-key": token, "content-type": "application/json"}
    try:
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status
    except urllib.error.HTTPError as problem:
        return problem.code

def resolve():
    try:
        return socket.getaddrinfo("example.org", 443)
    except OSError as problem:
        return type(problem).__name__

message = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
fetch = {**message, "tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}
image = {"type": "image", "source": {"type": "url", "url": "https://example.org/fix.png"}}
print(json.dumps({
    "dns": resolve(),
    "address": reach(("1.1.1.1", 443)),
    "metadata": reach(("169.254.169.254", 80)),
    "host": reach(("127.0.0.1", int(os.environ["HOST_PORT"]))),
    "abstract": reach("\0" + os.environ["ABSTRACT"]),
    "model": ask("/v1/messages", message, os.environ["TOKEN"]),
    "other token": ask("/v1/messages", message, "fairtrial-another"),
    "files": ask("/v1/files", {}, os.environ["TOKEN"]),
    "web fetch": ask("/v1/messages", fetch, os.environ["TOKEN"]),
    "url": ask("/v1/messages", {**message, "messages": [{"role": "user", "content": [image]}]}, os.environ["TOKEN"]),
    "other model": ask("/v1/messages", {**message, "model": "n"}, os.environ["TOKEN"]),
}))
"""


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[OpenTrial]:
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps(SCRIPT))
    opening = TrialOpening(
        trial="t",
        ledger=str(tmp_path / "wire.jsonl"),
        models=("m",),
        dialects=("anthropic-messages",),
        script=str(script),
    )
    env = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)}
    with GatewayProcess() as process:
        control = process.start(GatewaySettings(directory=str(tmp_path / "gw")), env)
        with OpenTrial(control, opening) as trial:
            yield trial


def test_the_model_answers_and_nothing_else_does(trial: OpenTrial) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as host, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0fairtrial-{os.getpid()}")
        abstract.listen()
        env = {
            "PATH": "/usr/bin:/bin",
            "TOKEN": trial.opened.token,
            "HOST_PORT": str(host.getsockname()[1]),
            "ABSTRACT": f"fairtrial-{os.getpid()}",
        }
        argv = [
            "bwrap",
            "--unshare-all",
            "--die-with-parent",
            "--ro-bind",
            "/usr",
            "/usr",
            "--symlink",
            "usr/bin",
            "/bin",
        ]
        argv += ["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev"]
        argv += ["--ro-bind", trial.opened.directory, "/run/model", "--ro-bind", str(RELAY), "/relay.py"]
        argv += ["--", "/usr/bin/python3", "-I", "-S", "/relay.py", "8080", "/run/model/m"]
        argv += ["--", "/usr/bin/python3", "-I", "-S", "-c", INSIDE]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "dns": "gaierror",
        "address": "OSError",
        "metadata": "OSError",
        "host": "ConnectionRefusedError",
        "abstract": "ConnectionRefusedError",
        "model": 200,
        "other token": 401,
        "files": 404,
        "web fetch": 400,
        "url": 400,
        "other model": 404,
    }
    closed = trial.close()
    assert closed.totals.requests == 1
    assert closed.totals.refused == {"token": 1, "path": 1, "egress": 2, "model": 1}
    assert [each.partition(" ")[0] for each in closed.egress_refused] == ["web-fetch", "remote-url"]
