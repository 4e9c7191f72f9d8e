"""A client that is killed on purpose, and tasks that run at once."""

from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.host.proc import read_stat
from fairtrial.loop.spawned import run_at_once, run_until_killed
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


def test_of_much_output_everything_is_counted_and_the_end_is_kept(tmp_path: Path) -> None:
    much = "head -c 999999 /dev/zero | tr '\\0' a; printf 'b\\303\\251'"
    said = run_until_killed(step(much, tmp_path), ENVIRONMENT, lambda: False).stdout
    assert (said.n_bytes, said.n_characters, said.tail_truncated) == (1_000_002, 1_000_001, True)
    assert said.tail == b"a" * (64 * 1024 - 3) + "bé".encode()


def test_a_program_that_is_not_there_ends_by_itself(tmp_path: Path) -> None:
    missing = Step(argv=("/nonexistent/program",), cwd=tmp_path)
    assert run_until_killed(missing, ENVIRONMENT, lambda: False).returncode == 127


def test_a_directory_that_is_not_there_is_the_hosts_fault(tmp_path: Path) -> None:
    with pytest.raises((HostError, OSError)):
        run_until_killed(Step(argv=("true",), cwd=tmp_path / "a" / "b"), ENVIRONMENT, lambda: False)


def steps(tmp_path: Path, *scripts: str) -> list[Step]:
    return [Step(argv=("/bin/sh", "-c", script), cwd=tmp_path) for script in scripts]


def test_tasks_run_at_once_and_each_in_its_order(tmp_path: Path) -> None:
    meet = "touch {0}; while [ ! -e {1} ]; do :; done; echo {0}"
    tasks = {"a": steps(tmp_path, meet.format("a", "b"), "echo more"), "b": steps(tmp_path, meet.format("b", "a"))}
    ended = [(name, index, result.stdout.tail) for name, index, result in run_at_once(tasks, ENVIRONMENT, limit_s=30)]
    assert sorted(ended) == [("a", 0, b"a\n"), ("a", 1, b"more\n"), ("b", 0, b"b\n")]


def test_a_task_ends_at_its_first_unexpected_status(tmp_path: Path) -> None:
    tasks = {"a": steps(tmp_path, "exit 3", "exit 0"), "b": steps(tmp_path, "exit 0")}
    ended = {(name, index): result.returncode for name, index, result in run_at_once(tasks, ENVIRONMENT, limit_s=30)}
    assert ended == {("a", 0): 3, ("b", 0): 0}


def test_a_command_that_hangs_is_ended_and_the_other_task_goes_on(tmp_path: Path) -> None:
    tasks = {"a": steps(tmp_path, "sleep 60", "exit 0"), "b": steps(tmp_path, "exit 0")}
    ended = {name: (index, result) for name, index, result in run_at_once(tasks, ENVIRONMENT, limit_s=3)}
    assert (ended["a"][1].state, ended["a"][1].timed_out) == (ProcessState.TIMEOUT, True)
    assert ended["a"][0] == 0
    assert ended["b"][1].returncode == 0


def test_what_still_runs_when_nobody_looks_any_more_is_killed(tmp_path: Path) -> None:
    tasks = {
        "a": steps(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60"),
        "b": steps(tmp_path, "while [ ! -s pid ]; do :; done"),
    }
    running = run_at_once(tasks, ENVIRONMENT, limit_s=30)
    assert next(running)[0] == "b"
    running.close()  # type: ignore[attr-defined]
    child = read_stat(int((tmp_path / "pid").read_text()))
    assert child is None or not child.is_alive
