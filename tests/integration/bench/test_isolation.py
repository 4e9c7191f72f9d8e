"""`isolation: process` in a task: whole trials whose candidate runs apart from the oracle."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.errors import ConfigError

pytestmark = pytest.mark.needs("bwrap", "git")

Row = dict[str, Any]
RunTrial = Callable[..., Row]
USAGE = {"uncached_input": 100, "output": 10}
DONE = {"text": "Done.", "usage": USAGE}
HIDDEN = """import os
import subprocess
import unittest


class Hidden(unittest.TestCase):
    def test_add(self):
        command = [os.environ["FAIRTRIAL_CANDIDATE"], "python3", "-c", "import calc; print(calc.add(2, 3))"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual((done.returncode, done.stdout), (0, b"5\\n"))
"""
LIAR = "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef add(a, b):\n    return 0\n"


def bash(command: str) -> dict[str, Any]:
    return {"calls": [{"tool": "Bash", "input": {"command": command}}], "usage": USAGE}


def of(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


@pytest.fixture
def apart(trial: RunTrial, world: Path) -> RunTrial:
    """Run a trial whose oracle drives the candidate in another sandbox."""
    (world / "test_hidden.py").write_text(HIDDEN)
    return lambda *turns, **more: trial([*turns, DONE], isolation="process", verify="true", **more)


def test_a_solved_task_is_resolved_and_its_row_says_how_it_was_judged(apart: RunTrial) -> None:
    row = apart(bash("sed -i 's/a - b/a + b/' calc.py"))
    assert of(row, "resolved", "error_kind", "isolation") == (True, None, "process"), row["error_detail"]
    assert row["oracle_counts"] == {"n_passed": 1, "n_failed": 0, "n_skipped": 0}
    assert row["judge_uid"] == ("own" if os.geteuid() == 0 else "shared")


def test_code_that_lies_inside_a_test_process_has_none_to_lie_in(apart: RunTrial) -> None:
    lie = bash(f"cat > calc.py <<'E'\n{LIAR}E")
    assert of(apart(lie), "resolved", "error_kind") == (False, "oracle-failed")


def test_the_residual_risk_of_a_shared_process_is_as_the_docs_say(trial: RunTrial) -> None:
    row = trial([bash(f"cat > calc.py <<'E'\n{LIAR}E"), DONE], verify="true")
    assert of(row, "resolved", "isolation", "judge_uid") == (True, "shared", None)


def test_doing_nothing_fails(apart: RunTrial) -> None:
    assert of(apart(agent="nop"), "resolved", "error_kind") == (False, "oracle-failed")


def test_a_file_over_the_tree_is_refused_where_the_tree_is_elsewhere(apart: RunTrial) -> None:
    files = [{"source": "test_hidden.py", "target": "tests/test_up.py", "into": "workspace"}]
    with pytest.raises(ConfigError, match="keeps the oracle out of the workspace"):
        apart(oracle={"command": "true", "files": files})
