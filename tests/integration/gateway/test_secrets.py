"""Keys: whose they are, where they are not, and what is left of them in what is written."""

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.errors import FairtrialError
from fairtrial.gateway.client import GatewayProcess
from fairtrial.gateway.settings import GatewaySettings, UpstreamSettings

Scene = Any
Provider = Any
MakeAnswer = Callable[..., object]
Eventually = Callable[..., None]

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7v\nq83vq83v-_=\n-----END RSA PRIVATE KEY-----"
# Put together here, so that no scanner of repositories takes them for keys that somebody lost.
PLANTED = {
    "anthropic": "sk-" + "ant-api03-AbCdEfGh0123456789-_xyz",
    "openai": "sk-" + "proj-AbCdEfGh0123456789AbCdEfGh",
    "google": "AI" + "zaSyA0123456789abcdefghijklmnopqrstu",
    "aws": "AK" + "IAIOSFODNN7EXAMPLE",
    "github": "gh" + "p_0123456789abcdefghijABCDEFGHIJ012345",
    "slack": "xox" + "b-123456789012-abcdefABCDEF",
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0NTYifQ.c2lnbmF0dXJlMTIz",
    "pem": PEM,
}


def _files_below(directory: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


def test_eight_formats_and_our_own_key_are_in_nothing_that_is_written(
    scene: Scene, provider: Provider, key: str, make_answer: MakeAnswer
) -> None:
    """B63, B64."""
    recorded = scene.tmp / "recorded.yaml"
    trial = scene.open(record=str(recorded))
    leaks = "\n".join([*PLANTED.values(), key])
    tool = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": f"echo {leaks}"}}
    content = [{"type": "text", "text": leaks}, tool]
    body = {"type": "message", "role": "assistant", "model": leaks, "content": content, "usage": {"input_tokens": 1}}
    error = json.dumps({"type": "error", "error": {"type": "authentication_error", "message": f"bad key {leaks}"}})
    provider.then(make_answer(200, json.dumps(body).encode()), make_answer(401, error.encode()))
    trial.ask(headers={"x-claude-code-session-id": PLANTED["openai"], "x-claude-code-agent-id": PLANTED["github"]})
    refused = trial.ask()
    assert key not in refused.body.decode()
    trial.ask(path=f"/v1/{PLANTED['anthropic']}")
    trial.open.close()
    written = _files_below(scene.tmp)
    assert b"[redacted:" in written
    for name, secret in {**PLANTED, "ours": key}.items():
        for line in secret.splitlines():
            assert line.encode() not in written, name
    assert recorded.exists()


def test_the_providers_key_is_in_no_command_line_and_no_environment(scene: Scene, key: str) -> None:
    """B61, B62."""
    trial = scene.open()
    relay = Path(__file__).parents[3] / "src" / "fairtrial" / "payload" / "relay.py"
    argv = ["python3", "-I", "-S", str(relay), "0", trial.open.opened.socket, "--", "cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={"PATH": os.defpath}) as session:
        seen = [
            (path.parent.name, path.name)
            for process in Path("/proc").iterdir()
            if process.name.isdigit()
            for path in (process / "cmdline", process / "environ")
            if key.encode() in _read(path)
        ]
        session.communicate()
    assert seen == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # gone, or of another user, who could not read it either
        return b""


def test_a_planted_key_would_have_been_found(eventually: Eventually) -> None:
    argv = [sys.executable, "-c", "import sys; sys.stdin.read()", PLANTED["openai"]]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env={"K": PLANTED["aws"]}) as holder:
        eventually(lambda: PLANTED["openai"].encode() in _read(Path(f"/proc/{holder.pid}/cmdline")))
        assert PLANTED["aws"].encode() in _read(Path(f"/proc/{holder.pid}/environ"))
        holder.communicate()


def test_a_key_may_come_from_a_file(tmp_path: Path, server_env: dict[str, str]) -> None:
    path = tmp_path / "key"
    path.write_text("sk-ant-in-a-file\n")
    upstream = UpstreamSettings(name="up", url="http://127.0.0.1:9", key_file=str(path))
    with GatewayProcess() as process:
        assert process.start(
            GatewaySettings(directory=str(tmp_path / "gw"), upstreams=(upstream,)), server_env
        ).exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"key_variable": "NOT_THERE"}, "variable NOT_THERE is not set"),
        ({"key_file": "/nonexistent"}, "/nonexistent"),
        ({"key_file": os.devnull}, "holds no key"),
        ({"url": "ftp://x"}, "is not https://"),
        ({"url": "https://user:pass@example.org"}, "is not https://"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    tmp_path: Path, server_env: dict[str, str], settings: dict[str, str], said: str
) -> None:
    upstream = UpstreamSettings(**{"name": "up", "url": "http://127.0.0.1:9", **settings})
    with GatewayProcess() as process:
        with pytest.raises(FairtrialError, match=said) as caught:
            process.start(GatewaySettings(directory=str(tmp_path / "gw"), upstreams=(upstream,)), server_env)
        assert caught.value.exit_code == 2
    assert not (tmp_path / "gw").exists()


def test_a_provider_must_prove_who_it_is(own_scene: Scene, own_provider: Provider, tmp_path: Path) -> None:
    """TLS: a server without a certificate that we trust gets no request, and so no key."""
    settings = GatewaySettings(
        directory=str(tmp_path / "tls"),
        upstreams=(UpstreamSettings(name="up", url=own_provider.url.replace("http:", "https:")),),
    )
    with GatewayProcess() as process:
        own_scene.control = process.start(settings, {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)})
        trial = own_scene.open()
        assert trial.ask().status == 502
        assert own_provider.seen == []
        own_scene.trials.remove(trial)
        trial.client.close()
        trial.open.close()
    assert ssl.HAS_TLSv1_3
