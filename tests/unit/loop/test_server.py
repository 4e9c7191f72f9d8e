"""A tool's own server: ready when it says so, on another port when one is taken, gone at the end."""

import os
import signal
import socket
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.loop import server
from fairtrial.loop.server import candidate_ports, own_server
from fairtrial.model.loop import Serve

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
LISTENS = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    listener.accept()[0].close()
"""


def serve(script: str, cwd: Path) -> Serve:
    return Serve(argv=("python3", "-c", script, "{port}"), cwd=cwd, ready="listening")


def can_connect(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_answers_inside_the_context_and_is_gone_after_it(tmp_path: Path) -> None:
    with own_server(serve(LISTENS, tmp_path), ENVIRONMENT, tmp_path / "log") as up:
        assert can_connect(up.port)
    assert not can_connect(up.port)


def test_a_server_is_gone_when_its_context_is_left_by_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ZeroDivisionError), own_server(serve(LISTENS, tmp_path), ENVIRONMENT, log) as up:
        assert up.port < 1 / 0
    assert not can_connect(next(candidate_ports(str(log))))


def test_a_server_whose_port_is_taken_is_tried_on_another(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = next(candidate_ports(str(log)))
    with (
        socket.create_server(("127.0.0.1", first)),
        own_server(serve(LISTENS, tmp_path), ENVIRONMENT, log) as up,
    ):
        assert up.port != first
        assert can_connect(up.port)


def test_a_server_that_was_killed_is_started_again_on_its_port_and_one_that_lives_is_left_alone(tmp_path: Path) -> None:
    script = "import os; open('pid', 'w').write(str(os.getpid()))\n" + LISTENS
    with own_server(serve(script, tmp_path), ENVIRONMENT, tmp_path / "log") as up:
        first = int((tmp_path / "pid").read_text())
        assert up.revive() is False
        os.kill(first, signal.SIGKILL)
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        assert up.revive() is True
        second = int((tmp_path / "pid").read_text())
        assert second != first
        assert can_connect(up.port)
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)
    assert not can_connect(up.port)


def test_a_server_that_does_not_come_up_again_is_the_host_s_fault(tmp_path: Path) -> None:
    once = "import os, sys; os.path.exists('pid') and sys.exit('no more')\nopen('pid', 'w').write(str(os.getpid()))\n"
    with own_server(serve(once + LISTENS, tmp_path), ENVIRONMENT, tmp_path / "log") as up:
        first = int((tmp_path / "pid").read_text())
        os.kill(first, signal.SIGKILL)
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        with pytest.raises(HostError, match="does not start again; it said: no more"):
            up.revive()


def test_a_server_that_never_comes_up_is_the_host_s_fault_with_its_last_words(tmp_path: Path) -> None:
    dies = serve("import sys; sys.exit('no licence')", tmp_path)
    with (
        pytest.raises(HostError, match=r"never came up on any of 20 ports; it said: no licence"),
        own_server(dies, ENVIRONMENT, tmp_path / "log"),
    ):
        pytest.fail("it is up")


def test_a_server_that_says_nothing_is_bounded_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "START_S", 0.3)
    script = "import os, signal; open('pid', 'w').write(str(os.getpid())); signal.pause()"
    with (
        pytest.raises(HostError, match=r"not ready within 0\.3 s; it said nothing"),
        own_server(serve(script, tmp_path), ENVIRONMENT, tmp_path / "log"),
    ):
        pytest.fail("it is ready")
    written = tmp_path / "pid"
    if written.exists():  # on a busy machine it may not have come so far
        with pytest.raises(ProcessLookupError):
            os.kill(int(written.read_text()), 0)


def test_candidate_ports_lie_below_the_ephemeral_ones_and_differ_by_name() -> None:
    assert all(20_000 <= port < 32_000 for port in candidate_ports("a"))
    assert list(candidate_ports("a")) == list(candidate_ports("a"))
    assert list(candidate_ports("a")) != list(candidate_ports("b"))
