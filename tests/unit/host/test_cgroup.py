import os
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.host.cgroup import find_memory_groups
from fairtrial.host.limits import probe_limits
from fairtrial.host.slot import Slot
from fairtrial.model.sandbox import Limit


def test_an_ordinary_directory_is_no_control_group(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("1:memory:/\n0::/\n")
    (tmp_path / "root" / "memory").mkdir(parents=True)
    assert find_memory_groups(tmp_path / "root", own) is None
    assert list((tmp_path / "root" / "memory").iterdir()) == []


def test_a_group_measures_and_goes_away() -> None:
    groups = find_memory_groups()
    if groups is None:
        pytest.skip("no memory control group can be made here")
    group = groups.make(64 << 20)
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
    with pytest.raises(HostError, match=r"cannot enforce: processes; .* --allow-unenforced"):
        probe_limits(own)
    left = probe_limits(own, allow_unenforced=frozenset({Limit.PROCESSES})).mechanisms
    assert set(Limit) - set(left) == {Limit.PROCESSES}


def test_groups_that_were_left_long_ago_are_removed_and_young_ones_are_not() -> None:
    groups = find_memory_groups()
    if groups is None:
        pytest.skip("no memory control group can be made here")
    old, young = groups.make(1 << 26), groups.make(1 << 26)
    try:
        os.utime(old.path, (1, 1))
        assert find_memory_groups() == groups
        assert (old.path.exists(), young.path.exists()) == (False, True)
    finally:
        young.remove()
        old.remove()
