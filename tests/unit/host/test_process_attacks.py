"""What a hostile or careless child may do to whoever runs it; each must end bounded, with nothing left."""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from fairtrial.host import process
from fairtrial.host.janitor import SWEEP_VARIABLE, find_strays
from fairtrial.host.process import run
from fairtrial.model.process import ProcessResult, ProcessState

Env = dict[str, str]
RunUntilReady = Callable[..., ProcessResult]
Eventually = Callable[[Callable[[], bool]], None]


def python(script: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", script]


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_quiet_child_left_behind_is_killed_and_never_writes(env: Env, tmp_path: Path) -> None:
    ready, late = tmp_path / "ready", tmp_path / "late"
    child = f"(exec >&- 2>&- <&-; : >{ready}; sleep 3600; : >{late}) & while ! test -e {ready}; do :; done"
    result = run(["sh", "-c", child], env={**env, SWEEP_VARIABLE: f"quiet-{os.getpid()}"}, timeout_s=60)
    assert (result.state, result.returncode, result.ok) == (ProcessState.FORCED_KILL, 0, False)
    assert (result.forced_kill, result.timed_out, result.pipe_held) == (True, False, False)
    assert find_strays(f"quiet-{os.getpid()}") == ()
    # Not by sleeping past it, but because nobody is left who could write:
    assert not late.exists()


def test_a_child_of_the_group_that_holds_the_pipe_is_killed(env: Env) -> None:
    result = run(["sh", "-c", "echo said; sleep 3600 & exit 0"], env=env, timeout_s=3600)
    assert (result.state, result.returncode, result.pipe_held) == (ProcessState.FORCED_KILL, 0, False)
    assert (result.stdout.tail, result.timed_out) == (b"said\n", False)


def test_a_descendant_outside_the_group_that_holds_the_pipe_cannot_make_run_hang(
    env: Env, eventually: Eventually
) -> None:
    script = """
import os, signal
if os.fork():
    os.wait()
    print("said", flush=True)
elif os.fork():
    while not os.path.exists("ready"): pass
else:
    os.setsid()
    open("ready", "w").close()
    signal.pause()
"""
    result = run(
        python(script), env={**env, SWEEP_VARIABLE: f"holder-{os.getpid()}"}, cwd=Path(env["HOME"]), timeout_s=60
    )
    try:
        assert (result.state, result.returncode, result.pipe_held) == (ProcessState.EXITED, 0, True)
        assert result.stdout.tail == b"said\n"
    finally:
        for pid in find_strays(f"holder-{os.getpid()}"):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: find_strays(f"holder-{os.getpid()}") == ())


def test_a_descendant_outside_the_group_that_floods_the_pipe_cannot_make_run_hang(
    env: Env, eventually: Eventually
) -> None:
    script = "setsid yes & while ! test -e /proc/$!/fd; do :; done"
    result = run(["sh", "-c", script], env={**env, SWEEP_VARIABLE: f"flood-{os.getpid()}"}, timeout_s=60)
    assert result.state in {ProcessState.EXITED, ProcessState.FORCED_KILL}  # it may not have left the group yet
    for pid in find_strays(f"flood-{os.getpid()}"):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: find_strays(f"flood-{os.getpid()}") == ())


def test_a_flood_is_counted_to_the_byte_in_bounded_memory(env: Env) -> None:
    run(["yes"], env=env, timeout_s=0.05)
    before = rss_bytes()
    result = run(["yes"], env=env, timeout_s=1)
    assert rss_bytes() - before < 8 * 1024 * 1024
    assert result.state is ProcessState.TIMEOUT
    assert result.stdout.n_bytes > 10 * 1024 * 1024
    assert result.stdout.n_characters == result.stdout.n_bytes
    assert len(result.stdout.tail) == 65_536
    exact = run(["head", "-c", "50000001", "/dev/zero"], env=env, timeout_s=60)
    assert exact.stdout.n_bytes == 50_000_001


def test_a_flood_does_not_outlast_its_limit(run_until_ready: RunUntilReady) -> None:
    result = run_until_ready(["sh", "-c", "trap '' TERM; echo ready; exec yes"], grace_s=0.2)
    assert result.state is ProcessState.FORCED_KILL
    assert result.stdout.n_bytes > 1_000_000


def test_a_child_that_reads_its_own_output_away_cannot_block_us(env: Env) -> None:
    script = (
        "import os\nr = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)\n"
        "for _ in range(20000):\n os.write(1, b'x')\n try: os.read(r, 1)\n except BlockingIOError: pass\n"
    )
    result = run(python(script), env=env, timeout_s=60)
    assert result.ok


def test_a_child_that_makes_the_pipe_larger_is_still_drained_whole(env: Env) -> None:
    script = "import fcntl, os\nfcntl.fcntl(1, 1031, 1 << 20)\nos.write(1, b'x' * 1000_000)"
    result = run(python(script), env=env, timeout_s=60)
    assert result.stdout.n_bytes == 1_000_000


def test_a_bomb_of_children_is_killed_whole(env: Env) -> None:
    script = "import os\nfor _ in range(6): os.fork()\nif os.getpid() != os.getpgrp():\n while True: os.getppid()"
    result = run(python(script), env={**env, SWEEP_VARIABLE: f"bomb-{os.getpid()}"}, timeout_s=60)
    assert (result.state, result.returncode) == (ProcessState.FORCED_KILL, 0)
    assert find_strays(f"bomb-{os.getpid()}") == ()


def test_a_child_gets_a_session_of_its_own_so_the_terminal_cannot_interrupt_it(env: Env) -> None:
    script = """
import os
print(os.getsid(0) == os.getpgrp() == os.getpid())
try: os.open("/dev/tty", os.O_RDWR)
except OSError as problem: print(problem.errno)
"""
    assert run(python(script), env=env, timeout_s=60).stdout.tail == b"True\n6\n"


def test_a_child_inherits_no_descriptor_of_ours_not_even_an_inheritable_one(env: Env) -> None:
    read_fd, write_fd = os.pipe()
    os.set_inheritable(write_fd, True)
    try:
        listed = run(["sh", "-c", "echo /proc/self/fd/*"], env=env, timeout_s=60).stdout.tail
    finally:
        os.close(read_fd)
        os.close(write_fd)
    numbers = {word.rpartition(b"/")[2] for word in listed.split()}
    assert numbers - {b"3"} == {b"0", b"1", b"2"}  # 3 is the shell's own look into that directory


def test_a_child_starts_with_default_signals_and_an_empty_mask_whatever_ours_are(env: Env) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    try:
        result = run(["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"], env=env, timeout_s=60)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGHUP, previous)
    # The C library ignores its own two signals, 32 and 33, between fork and exec; no program sees them.
    masks = [int(line.split()[1], 16) & ~(3 << 31) for line in result.stdout.tail.splitlines()]
    assert masks == [0, 0]


def test_streams_are_right_even_when_our_own_are_closed(env: Env) -> None:
    script = (
        "import os, sys\nos.closerange(0, 3)\n"
        "from fairtrial.host.process import run\n"
        "r = run(['sh', '-c', 'cat; echo err >&2'], env={'PATH': '/usr/bin:/bin'}, stdin=b'in', timeout_s=60)\n"
        "sys.exit(0 if (r.ok, r.stdout.tail, r.stderr.tail) == (True, b'in', b'err\\n') else 1)"
    )
    source = str(Path(process.__file__).parents[2])
    result = run([sys.executable, "-c", script], env={**env, "PYTHONPATH": source}, timeout_s=60)
    assert result.returncode == 0, result.stderr.tail


def test_an_interrupt_kills_the_child_and_reaches_the_caller(env: Env) -> None:
    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def be_interrupted() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.1)  # here, since it may be over before anything starts
        run(["sh", "-c", "trap '' TERM; sleep 300 & sleep 300"], env=marked, timeout_s=60)

    marked = {**env, SWEEP_VARIABLE: f"interrupted-{os.getpid()}"}
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            be_interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert find_strays(f"interrupted-{os.getpid()}") == ()


def test_a_thread_that_waits_does_not_hold_up_a_run(env: Env) -> None:
    read_fd, write_fd = os.pipe()
    watcher = select.poll()
    watcher.register(read_fd, 0)
    waiting = threading.Thread(target=watcher.poll)
    waiting.start()
    try:
        elapsed = sorted(run(["/bin/true"], env=env, timeout_s=60).elapsed_ms or 0 for _ in range(30))
    finally:
        os.close(write_fd)
        waiting.join()
        os.close(read_fd)
    assert elapsed[0] < 100
