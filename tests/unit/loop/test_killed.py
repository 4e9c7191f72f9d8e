"""A client that is killed on purpose."""

from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.host.proc import read_stat
from fairtrial.loop.killed import run_until_killed
from fairtrial.model.loop import Step
from fairtrial.model.process import ProcessState

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def step(script: str, tmp_path: Path) -> Step:
    workspace = tmp_path / "w"
    workspace.mkdir()
    return Step(argv=("/bin/sh", "-c", script), cwd=workspace)


def test_it_is_killed_with_its_children_when_the_moment_has_come(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    script = f"echo said; echo complained >&2; sleep 60 & echo $! > {begun}.part; mv {begun}.part {begun}; wait"
    result = run_until_killed(step(script, tmp_path), ENVIRONMENT, begun.exists)
    assert (result.state, result.returncode, result.forced_kill) == (ProcessState.FORCED_KILL, -9, True)
    assert (result.stdout.tail, result.stderr.tail) == (b"said\n", b"complained\n")
    child = read_stat(int(begun.read_text()))
    assert child is None or not child.is_alive  # an orphan may stay a zombie until its new parent looks
    assert result.cpu_user_s is None
    assert result.peak_memory_reason


def test_one_that_ends_before_its_moment_says_so(tmp_path: Path) -> None:
    result = run_until_killed(step("exit 3", tmp_path), ENVIRONMENT, lambda: False)
    assert (result.state, result.returncode, result.forced_kill) == (ProcessState.EXITED, 3, False)
    assert result.detail == "it ended before it could be killed"


def test_nothing_of_it_stays_in_the_workspace(tmp_path: Path) -> None:
    run_until_killed(step("exit 0", tmp_path), ENVIRONMENT, lambda: False)
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_a_program_that_is_not_there_ends_by_itself(tmp_path: Path) -> None:
    missing = Step(argv=("/nonexistent/program",), cwd=tmp_path)
    assert run_until_killed(missing, ENVIRONMENT, lambda: False).returncode == 127


def test_a_directory_that_is_not_there_is_the_hosts_fault(tmp_path: Path) -> None:
    with pytest.raises((HostError, OSError)):
        run_until_killed(Step(argv=("true",), cwd=tmp_path / "a" / "b"), ENVIRONMENT, lambda: False)
