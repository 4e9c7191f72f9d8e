"""The server as a process: its lines, its end, and what becomes of whoever depends on it."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fairtrial.errors import HostError
from fairtrial.wire.client import WireServer
from fairtrial.wire.settings import FRONT, ForwardSettings, FrontSettings, WireSettings

Scene = Any
MakeScene = Callable[..., Scene]
Eventually = Callable[..., None]

SERVER = [sys.executable, "-P", "-m", "fairtrial.wire"]
NOBODY = WireSettings(front=None, forward=ForwardSettings(upstream="127.0.0.1:9"))


def _talk(env: Mapping[str, str], *lines: str) -> tuple[int, list[dict[str, object]], str]:
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(SERVER, env=env, input=text, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_it_says_that_it_is_ready_obeys_and_ends_with_its_input(server_env: dict[str, str]) -> None:
    fault = {"match": "POST", "nth": 1, "kind": "drop_reply"}
    code, answers, stderr = _talk(
        server_env,
        '{"front":null,"forward":{"upstream":"127.0.0.1:9"}}',
        json.dumps({"do": "faults", "faults": [fault]}),
        '{"do":"ledger"}',
    )
    ready, planned, ledger = answers
    assert (ready["schema"], ready["front_port"]) == ("wire-ready/1", None)
    assert planned == {"schema": "wire-faults/1", "n_faults": 1}
    assert (ledger["schema"], ledger["front"], ledger["internal_errors"]) == ("wire-ledger/1", None, [])
    assert ledger["forward"]["connections"] == 0
    assert ledger["forward"]["faults"][0]["fault"]["kind"] == "drop_reply"
    assert ledger["forward"]["faults_as_planned"] is False
    assert (code, stderr) == (0, "")


def test_a_wrong_command_is_refused_and_the_server_lives_on(server_env: dict[str, str], tmp_path: Path) -> None:
    front = json.dumps({"front": {"root": str(tmp_path), "git": "/usr/bin/git"}})
    code, answers, stderr = _talk(
        server_env, front, '{"do":"dance"}', "nonsense", '{"do":"faults","faults":[]}', '{"do":"ledger"}'
    )
    assert [("error" in answer) for answer in answers] == [False, True, True, True, False]
    assert answers[3]["error"] == "faults: this server has no forwarder"
    assert (code, stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("{", 2, "configuration: not JSON"),
        ("{}", 2, "nothing to serve"),
        ('{"front":{"root":"/nonexistent","git":"/usr/bin/git"}}', 2, "/nonexistent is not a directory"),
        ('{"front":{"root":"/tmp","git":"/nonexistent"}}', 3, "/nonexistent is not a program"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_an_exit_code(
    server_env: dict[str, str], line: str, code: int, said: str
) -> None:
    ended, answers, stderr = _talk(server_env, line)
    (answer,) = answers
    assert said in str(answer["error"])
    assert (ended, stderr) == (code, "")


def test_no_configuration_at_all_is_said(server_env: dict[str, str]) -> None:
    code, answers, _ = _talk(server_env)
    assert (code, answers) == (2, [{"error": "no configuration line on standard input"}])


def _hold_a_push(scene: Scene, eventually: Eventually) -> tuple[subprocess.Popen[bytes], int]:
    """Start a push that a hook holds; return the client and the process group of the CGI child."""
    hook = scene.bare / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\ntouch {scene.tmp}/reached\nexec sleep 600\n")
    hook.chmod(0o755)
    scene.commit("notes", b"x\n")
    client = subprocess.Popen(["git", "push", "-q", "origin", "main"], cwd=scene.work, stderr=subprocess.DEVNULL)
    eventually((scene.tmp / "reached").exists)
    eventually(lambda: len(scene.children()) == 1)  # the one before it may still be there to be reaped
    (child,) = scene.children()
    return client, child


def _is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or ") Z " in stat.read_text()


def _group_of(pgid: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == pgid and fields[0] != "Z":
                members.append(int(entry.name))
    return members


def test_the_end_of_input_ends_children_that_are_at_work(make_scene: MakeScene, eventually: Eventually) -> None:
    scene = make_scene()
    before = scene.tip("main")
    client, child = _hold_a_push(scene, eventually)
    assert len(_group_of(child)) >= 2
    scene.server.stop()
    assert _group_of(child) == []
    assert client.wait(90) != 0
    assert scene.tip("main") == before


def test_the_end_of_input_ends_a_drain_that_waits(make_scene: MakeScene, eventually: Eventually) -> None:
    scene = make_scene()
    client, child = _hold_a_push(scene, eventually)
    assert not scene.server.drain(0.1)
    os.write(scene.server._running.stdin_fd, b'{"do":"drain","timeout_s":600}\n')
    scene.server.stop()
    assert _group_of(child) == []
    client.wait(90)


def test_children_do_not_outlive_a_server_that_was_killed(make_scene: MakeScene, eventually: Eventually) -> None:
    scene = make_scene(forwarded=False)
    with socket.create_connection(("127.0.0.1", scene.server.port), timeout=20) as client:
        client.sendall(
            b"POST /r.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
            b"Content-Type: application/x-git-receive-pack-request\r\n\r\n0094"
        )
        eventually(lambda: len(scene.children()) == 1)
        (child,) = scene.children()
        os.kill(scene.server.pid, 9)
        eventually(lambda: _group_of(child) == [])
    with pytest.raises(HostError, match=r"wire server \(pid \d+\): gone \(exit status -9\) when asked for ledger"):
        scene.server.ledger()
    scene.server.stop()


def test_a_server_that_hangs_becomes_an_error_and_never_a_hang(server_env: dict[str, str]) -> None:
    server = WireServer()
    server.start(NOBODY, server_env)
    server._answer_s = 1.0  # from now on: on a busy machine it takes longer to start
    pid = server.pid
    assert pid is not None
    os.kill(pid, 19)  # SIGSTOP
    with pytest.raises(HostError, match="no answer to ledger within 1 s; killed"):
        server.ledger()
    assert _is_gone(pid)
    server.stop()


def test_settings_that_the_server_refuses_are_an_error_here_too(server_env: dict[str, str], tmp_path: Path) -> None:
    missing = FrontSettings(root=str(tmp_path / "none"), git="/usr/bin/git")
    settings = WireSettings(front=missing, forward=ForwardSettings(upstream=FRONT))
    with WireServer() as server, pytest.raises(HostError, match=r"front\.root: .* is not a directory"):
        server.start(settings, server_env)


def test_a_server_that_dies_at_once_is_quoted(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nhead -c 1000000 /dev/zero | tr '\\0' x >&2\necho 'no module' >&2\nexit 1\n")
    python.chmod(0o755)
    said = pytest.raises(HostError, match=r"gone \(exit status 1\) .* it said: x+no module")
    with WireServer(python=str(python)) as server, said:
        server.start(NOBODY, {"PATH": "/usr/bin:/bin"})


def test_nothing_stays_open_in_the_caller(server_env: dict[str, str]) -> None:
    def n_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = n_open()
    with WireServer() as server:
        server.start(NOBODY, server_env)
        server.ledger()
        server.stop()
        server.stop()
        with pytest.raises(HostError, match="while it does not run"):
            server.ledger()
    assert n_open() == before
