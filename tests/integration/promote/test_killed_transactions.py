"""A transaction that is killed at any call of the system leaves a whole tree, or a file that says how to get one."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(500)

HERE = Path(__file__).parent
SHM = Path("/dev/shm")


@pytest.fixture(params=["disk", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "disk":
        yield tmp_path
        return
    if not os.access(SHM, os.W_OK):
        pytest.skip("/dev/shm cannot be written")
    made = Path(tempfile.mkdtemp(prefix="ft-", dir=SHM))
    yield made
    shutil.rmtree(made)


def drive(directory: Path, what: str) -> list[dict[str, Any]]:
    argv = [sys.executable, str(HERE / "kill_driver.py"), str(directory), what]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=480)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_kill_at_any_call_leaves_a_whole_tree_or_says_what_to_do(directory: Path) -> None:
    found = drive(directory, "publish")
    assert found[-1]["through"]
    assert found[-1]["new"] == 3
    assert not found[-1]["has_recovery"]
    mixed = [each for each in found if (each["old"], each["new"]) not in {(3, 0), (0, 3)}]
    assert mixed, "no kill came between two exchanges: the test does not test"
    for each in found:
        assert each["old"] + each["new"] == 3, each
        assert each["has_recovery"] or each not in mixed, each
        assert each["unnamed"] == [], each
        assert (each["old_after"], each["new_after"]) in {(3, 0), (0, 3)}, each
        assert each["left_after"] == [], each
    assert {(each["old_after"], each["by_hand"]) for each in mixed} == {(3, True), (3, False)}


def test_a_kill_at_any_call_of_what_undoes_a_transaction_leaves_the_old_tree_or_says_how_to_get_it(
    directory: Path,
) -> None:
    found = drive(directory, "undo")
    assert found[-1]["through"]
    assert (found[-1]["old"], found[-1]["new"], found[-1]["has_recovery"]) == (3, 0, False)
    # Two files are put back: kills came before, between and after that.
    assert {(each["old"], each["new"]) for each in found} == {(1, 2), (2, 1), (3, 0)}
    for each in found:
        assert each["has_recovery"] or each["old"] == 3, each
        assert each["unnamed"] == [], each
        assert (each["old_after"], each["new_after"], each["left_after"]) == (3, 0, []), each


def test_a_recovery_that_is_killed_at_any_call_can_be_run_again(directory: Path) -> None:
    found = drive(directory, "recover")
    assert found[-1]["through"]
    assert len(found) > 10
    for each in found:
        assert (each["old_after"], each["left_after"]) == (3, []), each
