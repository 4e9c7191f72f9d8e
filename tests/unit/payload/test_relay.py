"""The relay as it runs in a sandbox, only without one: real processes, real sockets."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fairtrial

RELAY = str(Path(fairtrial.__file__).parent / "payload" / "relay.py")
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


def _argv(path: Path, *command: str, port: str = "0") -> list[str]:
    return [PYTHON, "-I", "-S", RELAY, port, str(path), "--", *command]


def _run(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    argv = _argv(Path("/nonexistent"), *command)
    return subprocess.run(
        argv, env={"PATH": os.defpath, **(env or {})}, capture_output=True, text=True, timeout=60, check=False
    )


@contextmanager
def _relay(path: Path, script: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    argv = _argv(path, "sh", "-c", script)
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env={"PATH": os.defpath, **env}, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, socket.socket]]:
    path = tmp_path / "m"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(30)
        yield path, listener


def _connect(process: subprocess.Popen[str]) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", int(_line(process))), timeout=30)
    client.settimeout(30)
    return client


SHOW_PORT = "echo $FAIRTRIAL_RELAY_PORT; exec cat"


def test_it_returns_the_commands_exit_code_and_its_streams() -> None:
    done = _run("sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_death_by_a_signal_is_128_and_its_number() -> None:
    assert _run("sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize(("command", "code"), [("/nonexistent/cli", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_start_is_told_as_a_shell_tells_it(command: str, code: int) -> None:
    done = _run(command)
    assert done.returncode == code
    assert done.stderr.startswith(f"relay: {command}: ")


@pytest.mark.parametrize("arguments", [[], ["1"], ["x", "/s", "--", "true"], ["0", "/s", "true", "false"]])
def test_wrong_usage_is_one_line(arguments: list[str]) -> None:
    done = subprocess.run([PYTHON, RELAY, *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        argv = _argv(Path("/x"), "true", port=str(taken.getsockname()[1]))
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 125
    assert "cannot listen" in done.stderr


def test_bytes_go_both_ways_and_the_ends_too(server: tuple[Path, socket.socket]) -> None:
    path, listener = server
    with _relay(path, SHOW_PORT) as process, _connect(process) as client:
        inner, _ = listener.accept()
        with inner:
            client.sendall(b"question")
            assert inner.recv(100) == b"question"
            inner.sendall(b"answer")
            assert client.recv(100) == b"answer"
            client.close()
            assert inner.recv(100) == b""


def test_what_the_server_said_last_arrives_although_the_client_is_still_sending(
    server: tuple[Path, socket.socket],
) -> None:
    path, listener = server
    with _relay(path, SHOW_PORT) as process, _connect(process) as client:
        inner, _ = listener.accept()
        with inner:
            client.sendall(b"x" * 100_000)
            inner.sendall(b"no")
            inner.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b"no"
            assert client.recv(100) == b""


def test_a_slow_reader_slows_the_writer_and_nothing_is_lost(server: tuple[Path, socket.socket]) -> None:
    path, listener = server
    n_bytes = 30_000_000
    with _relay(path, SHOW_PORT) as process, _connect(process) as client:
        inner, _ = listener.accept()
        with inner:
            sender = threading.Thread(target=inner.sendall, args=(b"z" * n_bytes,))
            sender.start()
            rss = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            assert rss < 60_000_000
            left = n_bytes
            while left:
                left -= len(client.recv(1 << 20))
            sender.join()


def test_a_gateway_that_is_gone_ends_the_clients_connection(tmp_path: Path) -> None:
    with _relay(tmp_path / "nobody", SHOW_PORT) as process, _connect(process) as client:
        assert client.recv(100) == b""


def test_its_term_is_the_commands_term(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    with _relay(tmp_path / "m", script) as process:
        assert _line(process) == "ready"
        process.terminate()
        assert _line(process) == "bye"
        assert process.wait(60) == 3


def test_a_command_that_ignores_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    """B52."""
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    with _relay(tmp_path / "m", script, FAIRTRIAL_GRACE_S="0.3") as process:
        assert _line(process) == "ready"
        begun_s = time.monotonic()
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGKILL
        assert time.monotonic() - begun_s >= 0.3


def test_the_deadline_is_told_and_kept(tmp_path: Path) -> None:
    script = "trap 'exit 4' TERM; echo $FAIRTRIAL_DEADLINE; while :; do sleep 0.05; done"
    for left_s in (0.5, 5, 50):  # how long it needs until the trap is set is the machine's business
        deadline = str(time.clock_gettime(time.CLOCK_REALTIME) + left_s)
        with _relay(tmp_path / "m", script, FAIRTRIAL_DEADLINE=deadline) as process:
            if _line(process) == deadline:
                assert process.wait(60) == 4
                return
    pytest.fail("it was never ready")


def test_other_signals_are_passed_on_without_an_end(tmp_path: Path) -> None:
    script = "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done"
    with _relay(tmp_path / "m", script, FAIRTRIAL_GRACE_S="0.1") as process:
        assert _line(process) == "ready"
        process.send_signal(signal.SIGUSR1)
        assert _line(process) == "usr1"
        assert process.poll() is None
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM


def test_what_the_command_leaves_in_its_group_ends_with_it(tmp_path: Path, eventually: Callable[..., None]) -> None:
    with _relay(tmp_path / "m", "sleep 600 & echo $!") as process:
        pid = int(_line(process))
        assert process.wait(60) == 0
        eventually(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.needs("bwrap")
def test_as_pid_1_it_reaps_orphans(tmp_path: Path) -> None:
    count = f"ls -d /proc/[0-9]* | wc -l >{tmp_path}/n; read n <{tmp_path}/n"
    script = f"(sleep 0.1 &); until {count}; test $n = 4; do sleep 0.05; done; echo $n"
    relay = _argv(tmp_path / "m", "sh", "-c", script)
    argv = ["bwrap", "--unshare-all", "--as-pid-1", "--bind", "/", "/", "--proc", "/proc", "--", *relay]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 4  # the relay, the shell, ls and wc: no zombie


def test_it_needs_nothing_but_the_standard_library_of_python_3_9() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import ast; ast.parse(open({RELAY!r}).read(), feature_version=(3, 9))"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def eventually() -> Callable[..., None]:
    def wait(condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline_s, "the condition never came true"
            time.sleep(0.01)

    return wait


def test_what_a_server_says_before_it_hangs_up_arrives(
    server: tuple[Path, socket.socket], eventually: Callable[..., None]
) -> None:
    path, listener = server
    with _relay(path, SHOW_PORT) as process, _connect(process) as client:
        inner, _ = listener.accept()
        client.sendall(b"question")
        assert inner.recv(100) == b"question"
        _stop(process, eventually)
        inner.sendall(b"answer")
        inner.close()
        os.kill(process.pid, signal.SIGCONT)
        assert client.recv(100) == b"answer"
        assert client.recv(100) == b""


def _stop(process: subprocess.Popen[str], eventually: Callable[..., None]) -> None:
    """Hold the relay, so that it hears of several events at once."""
    os.kill(process.pid, signal.SIGSTOP)
    eventually(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")


def test_both_ends_that_leave_in_one_moment_end_their_connection_and_nothing_else(
    server: tuple[Path, socket.socket], eventually: Callable[..., None]
) -> None:
    path, listener = server
    with _relay(path, SHOW_PORT) as process, _connect(process) as client:
        address = client.getpeername()
        inner, _ = listener.accept()
        client.sendall(b"question")
        assert inner.recv(100) == b"question"
        _stop(process, eventually)
        client.close()
        inner.close()
        os.kill(process.pid, signal.SIGCONT)
        with socket.create_connection(address, timeout=30) as other:
            inner, _ = listener.accept()
            with inner:
                other.sendall(b"question")
                assert inner.recv(100) == b"question"
