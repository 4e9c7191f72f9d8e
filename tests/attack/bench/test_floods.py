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
    assert size_of(row["directory"]) < 256 * MIB
    assert peak_kib() - before < 192 * 1024


def test_two_hundred_thousand_files_within_the_limits_are_credited_and_judged(trial: RunTrial) -> None:
    script = (
        "python3 -I -S -c 'import os\n"
        "for d in range(200):\n"
        '    os.mkdir(f"d{d}")\n'
        "    for n in range(1000):\n"
        '        os.close(os.open(f"d{d}/f{n}", os.O_CREAT | os.O_WRONLY))\'\n'
    )
    row = trial(agent="nop", cheat=script, timeout_s=600)
    assert (row["resolved"], row["error_kind"], row["diff_files"]) == (False, "oracle-failed", 200_000)
    assert size_of(row["directory"]) < 512 * MIB
