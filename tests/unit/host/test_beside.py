import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_alone(script: str) -> str:
    """Run a script in a process with one thread, as a fork wants it; this one may have the test runner's too."""
    preamble = "import os, signal, sys, threading\nfrom fairtrial.host.beside import can_work_beside, working_beside\n"
    done = subprocess.run([sys.executable, "-c", preamble + script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout


def test_a_result_larger_than_a_pipe_comes_whole_from_another_process() -> None:
    script = """
with working_beside(lambda: b"%d " % os.getpid() + bytes(300_000)) as wait_result:
    pid, data = wait_result().split(b" ", 1)
print(int(pid) != os.getpid(), data == bytes(300_000))
"""
    assert run_alone(script) == "True True\n"


@pytest.mark.parametrize("work", ["1 / 0", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_work_that_fails_has_no_result_prints_nothing_and_does_not_go_on_as_the_parent(work: str) -> None:
    script = f"with working_beside(lambda: {work}) as wait_result:\n    result = wait_result()\nprint(result)\n"
    assert run_alone(script) == "None\n"


def test_leaving_the_block_ends_the_child_and_reaps_it() -> None:
    script = """
try:
    with working_beside(lambda: signal.pause()):
        raise KeyError
except KeyError:
    pass
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("none left", len(os.listdir("/proc/self/fd")))
"""
    assert run_alone(script) == "none left 4\n"  # the standard three and the listing's own


def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f"""
from fairtrial.host.beside import working_beside
import os, signal
os.open({str(fifo)!r}, os.O_WRONLY)  # both hold it
with working_beside(lambda: signal.pause()):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        with fifo.open("rb") as held:
            assert held.read() == b""  # both are gone
        assert parent.wait() == -9


def test_no_fork_is_safe_beside_another_thread_or_of_use_on_one_processor() -> None:
    script = """
done = threading.Event()
thread = threading.Thread(target=done.wait)
before = can_work_beside()
thread.start()
print(before == (len(os.sched_getaffinity(0)) > 1), can_work_beside())
done.set()
thread.join()
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
print(can_work_beside())
"""
    assert run_alone(script) == "True False\nFalse\n"
