import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from fairtrial.errors import HostError
from fairtrial.host import namespace, process
from fairtrial.host.janitor import SWEEP_VARIABLE, find_strays
from fairtrial.host.namespace import Isolation, isolated_argv, probe_isolation
from fairtrial.host.process import Plumbing, Running, run, start

Env = dict[str, str]
Eventually = Callable[[Callable[[], bool]], None]
SOURCE = Path(process.__file__).parents[2]
WORKERS = Path(__file__).with_name("workers.py")
N_PROCESSES = 8  # harness, unshare, worker, sh, setsid sh, three sleeps


class User(Protocol):
    prefix: Sequence[str]
    python: str


@pytest.fixture
def marked(env: Env) -> Iterator[Env]:
    sweep_id = f"namespace-{os.getpid()}"
    yield {**env, SWEEP_VARIABLE: sweep_id, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    for pid in find_strays(sweep_id):
        os.kill(pid, signal.SIGKILL)


def start_harness(marked: Env, user: User, isolation: Isolation) -> tuple[Running, int, int]:
    argv = [*user.prefix, user.python, str(WORKERS), "harness", isolation.value]
    harness = start(argv, env=marked, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE, stderr=Plumbing.INHERIT)
    assert harness.stdout_fd is not None
    started_pid, worker_pid = map(int, os.read(harness.stdout_fd, 100).split())
    return harness, started_pid, worker_pid


def test_this_host_proves_what_it_allows() -> None:
    probed = probe_isolation()
    assert probed.isolation is Isolation.PID_NAMESPACE, probed.reason
    assert "PID 1" in probed.reason


def test_a_refusal_is_told_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unshare").write_text(
        "#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n"
    )
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setattr(namespace, "_SEARCH_PATH", str(tmp_path))
    probed = probe_isolation()
    assert probed.isolation is Isolation.PARENT_DEATH_SIGNAL
    assert probed.reason.startswith("unshare: unshare failed: Operation not permitted; allow unprivileged user")


def test_a_host_without_unshare_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace, "_SEARCH_PATH", str(tmp_path))
    probed = probe_isolation()
    assert probed.isolation is Isolation.PARENT_DEATH_SIGNAL
    assert "install util-linux" in probed.reason
    with pytest.raises(HostError, match="install util-linux"):
        isolated_argv(["true"], Isolation.PID_NAMESPACE)


def test_without_namespaces_the_command_stays_what_it_is() -> None:
    assert isolated_argv(["a", "b"], Isolation.PARENT_DEATH_SIGNAL) == ("a", "b")


@pytest.mark.parametrize("script", ["exit 7", "exit 255", "exit 0"])
def test_an_exit_code_passes_through(env: Env, user: User, script: str) -> None:
    argv = isolated_argv(["sh", "-c", f'test "$$" = 1 || exit 99; {script}'], Isolation.PID_NAMESPACE)
    assert run([*user.prefix, *argv], env=env, timeout_s=20).returncode == int(script.split()[1])


def test_the_caller_keeps_its_uid(env: Env, user: User) -> None:
    wanted = run([*user.prefix, "id", "-u"], env=env, timeout_s=20).stdout.tail
    argv = isolated_argv(["id", "-u"], Isolation.PID_NAMESPACE)
    assert run([*user.prefix, *argv], env=env, timeout_s=20).stdout.tail == wanted


@pytest.mark.parametrize("victim", ["what we started", "the worker", "the harness", "the harness's input"])
def test_nothing_survives_in_a_namespace_whoever_is_killed(
    marked: Env, user: User, victim: str, eventually: Eventually
) -> None:
    sweep_id = marked[SWEEP_VARIABLE]
    harness, unshare_pid, worker_pid = start_harness(marked, user, Isolation.PID_NAMESPACE)
    with harness:
        eventually(lambda: len(find_strays(sweep_id)) == N_PROCESSES)
        if victim == "the harness's input":
            harness.close_stdin()
        else:
            pid = {"what we started": unshare_pid, "the worker": worker_pid, "the harness": harness.pid}[victim]
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: set(find_strays(sweep_id)) <= {harness.pid})


@pytest.mark.parametrize("victim", ["the harness", "the harness's input"])
def test_nothing_survives_without_a_namespace_when_the_harness_ends(
    marked: Env, user: User, victim: str, eventually: Eventually
) -> None:
    sweep_id = marked[SWEEP_VARIABLE]
    harness, *_ = start_harness(marked, user, Isolation.PARENT_DEATH_SIGNAL)
    with harness:
        eventually(lambda: len(find_strays(sweep_id)) == N_PROCESSES - 1)
        if victim == "the harness":
            # The worker gets its parent-death signal at once, which its own clean-up may lose to: the janitor's case.
            os.kill(harness.pid, signal.SIGKILL)
            harness.wait(60)
            janitor = run(
                [*user.prefix, user.python, "-c", JANITOR, sweep_id],
                env={k: v for k, v in marked.items() if k != SWEEP_VARIABLE},
                timeout_s=30,
            )
            assert janitor.ok, janitor.stderr.tail
            assert find_strays(sweep_id) == ()
        else:
            harness.close_stdin()
            eventually(lambda: set(find_strays(sweep_id)) <= {harness.pid})


JANITOR = "import sys\nfrom fairtrial.host.janitor import kill_strays_of\nprint(kill_strays_of(sys.argv[1]))"
