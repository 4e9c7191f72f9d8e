import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.host.janitor import SWEEP_VARIABLE, find_strays
from fairtrial.host.running import Plumbing, start

Env = dict[str, str]
Eventually = Callable[[Callable[[], bool]], None]


def read_line(fd: int | None) -> bytes:
    assert fd is not None
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(fd, 1)
        if not data:
            break
        line += data
    return line


def test_a_child_is_talked_to_by_pipes(env: Env) -> None:
    with start(["cat"], env=env, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE) as child:
        assert child.stdin_fd is not None
        os.write(child.stdin_fd, b"hello\n")
        assert read_line(child.stdout_fd) == b"hello\n"
        assert child.poll() is None
        child.close_stdin()
        assert child.wait(60) == 0
        assert child.poll() == 0
    assert (child.stdin_fd, child.stdout_fd, child.stderr_fd, child.pidfd) == (None, None, None, -1)


def test_streams_that_are_not_asked_for_are_the_null_device(env: Env) -> None:
    script = "readlink /proc/self/fd/0 /proc/self/fd/2"
    with start(["sh", "-c", script], env=env, stdout=Plumbing.PIPE) as child:
        assert read_line(child.stdout_fd) + read_line(child.stdout_fd) == b"/dev/null\n/dev/null\n"
        assert (child.stdin_fd, child.stderr_fd) == (None, None)


def test_the_pidfd_tells_the_end(env: Env) -> None:
    with start(["cat"], env=env, stdin=Plumbing.PIPE) as child:
        watcher = select.poll()
        watcher.register(child.pidfd, select.POLLIN)
        assert watcher.poll(0) == []
        child.close_stdin()
        assert watcher.poll(10_000) != []


def test_waiting_is_bounded(env: Env) -> None:
    with start(["sleep", "300"], env=env) as child:
        assert child.wait(0.02) is None


def test_leaving_the_context_kills_and_reaps(env: Env) -> None:
    with start(["sleep", "300"], env=env) as child:
        pass
    assert child.poll() == -signal.SIGKILL
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


def test_a_child_that_complies_is_terminated_politely(env: Env) -> None:
    script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    with start(["sh", "-c", script], env=env, stdout=Plumbing.PIPE) as child:
        read_line(child.stdout_fd)
        assert child.terminate(grace_s=60) == 5
        assert child.terminate(grace_s=60) == 5
        assert child.kill() == 5


def test_a_child_that_does_not_comply_is_killed_after_the_grace(env: Env) -> None:
    script = "import signal; signal.signal(15, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: signal.pause()"
    with start([sys.executable, "-I", "-S", "-c", script], env=env, stdout=Plumbing.PIPE) as child:
        read_line(child.stdout_fd)
        assert child.terminate(grace_s=0.05) == -signal.SIGKILL


def test_what_a_server_leaves_in_its_group_dies_with_it(env: Env) -> None:
    marked = {**env, SWEEP_VARIABLE: f"server-{os.getpid()}"}
    script = "sleep 300 & echo up; read go"
    with start(["sh", "-c", script], env=marked, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE) as child:
        read_line(child.stdout_fd)
        assert len(find_strays(f"server-{os.getpid()}")) == 2
        child.close_stdin()
        assert child.wait(60) == 1
        assert find_strays(f"server-{os.getpid()}") == ()


def test_a_child_reaped_by_the_sweep_over_all_strays_counts_as_killed(env: Env) -> None:
    with start(["sleep", "300"], env=env) as child:
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        assert child.poll() == -signal.SIGKILL


def test_no_write_end_of_one_child_is_held_by_another(env: Env) -> None:
    with (
        start(["cat"], env=env, stdin=Plumbing.PIPE) as first,
        start(["cat"], env=env, stdin=Plumbing.PIPE),
    ):
        first.close_stdin()
        assert first.wait(60) == 0


@pytest.mark.parametrize("argv", [["no-such-program"], ["/no/such/program"], ["/etc"]])
def test_what_cannot_start_is_an_error_of_the_host(env: Env, argv: list[str], open_fds: Callable[[], set[str]]) -> None:
    before = open_fds()
    with pytest.raises(HostError, match=f"cannot start {argv[0]}"):
        start(argv, env=env, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE, stderr=Plumbing.PIPE)
    assert open_fds() == before


def test_a_hundred_children_leak_no_descriptor(env: Env, open_fds: Callable[[], set[str]]) -> None:
    before = open_fds()
    for _ in range(100):
        with start(["/bin/true"], env=env, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE, stderr=Plumbing.PIPE):
            pass
    assert open_fds() == before


def test_a_child_starts_in_its_directory(env: Env, tmp_path: Path) -> None:
    with start(["pwd", "-P"], env=env, cwd=tmp_path, stdout=Plumbing.PIPE) as child:
        assert read_line(child.stdout_fd) == os.fsencode(f"{tmp_path.resolve()}\n")
