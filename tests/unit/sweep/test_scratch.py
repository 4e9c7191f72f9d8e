"""What an earlier pass left is ended and removed; what is not known to be its own is left alone."""

from pathlib import Path

import pytest

from fairtrial.errors import HostError, UsageError
from fairtrial.host.mounts import FileSystem
from fairtrial.sweep import scratch as scratch_module
from fairtrial.sweep.scratch import LONGEST_PATH, end_earlier, open_scratch, scratch_base

SWEEP = "loop-20261130T000000Z-abcdef"


def test_a_scratch_directory_of_the_sweep_in_another_place_is_removed(tmp_path: Path) -> None:
    earlier = tmp_path / "ft-0123456789"
    with open_scratch(earlier, SWEEP, keep=True):
        (earlier / "work").mkdir()
    end_earlier(SWEEP, earlier, now=tmp_path / "ft-now")
    assert not earlier.exists()


def test_a_directory_that_only_sweep_json_says_to_be_ours_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "ft-0123456789"
    precious.mkdir()
    end_earlier(SWEEP, precious, now=tmp_path / "ft-now")
    with open_scratch(tmp_path / "ft-other", "loop-20261130T000001Z-000000", keep=True) as other:
        pass
    end_earlier(SWEEP, other, now=tmp_path / "ft-now")
    assert precious.exists()
    assert other.exists()


def test_the_scratch_directory_of_a_living_sweep_is_refused(tmp_path: Path) -> None:
    with open_scratch(tmp_path / "ft-0123456789", SWEEP, keep=False) as alive:
        with pytest.raises(UsageError, match=f"a copy of a directory whose sweep is alive: {alive}"):
            end_earlier(SWEEP, alive, now=tmp_path / "ft-now")
        assert alive.exists()
    assert not alive.exists()


def test_a_place_that_cannot_hold_layers_and_sockets_is_refused_with_the_option(
    public_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = public_path / ("x" * (LONGEST_PATH - len(str(public_path)) - 1))
    longer = longest.with_name(f"{longest.name}x")
    for path in (longest, longer):
        path.mkdir()
    (public_path / "file").write_text("")
    assert scratch_base(longest) == longest
    for path, words in ((longer, "over 60 bytes"), (public_path / "file", "not a writable directory")):
        with pytest.raises(HostError, match=rf"{words}; name .* with --scratch DIR"):
            scratch_base(path)
    network = FileSystem(type="nfs4", options="rw", is_network=True)
    monkeypatch.setattr(scratch_module, "filesystem_of", lambda _path: network)
    with pytest.raises(HostError, match=r"is on nfs4; name a local one with --scratch DIR"):
        scratch_base(longest)
