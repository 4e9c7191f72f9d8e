"""The gateway's own life: it ends with its sweep, leaves nothing behind, and its death is seen by whoever needs it."""

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.errors import FairtrialError, UsageError
from fairtrial.gateway.client import GatewayGoneError, GatewayProcess, OpenTrial, ask_status, release_directory
from fairtrial.gateway.control import (
    DirectoryReleased,
    DirectoryReleasing,
    TrialOpened,
    TrialOpening,
    parse_message,
    render_message,
)
from fairtrial.gateway.ledger import Ending, read_ledger
from fairtrial.gateway.settings import GatewaySettings, render_settings

Scene = Any
Provider = Any
MakeStream = Any
Eventually = Callable[..., None]

SWEEP = """
import os, sys
from fairtrial.gateway.client import GatewayProcess
from fairtrial.gateway.settings import GatewaySettings
process = GatewayProcess()
process.start(GatewaySettings(directory=sys.argv[1]), dict(os.environ))
print(process.pid, flush=True)
sys.stdin.read()
"""


def _is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_it_ends_with_a_killed_sweep_and_leaves_no_socket(
    tmp_path: Path, server_env: dict[str, str], eventually: Eventually
) -> None:
    directory = tmp_path / "gw"
    argv = [sys.executable, "-c", SWEEP, str(directory)]
    with subprocess.Popen(argv, env=server_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sweep:
        assert sweep.stdout is not None
        pid = int(sweep.stdout.readline())
        assert (directory / "control").is_socket()
        sweep.kill()
    eventually(lambda: not _is_alive(pid))
    assert not directory.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_when_it_is_asked_to(
    tmp_path: Path, server_env: dict[str, str], number: signal.Signals
) -> None:
    directory = tmp_path / "gw"
    argv = [sys.executable, "-P", "-m", "fairtrial", "gateway"]
    with subprocess.Popen(argv, env=server_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(render_settings(GatewaySettings(directory=str(directory))))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["schema"] == "gateway-ready/1"
        process.send_signal(number)
        assert process.wait(30) == 0
    assert not directory.exists()


def test_its_death_is_seen_by_the_worker_and_is_a_void_cause(
    own_scene: Scene, own_provider: Provider, make_stream: MakeStream
) -> None:
    trial = own_scene.open()
    trial.ask()
    own_provider.then(make_stream(2, then=lambda handler: handler.rfile.read(1)))
    client = trial.connect()
    body = b'{"model":"claude-sonnet-4-5","max_tokens":9,"stream":true,"messages":[]}'
    client.request("POST", "/v1/messages", body, {"x-api-key": trial.token, "content-type": "application/json"})
    client.getresponse()
    assert not trial.open.gateway_gone
    os.kill(own_scene.process.pid, signal.SIGKILL)
    assert select.select([trial.open], [], [], 30)[0]
    assert trial.open.gateway_gone
    with pytest.raises(GatewayGoneError):
        trial.open.close()
    client.close()
    whole, lost = read_ledger(trial.ledger)
    assert whole.ending is Ending.ANSWERED
    assert (lost.ending, lost.usage) == (Ending.BROKEN, None)  # unknown: what is known is a lower bound
    own_scene.process.stop()
    assert not (own_scene.tmp / "gw").exists()
    with pytest.raises(GatewayGoneError, match="nobody answers"):
        own_scene.open()


def test_a_dead_workers_trial_is_closed(scene: Scene, eventually: Eventually) -> None:
    directory = scene.tmp / "attempt"
    directory.mkdir()
    opening = TrialOpening(trial="t", ledger=str(directory / "wire.jsonl"), models=(), dialects=(), upstream="up")
    with socket.socket(socket.AF_UNIX) as worker:
        worker.connect(str(scene.control))
        worker.sendall(render_message(opening))
        opened = parse_message(worker.recv(1000).rstrip())
        assert isinstance(opened, TrialOpened)
        assert Path(opened.socket).is_socket()
    eventually(lambda: not Path(opened.directory).exists())  # the connection ended without a word


def test_an_attempts_files_are_released_only_when_nothing_writes_there_and_then_for_good(scene: Scene) -> None:
    trial = scene.open()
    with socket.socket(socket.AF_UNIX) as sweep:
        sweep.connect(str(scene.control))
        sweep.sendall(render_message(DirectoryReleasing(directory=str(trial.ledger.parent))))
        for _ in range(3):
            ask_status(scene.control)  # it goes on serving others
        assert not select.select([sweep], [], [], 0)[0], "the trial is still open"
        trial.open.close()
        assert parse_message(sweep.recv(1000).rstrip()) == DirectoryReleased()
    with pytest.raises(UsageError, match="given up"):
        OpenTrial(scene.control, TrialOpening(trial="late", ledger=str(trial.ledger), models=(), dialects=()))
    release_directory(scene.control, scene.tmp / "never")  # where nothing was written there is nothing to wait for


def test_leaving_an_open_trial_ends_what_is_written_for_it(scene: Scene) -> None:
    trial = scene.open()
    with trial.open:
        pass  # as when the session's host breaks
    assert not Path(trial.open.opened.directory).exists()


def test_a_closed_trials_socket_is_gone_and_its_requests_are_broken_off(
    scene: Scene, provider: Provider, make_stream: MakeStream
) -> None:
    trial = scene.open()
    provider.then(make_stream(2, then=lambda handler: handler.rfile.read(1)))
    client = trial.connect()
    body = b'{"model":"claude-sonnet-4-5","max_tokens":9,"stream":true,"messages":[]}'
    client.request("POST", "/v1/messages", body, {"x-api-key": trial.token, "content-type": "application/json"})
    assert client.getresponse().read(1)
    closed = trial.open.close()
    client.close()
    assert not Path(trial.open.opened.socket).exists()
    (row,) = trial.wait_rows(1)
    assert row.ending is Ending.STOPPED
    assert closed.totals.broken_spend.usage.is_lower_bound


def test_sockets_are_private(scene: Scene) -> None:
    trial = scene.open()
    assert stat.S_IMODE(scene.control.stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(trial.open.opened.socket).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(trial.open.opened.directory).stat().st_mode) == 0o700
    assert len(os.fsencode(trial.open.opened.socket)) < 107


@pytest.mark.root
def test_a_trials_own_user_gets_at_its_socket_and_at_no_other(scene: Scene) -> None:
    scene.control.parents[1].chmod(0o711)  # the test's own; a sweep's scratch directory is passable too
    own, other = scene.open(owner_uid=65534), scene.open()
    code = (
        "import os,socket,sys; os.setgid(65534); os.setuid(65534); socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    )
    for trial, works in ((own, True), (other, False)):
        argv = [sys.executable, "-c", code, trial.open.opened.socket]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
        assert (done.returncode == 0) is works, done.stderr
    argv = [sys.executable, "-c", code, str(scene.control)]
    assert b"PermissionError" in subprocess.run(argv, capture_output=True, check=False, timeout=30).stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"upstream": "nobody"}, "upstream 'nobody'; this gateway has up"),
        ({"upstream": None}, "either an upstream or a script"),
        ({"dialects": ("morse",)}, "dialect 'morse'; choose from anthropic-messages"),
        ({"script": "/nonexistent.yaml", "upstream": None}, "/nonexistent.yaml"),
        ({"ledger": "/proc/nonexistent/x"}, "/proc/nonexistent/x"),
    ],
)
def test_a_wrong_opening_is_refused_by_name(scene: Scene, changes: dict[str, object], said: str) -> None:
    with pytest.raises(FairtrialError, match=said):
        scene.open(**changes)


def test_a_wire_log_is_never_written_over(scene: Scene) -> None:
    trial = scene.open()
    with pytest.raises(UsageError, match="File exists"):
        scene.open(ledger=str(trial.ledger))


def test_one_connection_holds_one_trial(scene: Scene) -> None:
    trial = scene.open()
    opening = TrialOpening(trial="x", ledger=str(scene.tmp / "x"), models=(), dialects=(), upstream="up")
    assert b"this connection has a trial" in trial.open._client.ask(render_message(opening), timeout_s=30)


def test_a_directory_that_is_there_is_nobody_elses_to_use(scene: Scene, server_env: dict[str, str]) -> None:
    directory = scene.tmp / "there"
    directory.mkdir()
    (directory / "precious").touch()
    with GatewayProcess() as process, pytest.raises(FairtrialError, match="name one that is not there"):
        process.start(GatewaySettings(directory=str(directory)), server_env)
    assert (directory / "precious").exists()


def test_the_open_trial_is_a_context(scene: Scene) -> None:
    opening = TrialOpening(trial="x", ledger=str(scene.tmp / "y"), models=(), dialects=(), upstream="up")
    with OpenTrial(scene.control, opening) as trial:
        assert trial.close().totals.requests == 0
