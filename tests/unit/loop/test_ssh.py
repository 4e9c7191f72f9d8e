"""The stand-in for ssh: it runs the command, counts, loses the connection at the mark, and says so."""

import subprocess
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
    assert (forward.bytes.client_to_proxy, forward.bytes.proxy_to_client, forward.requests) == (3, 5, ())


@pytest.mark.parametrize(
    ("fault", "received", "delivery"),
    [
        (Fault(match=MARK, nth=1, kind=FaultKind.DROP_REPLY), b"publish:0123", Delivery.COMPLETE),
        (Fault(match=MARK, nth=1, kind=FaultKind.DROP_MID_REQUEST, parameter=3), b"publish:01", Delivery.PARTIAL),
    ],
)
def test_the_connection_is_lost_at_the_mark(
    wire: SshWire, tmp_path: Path, fault: Fault, received: bytes, delivery: Delivery
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
