import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from fairtrial.host import process
from fairtrial.host.janitor import SWEEP_VARIABLE, find_strays
from fairtrial.host.namespace import Isolation, isolated_argv
from fairtrial.host.process import Plumbing, start

Env = dict[str, str]
Eventually = Callable[[Callable[[], bool]], None]
SOURCE = Path(process.__file__).parents[2]
BOTH = pytest.mark.parametrize("isolation", list(Isolation))

PRELUDE = """
import os, sys
from fairtrial.host.life import guard_life, kill_strays
from fairtrial.host.process import run
ENV = dict(os.environ)
guard_life(0)
"""


class User(Protocol):
    prefix: Sequence[str]
    python: str


@pytest.fixture
def marked(env: Env) -> Env:
    """Mark whatever a test starts, so that what is left of it can be found."""
    marks = {SWEEP_VARIABLE: f"life-{os.getpid()}", "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    return {**env, **marks}


def run_worker(script: str, env: Env, isolation: Isolation, user: User) -> str:
    """Run a worker script to its end while holding its input open; return what it printed."""
    argv = [*user.prefix, *isolated_argv([user.python, "-c", PRELUDE + script], isolation)]
    with start(argv, env=env, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE, stderr=Plumbing.INHERIT) as worker:
        assert worker.stdout_fd is not None
        said = b""
        while data := os.read(worker.stdout_fd, 4096):
            said += data
        assert worker.wait(60) == 0
    return said.decode()


@BOTH
def test_strays_are_counted_and_gone_and_the_worker_goes_on(
    marked: Env, isolation: Isolation, user: User, shared_directory: Path
) -> None:
    script = """
hide = "setsid sh -c ': >%s; exec sleep 300' & while ! test -e %s; do :; done"
for trial in range(3):
    run(["sh", "-c", hide % (f"a{trial}", f"a{trial}")], env=ENV, cwd=ENV["HOME"], timeout_s=20)
    result = run(["sh", "-c", hide % (f"b{trial}", f"b{trial}")], env=ENV, cwd=ENV["HOME"], timeout_s=20)
    assert result.ok, result
    print(kill_strays(), kill_strays())
"""
    assert run_worker(script, {**marked, "HOME": str(shared_directory)}, isolation, user) == "2 0\n" * 3
    assert find_strays(marked[SWEEP_VARIABLE]) == ()


@BOTH
def test_a_trial_without_strays_counts_none(marked: Env, isolation: Isolation, user: User) -> None:
    script = "run(['sh', '-c', 'true & wait'], env=ENV, timeout_s=20)\nprint(kill_strays())\n"
    assert run_worker(script, marked, isolation, user) == "0\n"


@BOTH
def test_a_dead_but_unreaped_member_of_a_group_is_nobody_left_behind(
    marked: Env, isolation: Isolation, user: User
) -> None:
    script = """
child = "import os\\nif os.fork() == 0: os._exit(0)\\nos.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)"
for _ in range(20):
    result = run([sys.executable, "-I", "-S", "-c", child], env=ENV, timeout_s=20)
    print(result.state.value, result.forced_kill)
"""
    assert run_worker(script, marked, isolation, user) == "exited False\n" * 20


@BOTH
def test_a_living_member_of_a_group_is_killed_inside_a_worker_too(
    marked: Env, isolation: Isolation, user: User
) -> None:
    script = """
result = run(["sh", "-c", "sleep 300 & exit 0"], env=ENV, timeout_s=20)
print(result.state.value, kill_strays())
"""
    assert run_worker(script, marked, isolation, user) == "forced-kill 0\n"


@BOTH
def test_a_worker_with_unread_input_ends_when_its_input_does(
    marked: Env, isolation: Isolation, user: User, eventually: Eventually
) -> None:
    script = PRELUDE + "run(['sh', '-c', 'setsid sleep 300 & exec sleep 300'], env=ENV, timeout_s=300)"
    argv = [*user.prefix, *isolated_argv([user.python, "-c", script], isolation)]
    n_processes = 4 if isolation is Isolation.PID_NAMESPACE else 3
    with start(argv, env=marked, stdin=Plumbing.PIPE, stderr=Plumbing.INHERIT) as worker:
        assert worker.stdin_fd is not None
        os.write(worker.stdin_fd, b"never read\n")
        eventually(lambda: len(find_strays(marked[SWEEP_VARIABLE])) == n_processes)
        worker.close_stdin()
        assert worker.wait(60) == 0
        assert find_strays(marked[SWEEP_VARIABLE]) == ()


def test_a_worker_is_killed_when_its_parent_dies(marked: Env, eventually: Eventually) -> None:
    """Without a namespace, by the parent-death signal, even when it holds the write end of its own input."""
    sweep_id = marked[SWEEP_VARIABLE]
    worker = """
import os, signal
from fairtrial.host.life import guard_life
read_fd, write_fd = os.pipe()
guard_life(read_fd)
print("up", flush=True)
signal.pause()
"""
    parent = f"""
import os, sys
from fairtrial.host.process import Plumbing, start
child = start([sys.executable, "-c", {worker!r}], env=dict(os.environ), stdout=Plumbing.PIPE)
os.read(child.stdout_fd, 3)
print("up", flush=True)
sys.stdin.read()
"""
    with start([sys.executable, "-c", parent], env=marked, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE) as harness:
        assert harness.stdout_fd is not None
        assert os.read(harness.stdout_fd, 3) == b"up\n"
        assert len(find_strays(sweep_id)) == 2
        os.kill(harness.pid, signal.SIGKILL)
        eventually(lambda: find_strays(sweep_id) == ())
