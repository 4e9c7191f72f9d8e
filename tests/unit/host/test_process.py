import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.host import process
from fairtrial.host.process import run
from fairtrial.model.process import ProcessResult, ProcessState

Env = dict[str, str]
RunUntilReady = Callable[..., ProcessResult]


def python(script: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", script]


def test_a_command_that_succeeds_is_ok(env: Env) -> None:
    result = run(["sh", "-c", "echo out; echo err >&2"], env=env, timeout_s=60)
    assert (result.state, result.returncode, result.ok) == (ProcessState.EXITED, 0, True)
    assert (result.stdout.tail, result.stderr.tail) == (b"out\n", b"err\n")
    assert (result.timed_out, result.forced_kill, result.pipe_held, result.detail) == (False, False, False, "")


def test_an_exit_code_comes_back_and_is_not_ok(env: Env) -> None:
    result = run(["sh", "-c", "exit 7"], env=env, timeout_s=60)
    assert (result.state, result.returncode, result.ok) == (ProcessState.EXITED, 7, False)


def test_death_by_a_signal_is_a_negative_code(env: Env) -> None:
    result = run(["sh", "-c", "kill -SEGV $$"], env=env, timeout_s=60)
    assert (result.state, result.returncode) == (ProcessState.EXITED, -signal.SIGSEGV)


def test_the_environment_is_exactly_what_was_given() -> None:
    result = run(["/usr/bin/env"], env={"A": "1", "B": "x=\u00e9"}, timeout_s=60)
    assert result.stdout.tail == "A=1\nB=x=\u00e9\n".encode()


def test_the_directory_is_the_one_asked_for_and_ours_stays(env: Env, tmp_path: Path) -> None:
    before = Path.cwd()
    result = run(["pwd", "-P"], env=env, cwd=tmp_path, timeout_s=60)
    assert result.stdout.tail == os.fsencode(f"{tmp_path.resolve()}\n")
    assert Path.cwd() == before


def test_cpu_seconds_come_from_the_kernel(env: Env) -> None:
    result = run(python("n = 0\nwhile n < 3_000_000: n += 1"), env=env, timeout_s=60)
    assert result.cpu_user_s is not None
    assert result.cpu_user_s > 0.01
    assert result.elapsed_ms is not None
    assert result.cpu_system_s is not None
    assert result.elapsed_ms / 1000 > 0.9 * (result.cpu_user_s + result.cpu_system_s) - 0.02


def test_the_clock_covers_the_life_of_the_child(env: Env) -> None:
    result = run(["sleep", "0.05"], env=env, timeout_s=60)
    assert result.elapsed_ms is not None
    assert result.elapsed_ms >= 50


def test_without_input_the_child_reads_the_end_at_once(env: Env) -> None:
    result = run(["sh", "-c", "cat; readlink /proc/self/fd/0"], env=env, timeout_s=60)
    assert result.stdout.tail == b"/dev/null\n"


@pytest.mark.parametrize("n_bytes", [1, 65_536, 65_537, 3_000_000])
def test_input_of_any_size_arrives_whole_while_output_is_drained(env: Env, n_bytes: int) -> None:
    data = bytes(i % 251 for i in range(n_bytes))
    result = run(["cat"], env=env, stdin=data, timeout_s=60, capture_bytes=n_bytes)
    assert result.ok
    assert result.stdout.head == data


def test_input_larger_than_the_pipe_to_a_child_that_never_reads_is_a_failure(env: Env) -> None:
    result = run(["true"], env=env, stdin=b"x" * 1_000_000, timeout_s=60)
    assert (result.state, result.returncode, result.ok) == (ProcessState.INPUT_FAILURE, 0, False)
    assert "of 1000000 bytes of standard input" in result.detail


def test_a_child_that_closes_its_input_early_and_goes_on_is_an_input_failure_at_its_end(env: Env) -> None:
    result = run(["sh", "-c", "exec <&-; sleep 0.05; echo late"], env=env, stdin=b"x" * 200_000, timeout_s=60)
    assert (result.state, result.returncode) == (ProcessState.INPUT_FAILURE, 0)
    assert result.stdout.tail == b"late\n"


def test_a_child_that_closes_its_output_early_is_awaited(env: Env) -> None:
    result = run(["sh", "-c", "exec >&- 2>&-; sleep 0.05; exit 3"], env=env, timeout_s=60)
    assert (result.state, result.returncode) == (ProcessState.EXITED, 3)
    assert result.elapsed_ms is not None
    assert result.elapsed_ms >= 50


def test_the_last_bytes_are_kept_and_all_are_counted(env: Env) -> None:
    script = "import sys; sys.stdout.write('a' * 300_000 + 'END'); sys.stderr.write('\u00e9' * 5)"
    result = run(python(script), env={**env, "LC_ALL": "C.UTF-8"}, timeout_s=60, capture_bytes=4)
    assert (result.stdout.n_bytes, result.stdout.n_characters) == (300_003, 300_003)
    assert len(result.stdout.tail) == 65_536
    assert result.stdout.tail.endswith(b"aEND")
    assert (result.stdout.head, result.stdout.head_truncated, result.stdout.tail_truncated) == (b"aaaa", True, True)
    assert (result.stderr.n_bytes, result.stderr.n_characters, result.stderr.tail_truncated) == (10, 5, False)


def test_output_that_is_no_text_stays_bytes(env: Env) -> None:
    result = run(["printf", r"\377\000\342\202"], env=env, timeout_s=60)
    assert result.stdout.tail == b"\xff\x00\xe2\x82"
    assert result.stdout.n_characters == 3


def test_a_child_that_complies_with_term_is_a_timeout(env: Env) -> None:
    # Kept for the whole grace, it would outlast the time limit of this test.
    result = run(["sleep", "3600"], env=env, timeout_s=0.05, grace_s=3600)
    assert (result.state, result.returncode) == (ProcessState.TIMEOUT, -signal.SIGTERM)
    assert (result.timed_out, result.forced_kill) == (True, False)
    assert result.elapsed_ms is not None
    assert result.elapsed_ms >= 50


def test_a_child_may_use_the_grace_to_finish_its_work(run_until_ready: RunUntilReady) -> None:
    script = "trap 'echo saved; exit 9' TERM; sleep 3600 & echo ready; wait"
    result = run_until_ready(["sh", "-c", script], grace_s=60)
    assert result.returncode == 9
    assert result.stdout.tail == b"ready\nsaved\n"


def test_a_child_that_ignores_term_is_killed_after_the_grace(run_until_ready: RunUntilReady) -> None:
    result = run_until_ready(["sh", "-c", "trap '' TERM; echo ready; exec sleep 3600"], grace_s=0.1)
    assert (result.state, result.returncode) == (ProcessState.FORCED_KILL, -signal.SIGKILL)
    assert (result.timed_out, result.forced_kill) == (True, True)
    assert re.fullmatch(r"reached its limit of (0\.2|4|40) s; ignored TERM for 0\.1 s", result.detail)


def test_a_stopped_child_is_killed_after_the_grace(run_until_ready: RunUntilReady) -> None:
    stopped = "grep -q '^State:.T' /proc/$$/status"
    script = f"(until {stopped}; do sleep 0.01; done; echo ready) & kill -STOP $$"
    result = run_until_ready(["sh", "-c", script], grace_s=0.1)
    assert (result.state, result.returncode) == (ProcessState.FORCED_KILL, -signal.SIGKILL)


def test_the_whole_group_gets_term_and_the_grace(run_until_ready: RunUntilReady) -> None:
    member = "trap 'echo member; exit' TERM; echo ready; while :; do sleep 0.01; done"
    result = run_until_ready(["sh", "-c", f"({member}) & exec sleep 3600"], grace_s=60)
    assert (result.state, result.returncode) == (ProcessState.TIMEOUT, -signal.SIGTERM)
    assert result.stdout.tail == b"ready\nmember\n"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["no-such-program"], "cannot start no-such-program: not found on PATH=/usr/bin:/bin"),
        (["/no/such/program"], "cannot start /no/such/program: No such file or directory"),
        (["/etc"], "cannot start /etc: Permission denied"),
        (["/etc/passwd"], "cannot start /etc/passwd: Permission denied"),
        (["/bin/echo", "x" * 3_000_000], "cannot start /bin/echo: Argument list too long"),
    ],
)
def test_what_cannot_start_says_why(env: Env, argv: list[str], told: str) -> None:
    result = run(argv, env=env, timeout_s=60)
    assert (result.state, result.returncode, result.elapsed_ms) == (ProcessState.SPAWN_FAILURE, None, None)
    assert result.detail == told
    assert result.argv == tuple(argv)


def test_a_missing_directory_is_named(env: Env, tmp_path: Path) -> None:
    result = run(["true"], env=env, cwd=tmp_path / "gone", timeout_s=60)
    assert result.state is ProcessState.SPAWN_FAILURE
    assert result.detail == f"cannot start /usr/bin/true: working directory {tmp_path}/gone: No such file or directory"


def test_a_file_as_directory_is_named(env: Env, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run(["true"], env=env, cwd=tmp_path / "file", timeout_s=60)
    assert result.detail == f"cannot start /usr/bin/true: working directory {tmp_path}/file: Not a directory"


def test_a_script_without_an_interpreter_line_is_a_spawn_failure(env: Env, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo hello\n")
    (tmp_path / "script").chmod(0o755)
    result = run([str(tmp_path / "script")], env=env, timeout_s=60)
    assert (result.state, result.detail) == (
        ProcessState.SPAWN_FAILURE,
        f"cannot start {tmp_path}/script: Exec format error",
    )


@pytest.mark.parametrize(
    "limits",
    [
        {"timeout_s": 0},
        {"timeout_s": -1},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"timeout_s": 1, "tail_bytes": 0},
        {"timeout_s": 1, "tail_bytes": -1},
        {"timeout_s": 1, "grace_s": -1},
        {"timeout_s": 1, "capture_bytes": -1},
    ],
)
def test_a_senseless_limit_is_refused_before_anything_starts(tmp_path: Path, limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        run(["/bin/touch", str(tmp_path / "started")], env={}, **limits)  # type: ignore[arg-type]
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        ([], {}),
        (["/bin/echo", "a\0b"], {}),
        (["/bin/echo"], {"A": "\0"}),
        (["/bin/echo"], {"A=B": "x"}),
        (["/bin/echo"], {"": "x"}),
    ],
)
def test_what_no_process_can_be_given_is_refused(argv: list[str], env: Env) -> None:
    with pytest.raises(ValueError, match=r"argv is empty|NUL|not the name"):
        run(argv, env=env, timeout_s=60)


def test_nothing_is_left_to_reap(env: Env) -> None:
    # In a process of its own: other tests' children may live on beside this test.
    script = (
        "import os\n"
        "from fairtrial.host.process import run\n"
        "run(['sh', '-c', 'true & true & wait'], env=dict(os.environ), timeout_s=60)\n"
        "os.waitpid(-1, os.WNOHANG)\n"
    )
    result = run([sys.executable, "-c", script], env=env, timeout_s=60)
    assert result.returncode == 1
    assert result.stderr.tail.endswith(b"ChildProcessError: [Errno 10] No child processes\n")


def test_a_thousand_runs_leak_no_descriptor(env: Env, open_fds: Callable[[], set[str]]) -> None:
    run(["true"], env=env, timeout_s=60)
    before = open_fds()
    for _ in range(1000):
        run(["/bin/true"], env=env, timeout_s=60)
    assert open_fds() == before


def test_failures_leak_no_descriptor(env: Env, open_fds: Callable[[], set[str]], tmp_path: Path) -> None:
    before = open_fds()
    run(["/no/such"], env=env, timeout_s=1)
    run(["true"], env=env, cwd=tmp_path / "gone", timeout_s=1)
    run(["true"], env=env, stdin=b"x" * 100_000, timeout_s=60)
    run(["sleep", "9"], env=env, timeout_s=0.01)
    with pytest.raises(ValueError, match="NUL"):
        run(["true", "\0"], env=env, timeout_s=1)
    assert open_fds() == before


def test_an_ending_that_someone_else_collected_is_a_reap_failure(env: Env) -> None:
    previous = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel then reaps for itself
    try:
        result = run(["true"], env=env, timeout_s=60)
    finally:
        signal.signal(signal.SIGCHLD, previous)
    assert (result.state, result.returncode) == (ProcessState.REAP_FAILURE, None)
    assert result.peak_memory_reason == "the child was never reaped"


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.mark.skipif(not os.access(FREEZER / "cgroup.procs", os.W_OK), reason="no freezer of version 1 that we may use")
def test_what_outlives_its_kill_is_a_cleanup_failure(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen process takes no signal, like one that waits for a dead disk."""
    monkeypatch.setattr(process, "KILL_WAIT_S", 0.2)
    group = FREEZER / f"fairtrial-test-{os.getpid()}"
    group.mkdir()
    try:
        script = f"sleep 9 & echo $! >{group}/cgroup.procs && echo FROZEN >{group}/freezer.state"
        result = run(["sh", "-c", script], env=env, timeout_s=60)
    finally:
        (group / "freezer.state").write_text("THAWED")
        while (group / "cgroup.procs").read_text():
            os.sched_yield()
        group.rmdir()
    assert (result.state, result.returncode, result.ok) == (ProcessState.CLEANUP_FAILURE, 0, False)
    assert "still alive 0.2 s after KILL" in result.detail
