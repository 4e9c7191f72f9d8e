"""Slots: a worker as PID 1 of its own namespaces, and sandboxes under the slot's uid."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.host.files import remove_tree
from fairtrial.host.slot import SlotId, choose_slot_id, open_slot, parse_id_map, slot_argv

Eventually = Callable[[Callable[[], bool]], None]

WORKER = """
import json, os, sys
from pathlib import Path
from fairtrial.host.limits import probe_limits
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import open_slot
from fairtrial.model.sandbox import Bind, Limits, SandboxSpec

def say(**facts):
    print(json.dumps(facts), flush=True)

scratch = Path(sys.argv[1])
slot = open_slot(scratch)

def inside(script, **changes):
    spec = SandboxSpec(argv=("sh", "-c", script), env={"PATH": "/usr/bin"}, cwd="/", **changes)
    return run_sandbox(spec, slot=slot, enforcement=probe_limits(slot), capture_bytes=1 << 16)

"""


@pytest.fixture
def worker(public_path: Path, clone: Path) -> Callable[[str], dict[str, object]]:
    """Run a worker's script in a slot and return what it said."""

    def run(script: str) -> dict[str, object]:
        argv = slot_argv([sys.executable, "-c", WORKER + script, str(public_path)], 3)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        done = subprocess.run(argv, cwd=clone, env=env, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        facts: dict[str, object] = json.loads(done.stdout)
        return facts

    return run


@pytest.mark.needs("slot")
def test_a_worker_is_the_first_process_of_its_namespace_under_our_uid(
    worker: Callable[[str], dict[str, object]],
) -> None:
    facts = worker(
        "say(pid=os.getpid(), uid=os.getuid(), me=os.readlink('/proc/self'), mounts=slot.mounts, slot=slot.uid)"
    )
    assert (facts["pid"], facts["uid"], facts["me"], facts["mounts"]) == (1, os.getuid(), "1", True)
    assert facts["slot"] != 0
    assert (facts["slot"] == os.getuid()) is (os.getuid() != 0)


@pytest.mark.needs("slot")
def test_programs_of_the_slot_have_no_capability_and_no_other_group(worker: Callable[[str], dict[str, object]]) -> None:
    facts = worker(
        "import subprocess\n"
        "text = subprocess.run(slot.argv(['/bin/cat', '/proc/self/status']), capture_output=True, text=True).stdout\n"
        "fields = dict(line.split(':', 1) for line in text.splitlines())\n"
        "ids = {'uid': fields['Uid'].split(), 'slot': str(slot.uid)}\n"
        "say(eff=fields['CapEff'], prm=fields['CapPrm'], amb=fields['CapAmb'], **ids)"
    )
    assert {int(str(facts[name]), 16) for name in ("eff", "prm", "amb")} == {0}
    assert set(facts["uid"]) == {facts["slot"]}  # type: ignore[call-overload]


@pytest.mark.root
@pytest.mark.needs("slot")
def test_a_worker_of_root_has_another_uid_for_its_judge(worker: Callable[[str], dict[str, object]]) -> None:
    facts = worker(
        "import subprocess\n"
        "def ask(*command): return subprocess.run(slot.judge.argv(command), capture_output=True, text=True)\n"
        "say(slot=slot.uid, judge=slot.judge.uid, runs=int(ask('/usr/bin/id', '-u').stdout),\n"
        "    owns=slot.judge.root.stat().st_uid, enters=ask('/bin/ls', str(slot.root)).returncode == 0,\n"
        "    signals=ask('/bin/kill', '-0', '1').returncode == 0)"
    )
    judge = facts["judge"]
    assert judge not in {0, facts["slot"]}
    assert (facts["runs"], facts["owns"], facts["enters"], facts["signals"]) == (judge, judge, False, False)


@pytest.mark.needs("bwrap", "slot")
def test_a_toolchain_below_a_closed_directory_is_reached(
    worker: Callable[[str], dict[str, object]], public_path: Path
) -> None:
    tool = public_path / "home" / "tools" / "hello"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho hello\n")
    tool.chmod(0o755)
    tool.parent.parent.chmod(0o700)
    facts = worker(
        f"bind = Bind(source=Path({str(tool.parent)!r}), target='/opt/tools')\n"
        "result = inside('/opt/tools/hello', binds=(bind,))\n"
        "say(out=result.stdout.head.decode(), left=len(list(slot.root.iterdir())))"
    )
    assert facts == {"out": "hello\n", "left": 0}


SHOWN = """
from contextlib import ExitStack
from fairtrial.host.kernel import detach_mount, mount
from fairtrial.host.unplaced import show_unplaced
home = Path({home!r})
tool, held = home / 'tools' / 'hello', ExitStack()
"""


@pytest.mark.needs("bwrap", "slot")
def test_a_program_that_is_shown_without_its_place_runs_cannot_be_written_and_leaves_nothing(
    worker: Callable[[str], dict[str, object]], public_path: Path
) -> None:
    tool = public_path / "home" / "tools" / "hello"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho >>$0; grep -c /home/tools /proc/self/mountinfo; cat $0 | wc -l\n")
    tool.chmod(0o755)
    tool.parent.parent.chmod(0o700)
    facts = worker(
        SHOWN.format(home=str(public_path / "home"))
        + "shown = [show_unplaced(each, slot, held) for each in (tool, tool.parent)]\n"
        "binds = tuple(Bind(source=source, target=f'/opt/{n}') for n, source in enumerate(shown))\n"
        "scripts = [f'exec 2>/dev/null; {at}' for at in ('/opt/0', '/opt/1/hello')]\n"
        "said = [inside(script, binds=binds).stdout.head.decode() for script in scripts]\n"
        "held.close()\n"
        "neutral = [each.is_relative_to(slot.root) for each in shown]\n"
        "say(said=said, neutral=neutral, left=len(list(slot.root.iterdir())))"
    )
    assert facts == {"said": ["0\n2\n"] * 2, "neutral": [True, True], "left": 0}


@pytest.mark.needs("slot")
def test_what_an_overlay_would_not_show_is_shown_where_it_is(
    worker: Callable[[str], dict[str, object]], public_path: Path
) -> None:
    (public_path / "home" / "tools" / "hello").mkdir(parents=True)
    (public_path / "home" / "link").symlink_to(public_path / "home" / "tools")
    facts = worker(
        SHOWN.format(home=str(public_path / "home")) + "places = [tool.parent, home / 'link', home / 'nowhere']\n"
        "mount('tmpfs', tool, '')\n"
        "shown = [show_unplaced(each, slot, held) for each in places]\n"
        "detach_mount(tool)\n"
        "say(kept=[found == each for found, each in zip(shown, places)], left=len(list(slot.root.iterdir())))"
    )
    assert facts == {"kept": [True, True, True], "left": 0}


@pytest.mark.needs("bwrap", "slot")
def test_a_sandbox_starts_whatever_numbers_processes_have_outside(worker: Callable[[str], dict[str, object]]) -> None:
    # Bubblewrap looks its child up in /proc: with another namespace's /proc there it found a stranger, or nobody.
    facts = worker(
        "import subprocess\n"
        "for _ in range(300): subprocess.run(['/bin/true'])\n"
        "say(states=[inside('exit 0').state for _ in range(5)])"
    )
    assert facts["states"] == ["exited"] * 5


@pytest.mark.needs("bwrap", "slot")
def test_a_worker_that_is_killed_takes_its_sandbox_with_it(
    public_path: Path, clone: Path, eventually: Eventually
) -> None:
    mark = f"sleep 98.{os.getpid()}"
    script = WORKER + f"inside('{mark} & setsid {mark} & wait')"
    kill_once_two_run(mark, [script, str(public_path)], clone, eventually)


@pytest.mark.needs("bwrap", "slot")
def test_what_is_shown_without_its_place_is_gone_with_a_worker_that_is_killed(
    public_path: Path, clone: Path, eventually: Eventually
) -> None:
    tool = public_path / "home" / "tools" / "hello"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\nexec sleep $1\n")
    tool.chmod(0o755)
    mark = f"sleep 97.{os.getpid()}"
    script = WORKER + SHOWN.format(home=str(public_path / "home"))
    script += (
        "shown = show_unplaced(tool, slot, held), show_unplaced(tool.parent, slot, held)\n"
        "assert tool not in shown and tool.parent not in shown\n"
        "binds = tuple(Bind(source=source, target=f'/opt/{n}') for n, source in enumerate(shown))\n"
        f"inside('setsid /opt/0 {mark[6:]} & /opt/1/hello {mark[6:]}', binds=binds)\n"
    )
    kill_once_two_run(mark, [script, str(public_path)], clone, eventually)
    assert str(public_path) not in Path("/proc/self/mountinfo").read_text()
    assert sorted(path.name for path in tool.parent.iterdir()) == ["hello"]
    for root in [path for path in public_path.iterdir() if path.name != "home"]:
        remove_tree(root)  # nothing is mounted there: what a sweep clears away of its scratch directory can be
    assert [path.name for path in public_path.iterdir()] == ["home"]


def kill_once_two_run(mark: str, worker: list[str], clone: Path, eventually: Eventually) -> None:
    """Start a worker, kill its launcher once two processes of that command run, and wait until none does."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    argv = slot_argv([sys.executable, "-c", *worker], 3)
    with subprocess.Popen(argv, cwd=clone, env=env, start_new_session=True) as launcher:
        eventually(lambda: n_running(mark) == 2)
        os.kill(launcher.pid, signal.SIGKILL)
    eventually(lambda: n_running(mark) == 0)


def n_running(command: str) -> int:
    wanted = command.replace(" ", "\0").encode() + b"\0"
    return sum(1 for path in Path("/proc").glob("[0-9]*/cmdline") if read(path) == wanted)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.needs("slot")
def test_an_exit_code_comes_back_through_the_launcher() -> None:
    assert subprocess.run(slot_argv(["/bin/sh", "-c", "exit 7"], 0), check=False).returncode == 7


def test_a_slots_id_is_one_that_is_mapped_and_never_root() -> None:
    everything, few, one = (parse_id_map(text) for text in ("0 0 4294967295\n", "0 100000 65536\n", "0 1000 1\n"))
    assert choose_slot_id(2, everything, sweep_pid=1) == 1_990_000_066
    assert choose_slot_id(63, everything, sweep_pid=999_999) < choose_slot_id(
        0, everything, sweep_pid=0, use=SlotId.JUDGE
    )
    assert choose_slot_id(63, everything, sweep_pid=999_999, use=SlotId.JUDGE) < 1 << 31
    assert choose_slot_id(2, few, sweep_pid=1, use=SlotId.JUDGE) == 61_066
    assert choose_slot_id(2, few, sweep_pid=1) == 61_002
    with pytest.raises(HostError, match="map more ids"):
        choose_slot_id(0, one, sweep_pid=1)


def test_sweeps_at_the_same_time_have_different_ids() -> None:
    everything = parse_id_map("0 0 4294967295\n")
    ids = {choose_slot_id(index, everything, sweep_pid=pid) for pid in (100, 101, 102) for index in range(64)}
    assert len(ids) == 3 * 64


@pytest.mark.root
def test_a_scratch_directory_that_others_cannot_enter_is_refused(public_path: Path) -> None:
    public_path.chmod(0o700)
    with pytest.raises(HostError, match="--scratch"):
        open_slot(public_path)
