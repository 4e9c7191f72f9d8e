import os
import shutil
from collections.abc import Callable
from pathlib import Path

from fairtrial.host.group import group_is_alive, signal_group, wait_group_gone
from fairtrial.host.proc import list_pids, proc_is_ours, read_stat
from fairtrial.host.process import Plumbing, start

Env = dict[str, str]


def test_a_command_name_with_spaces_and_parentheses_is_read_right(env: Env, tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    shutil.copy("/bin/cat", program)
    with start([str(program)], env=env, stdin=Plumbing.PIPE) as child:
        stat = read_stat(child.pid)
        assert stat is not None
        assert (stat.ppid, stat.pgid, stat.is_alive) == (os.getpid(), child.pid, True)
        assert child.pid in set(list_pids())


def test_a_process_that_is_gone_has_no_line(env: Env) -> None:
    with start(["true"], env=env) as child:
        child.wait(60)
    assert read_stat(child.pid) is None


def test_a_dead_process_that_nobody_reaped_is_not_alive(
    env: Env, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    with start(["true"], env=env) as child:
        eventually(lambda: (stat := read_stat(child.pid)) is not None and not stat.is_alive)


def test_the_process_table_we_see_is_our_own() -> None:
    assert proc_is_ours()


def test_a_group_without_members_is_gone() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {}, setpgroup=0)
    os.waitpid(pid, 0)
    assert not signal_group(pid, 0)
    assert not group_is_alive(pid)


def test_waiting_for_a_group_is_bounded_and_uses_the_pause_it_is_given(env: Env) -> None:
    pauses: list[float] = []
    with start(["sleep", "300"], env=env) as child:
        assert not wait_group_gone(child.pid, timeout_s=0.3, pause=pauses.append)
    assert pauses
    assert max(pauses) <= 20
