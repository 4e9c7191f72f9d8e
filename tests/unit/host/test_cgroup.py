import os
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.host.cgroup import ControlGroups, Controller, find_control_groups
from fairtrial.host.limits import probe_limits
from fairtrial.host.slot import Slot
from fairtrial.model.sandbox import Limit, Limits

LIMITS = Limits(memory_bytes=64 << 20, processes=20)


def find(controller: Controller) -> ControlGroups:
    found = find_control_groups((controller,))[controller]
    if isinstance(found, str):
        pytest.skip(f"no control group of {controller}: {found}")
    return found


def test_an_ordinary_directory_is_no_control_group(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("2:pids:/\n1:memory:/\n0::/\n")
    for controller in Controller:
        (tmp_path / "root" / controller).mkdir(parents=True)
    found = find_control_groups(tuple(Controller), tmp_path / "root", own)
    assert set(found.values()) == {"in our own group of version 1 none can be made"}
    assert [list((tmp_path / "root" / controller).iterdir()) for controller in Controller] == [[], []]


@pytest.mark.parametrize(
    ("handed_out", "reasons"),
    [
        ("cpuset cpu\n", {"our own group of version 2 hands none out"}),
        ("memory pids\n", {"in our own group of version 2 none can be made"}),
        (None, {"our own group of version 2 hands none out"}),
    ],
)
def test_a_group_of_version_2_counts_where_it_hands_the_controller_out(
    tmp_path: Path, handed_out: str | None, reasons: set[str]
) -> None:
    """A directory of these names, which is no control group, cannot make any."""
    (tmp_path / "own").write_text("0::/a.scope\n")
    scope = tmp_path / "a.scope"
    scope.mkdir()
    if handed_out is not None:
        (scope / "cgroup.subtree_control").write_text(handed_out)
    assert set(find_control_groups(tuple(Controller), tmp_path, tmp_path / "own").values()) == reasons


def test_one_group_of_version_2_has_both_limits(tmp_path: Path) -> None:
    """What is written to it; that a kernel of version 2 obeys is not shown here."""
    places = ControlGroups(parent=tmp_path, version=2, controllers=frozenset(Controller))
    group = places.make(LIMITS)
    written = {path.name: path.read_text() for path in group.path.iterdir()}
    assert written == {"memory.max": str(64 << 20), "pids.max": "21"}
    assert group.join.name == "cgroup.procs"


def test_what_a_group_of_version_2_tells_is_read(tmp_path: Path) -> None:
    """In the form in which the kernel's documentation has it."""
    group = ControlGroups(parent=tmp_path, version=2, controllers=frozenset(Controller)).make(LIMITS)
    (group.path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert (group.n_killed(), group.peak_bytes()) == (2, None)
    (group.path / "memory.peak").write_text("4096\n")
    assert group.peak_bytes() == 4096


def test_a_kernel_without_control_groups_says_so(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("")
    assert find_control_groups((Controller.PIDS,), tmp_path, tmp_path / "own") == {
        Controller.PIDS: "this kernel has none"
    }


def test_a_group_measures_and_goes_away() -> None:
    group = find(Controller.MEMORY).make(LIMITS)
    assert group.join.exists()
    assert group.n_killed() == 0
    assert group.peak_bytes() == 0
    group.remove()
    assert not group.path.exists()
    group.remove()


def test_every_limit_has_a_mechanism_here(slot: Slot) -> None:
    assert set(probe_limits(slot).mechanisms) == set(Limit)


@pytest.mark.parametrize("release", ["5.13.19-generic", "4.18.0-553.el8_10.x86_64"])
def test_an_older_kernel_counts_the_processes_of_a_uid_and_so_only_of_one_that_is_nobody_elses(
    slot: Slot, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", release, "#1", "x86_64")))
    other, own = replace(slot, uid=os.geteuid() + 1), replace(slot, uid=os.geteuid())
    assert probe_limits(other).mechanisms[Limit.PROCESSES] == "rlimit of the slot's uid"
    assert probe_limits(other).sets_process_rlimit
    places = find_control_groups((Controller.PIDS,))[Controller.PIDS]
    if isinstance(places, str):
        with pytest.raises(HostError, match=r"cannot enforce: processes; .* --allow-unenforced"):
            probe_limits(own)
        found = probe_limits(own, allow_unenforced=frozenset({Limit.PROCESSES}))
        assert set(Limit) - set(found.mechanisms) == {Limit.PROCESSES}
    else:
        found = probe_limits(own)
        assert found.mechanisms[Limit.PROCESSES] == f"pids cgroup v{places.version}"
        assert places in found.groups
    assert not found.sets_process_rlimit


def test_groups_that_were_left_long_ago_are_removed_and_young_ones_are_not() -> None:
    groups = find(Controller.MEMORY)
    old, young = groups.make(LIMITS), groups.make(LIMITS)
    try:
        os.utime(old.path, (1, 1))
        assert find(Controller.MEMORY) == groups
        assert (old.path.exists(), young.path.exists()) == (False, True)
    finally:
        young.remove()
        old.remove()
