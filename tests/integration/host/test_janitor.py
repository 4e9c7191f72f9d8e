import os
from collections.abc import Callable

from fairtrial.host.janitor import SWEEP_VARIABLE, find_strays, kill_strays_of
from fairtrial.host.proc import kill_if, read_stat
from fairtrial.host.process import Plumbing, start

Env = dict[str, str]
SWEEP = f"janitor-{os.getpid()}"
Eventually = Callable[[Callable[[], bool]], None]


def test_only_the_processes_of_the_named_sweep_are_found_and_killed(env: Env, eventually: Eventually) -> None:
    mine = {**env, SWEEP_VARIABLE: SWEEP}
    other = {**env, SWEEP_VARIABLE: f"{SWEEP}0"}
    with (
        start(
            ["sh", "-c", "setsid sleep 300 & setsid sleep 300 & echo up; wait"], env=mine, stdout=Plumbing.PIPE
        ) as first,
        start(["sleep", "300"], env=other) as second,
    ):
        assert first.stdout_fd is not None
        os.read(first.stdout_fd, 3)
        eventually(lambda: len(find_strays(SWEEP)) == 3)
        assert first.pid in find_strays(SWEEP)
        eventually(lambda: find_strays(f"{SWEEP}0") == (second.pid,))  # its environment is ours until it is executed
        assert kill_strays_of(SWEEP) == 3
        assert find_strays(SWEEP) == ()
        assert second.poll() is None


def test_a_variable_that_only_contains_the_name_is_not_ours(env: Env) -> None:
    with start(["sleep", "300"], env={**env, f"X{SWEEP_VARIABLE}": "s", "Y": f"{SWEEP_VARIABLE}=s"}):
        assert find_strays("s") == ()


def test_nothing_to_do_is_no_error() -> None:
    assert kill_strays_of("never-ran") == 0


def test_a_process_that_is_no_longer_the_one_meant_is_spared(env: Env) -> None:
    with start(["sleep", "300"], env=env) as bystander:
        assert kill_if(bystander.pid, lambda _: False) is False
        assert bystander.poll() is None
        assert kill_if(bystander.pid, lambda _: True) is True
        assert bystander.wait(60) == -9
        assert kill_if(bystander.pid, lambda _: True) is False
    assert read_stat(bystander.pid) is None
