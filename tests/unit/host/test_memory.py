import sys

import pytest

from fairtrial.host.memory import believe_peak_memory, read_own_peak_bytes
from fairtrial.host.process import run

MIB = 1024 * 1024


def test_a_small_child_is_not_reported_with_the_memory_of_the_harness(env: dict[str, str]) -> None:
    ballast = bytearray(80 * MIB)
    ballast[::4096] = b"x" * len(ballast[::4096])
    assert read_own_peak_bytes() > 80 * MIB
    result = run(["/bin/true"], env=env, timeout_s=10)
    assert result.peak_memory_bytes is None
    assert result.peak_memory_reason is not None
    assert "below the harness's own peak of" in result.peak_memory_reason
    assert result.peak_memory_below_bytes is not None
    assert 0 < result.peak_memory_below_bytes <= read_own_peak_bytes() + MIB


def test_a_child_larger_than_the_harness_is_reported_about_right(env: dict[str, str]) -> None:
    size = read_own_peak_bytes() + 200 * MIB
    script = f"x = bytearray({size}); x[::4096] = b'x' * len(x[::4096])"
    result = run([sys.executable, "-I", "-S", "-c", script], env=env, timeout_s=60)
    assert result.ok
    assert result.peak_memory_reason is None
    assert result.peak_memory_bytes == pytest.approx(size + 10 * MIB, abs=20 * MIB)


@pytest.mark.parametrize(("reported", "believed"), [(10, False), (11, False), (12, True)])
def test_a_peak_counts_only_when_it_is_clearly_above_our_own(reported: int, *, believed: bool) -> None:
    peak, reason = believe_peak_memory(reported * MIB, floor_bytes=10 * MIB)
    assert (peak is not None) is believed
    assert (reason is None) is believed
