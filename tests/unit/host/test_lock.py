import fcntl
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.host import lock
from fairtrial.host.lock import HOST_LOCK_PATH, StoppedWaitingError, acquire_lock
from fairtrial.host.running import Plumbing, Running, start
from fairtrial.host.signals import stop_requests

Env = dict[str, str]
HOLDER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def hold(path: Path, env: Env) -> Running:
    argv = [sys.executable, "-I", "-S", "-c", HOLDER, str(path)]
    child = start(argv, env=env, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE)
    assert child.stdout_fd is not None
    assert os.read(child.stdout_fd, 5) == b"held\n"
    return child


def refuse_to_wait(holder: str) -> None:
    pytest.fail(f"waited for {holder}")


def is_locked(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@pytest.fixture(params=["file", "directory"])
def lockable(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "lockable"
    if request.param == "file":
        path.touch(mode=0o400)
    else:
        path.mkdir(mode=0o500)
    return path


def test_a_free_lock_is_taken_at_once_and_given_back(lockable: Path) -> None:
    with acquire_lock(lockable, wait_s=0, on_wait=refuse_to_wait) as held:
        assert held.path == lockable
        assert is_locked(lockable)
        assert not os.get_inheritable(held._fd)
    assert not is_locked(lockable)
    held.release()


def test_a_held_lock_is_refused_with_path_holder_and_remedy(
    lockable: Path, env: Env, open_fds: Callable[[], set[str]]
) -> None:
    with hold(lockable, env) as holder:
        before = open_fds()
        told = rf"^{re.escape(str(lockable))}: still locked by pid {holder.pid} \(.*python.*\) after 0 s; wait until"
        with pytest.raises(HostError, match=told):
            acquire_lock(lockable, wait_s=0, on_wait=refuse_to_wait)
        assert open_fds() == before


def test_a_wait_is_announced_once_and_bounded(lockable: Path, env: Env) -> None:
    announced: list[str] = []
    with hold(lockable, env) as holder, pytest.raises(HostError, match=r"after 0\.05 s"):
        acquire_lock(lockable, wait_s=0.05, on_wait=announced.append)
    assert len(announced) == 1
    assert announced[0].startswith(f"pid {holder.pid} (")


def test_a_lock_is_had_as_soon_as_its_holder_ends(lockable: Path, env: Env) -> None:
    with (
        hold(lockable, env) as holder,
        acquire_lock(lockable, wait_s=20, on_wait=lambda _: holder.close_stdin()) as held,
    ):
        assert 0 < held.waited_ms < 20_000


def test_a_killed_holder_lets_go(lockable: Path, env: Env) -> None:
    hold(lockable, env).kill()
    with acquire_lock(lockable, wait_s=0, on_wait=refuse_to_wait):
        pass


def test_a_holder_that_cannot_be_seen_is_unknown(lockable: Path, env: Env, tmp_path: Path) -> None:
    with hold(lockable, env):
        (tmp_path / "other").touch()
        # A file that /proc/locks does not list: as when the holder is in a namespace that we cannot see.
        fd = os.open(tmp_path / "other", os.O_RDONLY)
        try:
            assert lock._name_holder(fd) == "unknown holder"
        finally:
            os.close(fd)


def test_an_interrupted_wait_leaks_no_descriptor(lockable: Path, env: Env, open_fds: Callable[[], set[str]]) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with hold(lockable, env):
        before = open_fds()
        with pytest.raises(KeyboardInterrupt):
            acquire_lock(lockable, wait_s=10, on_wait=interrupt)
        assert open_fds() == before


def test_a_wait_ends_when_the_program_is_asked_to_stop(
    lockable: Path, env: Env, open_fds: Callable[[], set[str]]
) -> None:
    with hold(lockable, env), stop_requests() as stop:
        before = open_fds()
        with pytest.raises(StoppedWaitingError):
            acquire_lock(lockable, wait_s=600, on_wait=lambda _: signal.raise_signal(signal.SIGTERM), stop=stop)
        assert stop.signal_number == signal.SIGTERM
        assert open_fds() == before


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=f"{tmp_path}/gone: cannot be opened to lock it: No such file"):
        acquire_lock(tmp_path / "gone", wait_s=0, on_wait=refuse_to_wait)


def test_the_host_lock_is_on_something_that_every_user_can_read() -> None:
    assert HOST_LOCK_PATH in {Path("/etc/machine-id"), Path("/etc")}
    assert HOST_LOCK_PATH.stat().st_mode & 0o004
