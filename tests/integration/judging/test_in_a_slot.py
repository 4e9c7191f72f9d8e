"""What judges must withstand, once more in a worker that owns its mount namespace."""

import subprocess
import sys
from pathlib import Path

import pytest

from fairtrial.host.slot import slot_argv

pytestmark = [pytest.mark.needs("bwrap", "slot"), pytest.mark.timeout(600)]

TESTS = (
    "tests/attack/test_judging_staging.py",
    "tests/attack/test_judging_layers.py",
    "tests/attack/test_judging_apart.py::test_an_honest_solution_passes",
)


def test_what_is_left_in_a_tree_harms_no_judge_in_a_slot_either(clone: Path) -> None:
    options = ["-q", "-n0", "-p", "no:randomly", "-o", "cache_dir=.cache/pytest-slot"]
    argv = slot_argv([sys.executable, "-m", "pytest", *options, *TESTS], 8)
    done = subprocess.run(argv, cwd=clone, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
