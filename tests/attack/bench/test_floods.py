"""More of something than a machine has, each through a whole trial: it ends by its name, and costs us little."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.needs("bwrap", "git"), pytest.mark.timeout(600)]

RunTrial = Callable[..., dict[str, Any]]
MIB = 1 << 20


def peak_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("line", ["", "| tr '\\0' '\\n'", "| tr '\\0' '\\377'"], ids=["zeros", "lines", "no text"])
def test_ten_gigabytes_of_output_cost_neither_disk_nor_memory(trial: RunTrial, line: str) -> None:
    before = peak_kib()
    row = trial(agent="nop", cheat=f"head -c 10000000000 /dev/zero {line}")
    assert (row["resolved"], row["error_kind"]) == (False, "limit-exceeded")
    assert "output" in row["error_detail"]
    assert size_of(row["directory"]) < 9 * MIB
    assert peak_kib() - before < 192 * 1024
