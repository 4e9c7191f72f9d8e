"""The gateway of a sweep: its death voids what runs, it ends with its sweep, and no socket stays."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(300), pytest.mark.xdist_group("gateway-life")]

Sweep = Any
WaitFor = Callable[..., None]
USAGE = {"uncached_input": 100, "output": 10}
BUSY = [
    {"calls": [{"tool": "Bash", "input": {"command": "sed -i 's/a - b/a + b/' calc.py"}}], "usage": USAGE},
    {"calls": [{"tool": "Bash", "input": {"command": "sleep 4"}}], "usage": USAGE},
    {"text": "Done.", "usage": USAGE},
]


def gateway_below(pid: int) -> int | None:
    """The gateway that a sweep started, by its command line."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in read(task / "children").split():
            if b"gateway" in read(Path(f"/proc/{int(child)}/cmdline")).split(b"\0"):
                return int(child)
    return None


def read(path: Path) -> bytes:
    """What a file holds; nothing where its process or thread has ended meanwhile."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def sockets_below(directory: Path) -> list[Path]:
    """Of what comes and goes while it is looked at; `find` says so and goes on."""
    argv = ["find", str(directory), "-type", "s"]
    found = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return [Path(line) for line in found.stdout.splitlines()]


@pytest.fixture
def scratch(public_path: Path) -> Path:
    return public_path


def start_busy(sweep: Sweep, scratch: Path, *more: object) -> Any:  # noqa: ANN401 - a Popen
    script = sweep.write_script([{"name": "main", "turns": BUSY}])
    return sweep.start("--script", script, "--scratch", scratch, *more)


def wait_for_requests(sweep: Sweep, wait_for: WaitFor, n_trials: int) -> None:
    """Until so many trials are in their second command at once."""

    def is_busy(log: Path) -> bool:
        return read(log).count(b'"kind":"request"') >= 2 and not (log.parent / "outcome.json").exists()

    wait_for(lambda: sum(map(is_busy, sweep.out.glob("trials/*/1/wire-*"))) >= n_trials)


def test_the_death_of_the_gateway_voids_what_runs_and_the_sweep_can_be_resumed(
    sweep: Sweep, scratch: Path, wait_for: WaitFor
) -> None:
    with start_busy(sweep, scratch, "--runs", 3, "--workers", 2) as process:
        wait_for_requests(sweep, wait_for, 2)
        gateway = gateway_below(process.pid)
        assert gateway is not None
        assert sockets_below(scratch) != []
        os.kill(gateway, signal.SIGKILL)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 3, stderr
    assert "the gateway died" in stderr
    # On a busy machine the second worker may have begun when the first one had a trial behind it.
    void = [row for row in sweep.rows if row["error_kind"] is not None]
    assert {row["error_kind"] for row in void} <= {"session-error", "cancelled"}
    assert [row["error_kind"] for row in void].count("session-error") >= 1
    assert not any(row["resolved"] for row in void)
    assert sockets_below(scratch) == []
    done = sweep.resume("--scratch", scratch)
    assert done.returncode == 0, done.stderr
    assert len(sweep.rows) == len(void) + 3
    assert len({row["key"] for row in sweep.rows if row["error_kind"] is None}) == 3


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_the_gateway_ends_with_its_sweep_and_leaves_no_socket(
    sweep: Sweep, scratch: Path, wait_for: WaitFor, ending: signal.Signals
) -> None:
    with start_busy(sweep, scratch, "--runs", 1) as process:
        wait_for_requests(sweep, wait_for, 1)
        gateway = gateway_below(process.pid)
        assert gateway is not None
        assert sockets_below(scratch) != []
        os.kill(process.pid, ending)
        process.communicate(timeout=120)
    wait_for(lambda: not is_alive(gateway), timeout_s=30)
    wait_for(lambda: sockets_below(scratch) == [], timeout_s=30)
    done = sweep.resume("--scratch", scratch)
    assert done.returncode == 0, done.stderr
    assert [row["error_kind"] for row in sweep.rows] == [
        "interrupted" if ending is signal.SIGKILL else "cancelled",
        None,
    ]
    if ending is signal.SIGKILL:
        killed = sweep.rows[0]
        assert (killed["usage_source"], killed["usage_is_lower_bound"]) == ("wire", True)
        assert killed["input_tokens"] >= 2 * USAGE["uncached_input"], "two requests were answered before it was killed"
        assert killed["output_tokens"] >= 2 * USAGE["output"]
        assert killed["wire"]["requests"] >= 2
        assert (killed["transcript_missing"], killed["transcript_artifacts"]) == (True, [])
