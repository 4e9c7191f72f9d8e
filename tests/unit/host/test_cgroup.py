import os
from pathlib import Path

import pytest

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
