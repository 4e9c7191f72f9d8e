"""`fairtrial check`: what it tries, what it notes, and what later sweeps make of the note."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(600), pytest.mark.xdist_group("bench")]

Done = subprocess.CompletedProcess[str]
FLAKY = """import os
import unittest


class Linear(unittest.TestCase):
    def test_chance(self):
        self.assertTrue(os.urandom(1)[0] % 2)
        import tally.report
"""


def fairtrial(*arguments: object) -> Done:
    command = [sys.executable, "-m", "fairtrial", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, env=os.environ)


def check(example: Path, out: Path, *more: object) -> Done:
    return fairtrial("check", example / "tasks.yaml", "--only", "linear", "--out", out, *more)


def bench(example: Path, out: Path) -> dict[str, Any]:
    done = fairtrial(
        *("bench", "--tasks", example / "tasks.yaml", "--only", "linear", "--arms", "baseline", "--runs", 1, "--json"),
        *("--agent", "bash-agent", "--model", "claude-sonnet-4-5", "--script", example / "script.yaml", "--out", out),
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["exit_not_tried"] == []
    return report


@pytest.fixture
def example(tmp_path: Path) -> Path:
    directory = tmp_path / "ex"
    assert fairtrial("init", directory).returncode == 0
    return directory


def test_controls_that_held_are_believed_until_a_cheat_changes(example: Path, tmp_path: Path) -> None:
    done = check(example, tmp_path / "c", "--runs", 2, "--json")
    assert done.returncode == 0, done.stderr
    controls = {each["control"]: (each["held"], each["runs"]) for each in json.loads(done.stdout)["controls"]}
    assert controls == {
        "nop": ("held", 1),
        "reference": ("held", 2),
        "cheat-forges-the-library": ("held", 1),
        "cheat-exit-0-at-import": ("held", 1),
    }
    assert "NO FRESH CONTROLS" not in (tmp_path / "c" / "report.md").read_text(), "it is what checks them"
    assert bench(example, tmp_path / "r1")["remarks"]["without_controls"] == {}
    cheat = example / "cheats" / "linear-forges-the-library.sh"
    cheat.write_text(cheat.read_text() + "\n")
    assert bench(example, tmp_path / "r2")["remarks"]["without_controls"] == {"linear": "stale"}
    assert "NO FRESH CONTROLS" in (tmp_path / "r2" / "report.md").read_text()


def test_a_flaky_oracle_is_named(example: Path, tmp_path: Path) -> None:
    (example / "oracles" / "test_linear.py").write_text(FLAKY)
    tasks = example / "tasks.yaml"
    text = tasks.read_text()
    assert "expect_tests: 2" in text
    tasks.write_text(text.replace("expect_tests: 2", "expect_tests: 1"))
    done = check(example, tmp_path / "c", "--runs", 24)  # all alike: once in eight million
    assert done.returncode == 1, done.stderr
    assert "FLAKY ORACLE: linear: flaky: the reference was resolved" in " ".join(done.stdout.split())


def test_a_task_without_a_reference_is_not_held_and_said_so(example: Path, tmp_path: Path) -> None:
    tasks = example / "tasks.yaml"
    tasks.write_text(tasks.read_text().replace("    reference: references/linear.patch\n", ""))
    done = check(example, tmp_path / "c")
    assert done.returncode == 5, done.stderr
    assert "No reference, so it is not known whether they can be solved: linear." in " ".join(done.stdout.split())
    note = json.loads((example / "tasks.controls.json").read_text())
    assert note["tasks"]["linear"]["status"] == "incomplete"


def test_a_report_says_which_task_was_not_tried_with_code_that_leaves(example: Path, tmp_path: Path) -> None:
    (example / "references" / "linear.patch").write_text("--- a/README.md\n+++ b/README.md\n")
    tasks = example / "tasks.yaml"
    tasks.write_text(tasks.read_text().replace("  - id: linear\n", "  - id: linear\n    setup: exit 1\n"))
    assert check(example, tmp_path / "c", "--runs", 1).returncode == 5
    assert json.loads((tmp_path / "c" / "report.json").read_text())["exit_not_tried"] == ["linear"]
    assert "NOT TRIED with code that ends its process" in (tmp_path / "c" / "report.md").read_text()
    assert json.loads((example / "tasks.controls.json").read_text())["tasks"]["linear"]["not_tried"] == [
        "cheat-exit-0-at-import"
    ]


def test_a_check_that_an_outage_stops_notes_nothing(example: Path, tmp_path: Path) -> None:
    tasks = example / "tasks.yaml"
    tasks.write_text(tasks.read_text().replace("  - id: linear\n", "  - id: linear\n    setup: exit 1\n"))
    done = check(example, tmp_path / "c", "--runs", 6, "--json")
    assert done.returncode == 5, done.stderr
    assert "trials in a row ended as in an outage" in done.stderr
    controls = json.loads(done.stdout)["controls"]
    assert {each["held"] for each in controls} == {"unknown"}
    assert sum(each["runs"] for each in controls) == 0
    assert not (example / "tasks.controls.json").exists()
