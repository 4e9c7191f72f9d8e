"""The stand-in for ssh: it runs the command, counts, loses the connection at the mark, and says so."""

import fcntl
import subprocess
import sys
import termios
from dataclasses import astuple
from pathlib import Path

import pytest

from fairtrial.loop.ssh import SshWire
from fairtrial.wire.faults import Fault, FaultKind
from fairtrial.wire.ledger import Delivery

MARK = "publish"
SERVER = "cat > received; echo done"


def call(wire: SshWire, cwd: Path, data: bytes) -> "subprocess.CompletedProcess[bytes]":
    argv = [str(wire.path / "ssh"), "-o", "SendEnv=GIT_PROTOCOL", "-T", "localhost", SERVER]
    return subprocess.run(argv, input=data, cwd=cwd, capture_output=True, timeout=60, check=False)


@pytest.fixture
def wire(tmp_path: Path) -> SshWire:
    return SshWire(tmp_path / "ssh", MARK)


def test_a_command_is_run_and_what_passes_is_counted(wire: SshWire, tmp_path: Path) -> None:
    done = call(wire, tmp_path, b"ask")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"done\n", b"")
    assert (tmp_path / "received").read_bytes() == b"ask"
    forward = wire.ledger().forward
    assert forward is not None
    assert (astuple(forward.bytes), forward.requests) == ((3, 3, 5, 5), ())


def test_a_client_that_has_left_ends_its_server_and_is_recorded(wire: SshWire, tmp_path: Path) -> None:
    argv = [str(wire.path / "ssh"), "localhost", SERVER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdout.close()
        client.stdin.write(b"publish")
        client.stdin.close()
        assert client.wait(60) == 255
    forward = wire.ledger().forward
    assert forward is not None
    assert (astuple(forward.bytes), len(forward.requests)) == ((7, 7, 5, 0), 1)


def test_a_server_that_has_left_is_told_by_its_own_end_and_recorded(wire: SshWire, tmp_path: Path) -> None:
    argv = [str(wire.path / "ssh"), "localhost", "exec 0<&-; echo gone; until [ -e go ]; do :; done; exit 3"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == b"gone\n"
        client.stdin.write(b"publish")
        client.stdin.flush()
        while int.from_bytes(fcntl.ioctl(client.stdin, termios.FIONREAD, bytes(4)), sys.byteorder):
            pass  # what the stand-in has read it has passed on before it looks for the server's end
        (tmp_path / "go").touch()
        assert client.wait(60) == 3
    forward = wire.ledger().forward
    assert forward is not None
    assert (astuple(forward.bytes), len(forward.requests)) == ((7, 0, 5, 5), 1)


@pytest.mark.parametrize(
    ("fault", "received", "delivery", "counted"),
    [
        (Fault(match=MARK, nth=1, kind=FaultKind.DROP_REPLY), b"publish:0123", Delivery.COMPLETE, (12, 12, 5, 0)),
        (
            Fault(match=MARK, nth=1, kind=FaultKind.DROP_MID_REQUEST, parameter=3),
            b"publish:01",
            Delivery.PARTIAL,
            (12, 10, 0, 0),
        ),
    ],
)
def test_the_connection_is_lost_at_the_mark(
    wire: SshWire,
    tmp_path: Path,
    fault: Fault,
    received: bytes,
    delivery: Delivery,
    counted: tuple[int, int, int, int],
) -> None:
    wire.set_faults([fault])
    done = call(wire, tmp_path, b"publish:0123")
    assert (done.returncode, done.stdout) == (255, b"")
    assert wire.drain(10)
    assert (tmp_path / "received").read_bytes() == received
    forward = wire.ledger().forward
    assert forward is not None
    assert forward.faults_as_planned
    (record,) = forward.requests
    assert (record.delivery, record.fault, record.fault_fired) == (delivery, fault.kind, True)
    assert astuple(forward.bytes) == counted


def test_what_the_stand_in_cannot_know_is_null(wire: SshWire, tmp_path: Path) -> None:
    call(wire, tmp_path, b"publish:0123")
    forward = wire.ledger().forward
    assert forward is not None
    (record,) = forward.requests
    unknown = record.started_ms, record.elapsed_ms, record.request_complete, record.reply_complete, record.client_gone
    assert unknown == (None,) * 5


def test_a_plan_counts_from_its_own_beginning(wire: SshWire, tmp_path: Path) -> None:
    fault = Fault(match=MARK, nth=1, kind=FaultKind.DROP_REPLY)
    wire.set_faults([fault])
    assert [call(wire, tmp_path, b"publish").returncode for _ in range(2)] == [255, 0]
    wire.set_faults([fault])
    forward = wire.ledger().forward
    assert forward is not None
    assert not forward.faults_as_planned
    assert call(wire, tmp_path, b"publish").returncode == 255


def test_the_servers_own_status_is_the_calls(wire: SshWire, tmp_path: Path) -> None:
    argv = [str(wire.path / "ssh"), "localhost", "exit", "7"]
    assert subprocess.run(argv, cwd=tmp_path, capture_output=True, timeout=60, check=False).returncode == 7
