"""Each limit ends one sandbox, by its name; whatever is left inside dies with it."""

import io
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from fairtrial.host.cgroup import Controller, find_control_groups
from fairtrial.host.limits import Enforcement
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import Slot
from fairtrial.model.sandbox import Capture, Limit, Limits, SandboxResult, SandboxSpec, SandboxState

pytestmark = pytest.mark.needs("bwrap")

RunInside = Callable[..., SandboxResult]

PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
UNTIL_READY_S = 6.0
"""By then a shell has set its trap or stopped itself, on a busy machine too."""


def living_of(slot: Slot) -> list[str]:
    """Command lines of the living processes under the slot's uid, when that is not our own."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and slot.is_foreign:
            try:
                if entry.stat().st_uid == slot.uid and "State:\tZ" not in (entry / "status").read_text():
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue
    return found


def test_a_survivor_in_a_session_of_its_own_is_dead_when_the_result_is_there(inside: RunInside, slot: Slot) -> None:
    mark = f"97.{os.getpid()}"
    result = inside(f"setsid sh -c 'sleep {mark}; echo late > late' & setsid sleep {mark} & echo done")
    assert (result.state, result.stdout.head) == (SandboxState.EXITED, b"done\n")
    assert n_running(f"sleep\0{mark}\0".encode()) == 0
    assert living_of(slot) == []


def n_running(command: bytes) -> int:
    """Count the living processes with this command line, anybody's."""
    return sum(1 for path in Path("/proc").glob("[0-9]*/cmdline") if read(path) == command)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_descendant_that_holds_the_output_cannot_delay_the_end(inside: RunInside) -> None:
    # Delayed, it would be out of time.
    assert inside("sleep 600 & echo done", limits=Limits(wall_s=60)).state is SandboxState.EXITED


def test_a_command_that_complies_with_term_is_a_timeout(inside: RunInside) -> None:
    result = inside(
        "trap 'echo bye; exit 0' TERM; while :; do sleep 0.1; done", limits=Limits(wall_s=UNTIL_READY_S, grace_s=60)
    )
    assert (result.state, result.limit, result.stdout.head) == (SandboxState.TIMEOUT, Limit.WALL, b"bye\n")


def test_a_command_that_ignores_term_is_killed_after_the_grace(inside: RunInside, slot: Slot) -> None:
    result = inside("trap '' TERM; while :; do sleep 1; done", limits=Limits(wall_s=UNTIL_READY_S, grace_s=0.3))
    assert (result.state, result.limit, result.returncode) == (SandboxState.FORCED_KILL, Limit.WALL, None)
    assert living_of(slot) == []


def test_a_stopped_sandbox_is_killed(inside: RunInside, slot: Slot) -> None:
    result = inside("kill -STOP -1; kill -STOP $$; sleep 99", limits=Limits(wall_s=UNTIL_READY_S, grace_s=0.3))
    assert (result.state, result.limit) == (SandboxState.FORCED_KILL, Limit.WALL)
    assert living_of(slot) == []


def test_killing_the_first_process_changes_nothing_or_ends_it_unsuccessfully(inside: RunInside, slot: Slot) -> None:
    result = inside("kill -9 1; kill -TERM 1; kill -STOP 1; kill -9 -1; exit 0", limits=Limits(wall_s=20))
    assert result.state in {SandboxState.EXITED, SandboxState.BROKEN}
    assert living_of(slot) == []


def test_a_fork_bomb_is_stopped_by_its_name(inside: RunInside, slot: Slot) -> None:
    limits = Limits(wall_s=60, processes=64)
    script = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    result = inside((*PYTHON, script), limits=limits)
    assert (result.state, result.limit) == (SandboxState.LIMIT, Limit.PROCESSES)
    assert living_of(slot) == []


def test_a_fork_bomb_that_gives_up_leaves_the_sandbox_usable(inside: RunInside) -> None:
    # No shell: dash ends where it cannot fork, whatever it still had to do.
    bomb = (
        "import os, signal\n"
        "try:\n"
        "    while True:\n"
        "        if os.fork() == 0:\n"
        "            signal.pause()\n"
        "except OSError:\n"
        "    print('alive', flush=True)\n"
    )
    result = inside((*PYTHON, bomb), limits=Limits(wall_s=60, processes=64))
    assert (result.state, result.limit, result.stdout.tail) in [
        (SandboxState.EXITED, None, b"alive\n"),
        (SandboxState.LIMIT, Limit.PROCESSES, b"alive\n"),
        (SandboxState.LIMIT, Limit.PROCESSES, b""),
    ]


BOMB: Final = """
import os, resource, time
print(resource.getrlimit(resource.RLIMIT_NPROC)[0], flush=True)
try:
    while os.fork():
        pass
except OSError:
    print("refused", flush=True)
time.sleep(60)
"""


@pytest.mark.root
def test_a_fork_bomb_is_stopped_by_a_control_group_where_no_rlimit_can_count_one_sandbox(
    slot: Slot, enforcement_of: Callable[[Slot], Enforcement]
) -> None:
    """What a normal user has below kernel 5.14, where a group can be made."""
    places = find_control_groups((Controller.PIDS,))[Controller.PIDS]
    if isinstance(places, str):
        pytest.skip(f"no control group of processes: {places}")
    mechanisms = {**enforcement_of(slot).mechanisms, Limit.PROCESSES: "pids cgroup"}
    enforcement = replace(enforcement_of(slot), mechanisms=mechanisms, groups=(places,))
    spec = SandboxSpec(argv=(*PYTHON, BOMB), env={}, cwd="/", limits=Limits(wall_s=60, grace_s=0.5, processes=64))
    result = run_sandbox(spec, slot=slot, enforcement=enforcement, capture_bytes=1 << 10)
    assert (result.state, result.limit) == (SandboxState.LIMIT, Limit.PROCESSES)
    assert result.stdout.head.endswith(b"refused\n")
    assert not result.stdout.head.startswith(b"64\n")


def test_the_process_limit_counts_this_sandbox_only(inside: RunInside) -> None:
    # Under our own uid a limit set outside of the namespace would count everything that we run.
    assert inside("for i in 1 2 3 4 5; do sleep 0.1 & done; wait", limits=Limits(processes=20, wall_s=20)).ok


def test_more_memory_than_allowed_ends_it_by_its_name(inside: RunInside) -> None:
    script = "b = []\nwhile True: b.append(bytearray(b'x' * (1 << 20)))"
    limits = Limits(wall_s=60, memory_bytes=200 << 20)
    result = inside(("/usr/bin/python3", "-c", script), limits=limits)
    assert (result.state, result.limit) == (SandboxState.LIMIT, Limit.MEMORY)
    assert result.peak_memory_bytes is not None
    assert result.peak_memory_bytes > 100 << 20


def test_memory_is_summed_over_processes(inside: RunInside) -> None:
    one = "x = bytearray(b'x' * (80 << 20)); import time; time.sleep(60)"
    script = f'for i in 1 2 3 4; do /usr/bin/python3 -c "{one}" & done; wait'
    result = inside(script, limits=Limits(wall_s=60, memory_bytes=200 << 20))
    # Where the kernel ends one process for it, the others go on until we have seen that.
    assert (result.state, result.limit) == (SandboxState.LIMIT, Limit.MEMORY)


SHARED: Final = """
import os, time
held = bytearray(b"x" * (120 << 20))
is_child = any(os.fork() == 0 for _ in range(4))
time.sleep(%d)
for _ in range(0 if is_child else 4):
    os.wait()
"""
"""Five processes that share most of what each has: 600 MiB resident, 120 in use."""


@pytest.mark.root
@pytest.mark.parametrize(("limit_mib", "reached", "sleep_s"), [(90, Limit.MEMORY, 60), (300, None, 2)])
def test_memory_is_watched_as_it_is_used_where_no_group_can_be_made(
    slot: Slot, enforcement_of: Callable[[Slot], Enforcement], limit_mib: int, reached: Limit | None, sleep_s: int
) -> None:
    """What a normal user has in every test above, and root only where there are no memory groups."""
    spec = SandboxSpec(
        argv=("/usr/bin/python3", "-I", "-S", "-c", SHARED % sleep_s),
        env={},
        cwd="/",
        limits=Limits(wall_s=60, memory_bytes=limit_mib << 20),
    )
    result = run_sandbox(spec, slot=slot, enforcement=replace(enforcement_of(slot), groups=()))
    assert (result.limit, result.ok) == (reached, reached is None)
    assert result.peak_memory_bytes is not None


def test_cpu_seconds_are_summed_over_processes_dead_ones_too(inside: RunInside) -> None:
    script = "while :; do sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done'; done"
    result = inside(script, limits=Limits(wall_s=60, cpu_s=0.5))
    assert (result.state, result.limit) == (SandboxState.LIMIT, Limit.CPU)


def test_too_many_descriptors_end_it_by_their_name(inside: RunInside) -> None:
    script = (
        "import os, time\nfds = []\n"
        "try:\n    while True: fds.append(os.open('/dev/null', 0))\nexcept OSError: time.sleep(60)"
    )
    result = inside(("/usr/bin/python3", "-c", script), limits=Limits(wall_s=60, files=256))
    assert (result.state, result.limit) == (SandboxState.LIMIT, Limit.FILES)


def test_endless_output_is_cut_counted_and_ends_it_by_its_name(inside: RunInside) -> None:
    sink = io.BytesIO()
    result = inside("yes", limits=Limits(wall_s=60, output_bytes=5_000_000), sink=sink)
    assert (result.state, result.limit) == (SandboxState.LIMIT, Limit.OUTPUT)
    assert len(sink.getvalue()) == 5_000_000
    assert len(result.stdout.tail) <= 64 * 1024


@pytest.mark.parametrize("capture", Capture)
def test_all_output_up_to_the_limit_arrives(inside: RunInside, capture: Capture) -> None:
    sink = io.BytesIO()
    result = inside("head -c 3000000 /dev/zero; echo end", sink=sink, capture=capture)
    assert (result.state, result.returncode) == (SandboxState.EXITED, 0)
    assert len(sink.getvalue()) == 3_000_004
    assert result.stdout.tail.endswith(b"end\n")


def test_ten_gigabytes_of_output_cost_no_memory(inside: RunInside) -> None:
    before = peak_kib()
    result = inside(
        "head -c 400000000 /dev/zero; head -c 10000000000 /dev/zero", limits=Limits(wall_s=60, output_bytes=400_000_000)
    )
    assert result.limit is Limit.OUTPUT
    assert peak_kib() - before < 32 * 1024


def peak_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def test_input_arrives_whole_and_a_closed_reader_is_no_failure(inside: RunInside) -> None:
    data = os.urandom(300_000)
    assert inside("cat", stdin=data).stdout.head == data
    assert inside("exit 0", stdin=data).ok


def test_an_exit_status_and_a_signal_come_back(inside: RunInside) -> None:
    assert inside("exit 7").returncode == 7
    assert inside("kill -SEGV $$").returncode == 128 + 11


def test_a_program_that_is_not_there_is_an_exit_status_not_a_success(inside: RunInside) -> None:
    result = inside(("/no/such/program",))
    assert (result.state, result.ok) == (SandboxState.EXITED, False)


def test_a_directory_that_is_not_there_is_a_failed_start(inside: RunInside) -> None:
    result = inside("true", cwd="/nowhere")
    assert (result.state, result.returncode) == (SandboxState.START_FAILURE, None)
    assert "/nowhere" in result.detail
