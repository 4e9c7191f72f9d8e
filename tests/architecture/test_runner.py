import os
import subprocess
import sys
from pathlib import Path

GROUPED = """
import os
from pathlib import Path

import pytest


@pytest.mark.xdist_group("measurement")
@pytest.mark.parametrize("number", range(12))
def test_a_sweep(number):
    (Path(__file__).parent / f"{number}.ran").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_tests_of_one_group_run_in_one_process(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    options = ["-n", "2", "--dist", "loadgroup", "-p", "tests.conftest", "-o", f"cache_dir={tmp_path}", "-q"]
    argv = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(argv, cwd=clone, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    workers = [path.read_text() for path in tmp_path.glob("*.ran")]
    assert len(workers) == 12
    assert len(set(workers)) == 1
