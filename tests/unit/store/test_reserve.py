import errno
import os
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.store.layout import Results
from fairtrial.store.reserve import RESERVE_BYTES, is_low, keeping_reserve, prepare_reserve, release_reserve


class Write:
    """A write that fails some times with the given error."""

    def __init__(self, number: int, n_failures: int) -> None:
        self.number = number
        self.n_failures = n_failures

    def __call__(self) -> str:
        if self.n_failures:
            self.n_failures -= 1
            raise OSError(self.number, os.strerror(self.number))
        return "written"


def test_a_place_where_no_reserve_can_be_made_is_named_with_the_remedy(tmp_path: Path) -> None:
    results = Results(root=tmp_path)
    results.reserve.mkdir()
    with pytest.raises(HostError, match=rf"{results.reserve}: Is a directory; make it writable again.*resume"):
        prepare_reserve(results)


def test_the_reserve_takes_real_space_and_gives_it_back(tmp_path: Path) -> None:
    results = Results(root=tmp_path)
    prepare_reserve(results)
    prepare_reserve(results)
    status = results.reserve.stat()
    assert status.st_size == RESERVE_BYTES
    assert status.st_blocks * 512 >= RESERVE_BYTES
    assert release_reserve(results)
    assert not release_reserve(results)


def test_low_space_is_a_matter_of_the_watermark(tmp_path: Path) -> None:
    assert is_low(tmp_path, watermark_bytes=2**62)
    assert not is_low(tmp_path, watermark_bytes=0)


def test_a_reserve_that_cannot_be_made_for_another_reason_is_explained(tmp_path: Path) -> None:
    results = Results(root=tmp_path)
    results.reserve.symlink_to("elsewhere")
    with pytest.raises(HostError, match="symbolic links"):
        prepare_reserve(results)
    with pytest.raises(HostError, match="No such file"):
        prepare_reserve(Results(root=tmp_path / "absent"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_costs_the_reserve_once(tmp_path: Path, number: int) -> None:
    results = Results(root=tmp_path)
    prepare_reserve(results)
    assert keeping_reserve(results, Write(number, 0)) == "written"
    assert results.reserve.exists()
    assert keeping_reserve(results, Write(number, 1)) == "written"
    assert not results.reserve.exists()
    with pytest.raises(HostError, match="no space left"):
        keeping_reserve(results, Write(number, 1))


def test_a_write_that_fails_with_the_reserve_given_up_is_a_host_error(tmp_path: Path) -> None:
    results = Results(root=tmp_path)
    prepare_reserve(results)
    with pytest.raises(HostError, match="no space left"):
        keeping_reserve(results, Write(errno.ENOSPC, 2))


def test_another_fault_does_not_cost_the_reserve(tmp_path: Path) -> None:
    results = Results(root=tmp_path)
    prepare_reserve(results)
    for number in (errno.EIO, errno.EROFS):
        with pytest.raises(HostError, match=os.strerror(number)):
            keeping_reserve(results, Write(number, 1))
    assert results.reserve.exists()
