"""What a row says of how a change was judged: flags, its own tests, and nothing that the oracle wrote."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("bwrap", "git")

Row = dict[str, Any]
RunTrial = Callable[..., Row]
USAGE = {"uncached_input": 100, "output": 10}
DONE = {"text": "Done.", "usage": USAGE}
MEND = "sed -i 's/a - b/a + b/' calc.py"
LOUD = """import sys
import unittest

sys.stdout.write("what the oracle " + "says\\n" * 3)
sys.stderr.write("what the oracle " + "complains of\\n")


class Hidden(unittest.TestCase):
    def test_add(self):
        import calc

        self.assertEqual(calc.add(2, 3), 5, "what the oracle " + "expects")
"""


def bash(command: str) -> dict[str, Any]:
    return {"calls": [{"tool": "Bash", "input": {"command": command}}], "usage": USAGE}


def of(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_files_that_act_by_being_there_are_flagged_and_edited_tests_have_a_field_of_their_own(trial: RunTrial) -> None:
    loaded = ["conftest.py", "sitecustomize.py", "x.pth", "pytest.ini", "Makefile", ".githooks/pre-commit", ".mcp.json"]
    make = " && ".join(f"echo x > {name}" for name in loaded)
    package = """printf '{"scripts": {"test": "true"}}' > package.json"""
    tests = "echo '# more' >> tests/test_calc.py; echo 'X = 1' > notes.py"
    row = trial([bash(f"mkdir .githooks; {make}; {package}; {tests}; {MEND}"), DONE], verify="true")
    assert of(row, "resolved", "error_kind") == (True, None), row["error_detail"]
    assert sorted(row["auto_loaded"]) == sorted([*loaded, "package.json"])
    assert row["tests_edited"] == ["conftest.py", "pytest.ini", "tests/test_calc.py"]
    assert sorted(row["oracle_restored"]) == ["conftest.py", "pytest.ini", "sitecustomize.py", "x.pth"]
    assert of(row, "oracle_passed", "oracle_passed_source_only") == (True, True)
    records = {path.name: json.loads(path.read_text()) for path in row["directory"].glob("judgement-*.json")}
    assert {name: record["part"] for name, record in records.items()} == {
        "judgement-whole.json": "whole",
        "judgement-source-only.json": "source-only",
    }


def test_a_change_that_passes_only_with_its_own_tests_is_told_apart(trial: RunTrial) -> None:
    move = "touch tests/__init__.py; echo 'def add(a, b): return a + b' > tests/helper.py"
    row = trial([bash(f"{move}; echo 'from tests.helper import add' > calc.py"), DONE])
    assert of(row, "resolved", "oracle_passed", "oracle_passed_source_only") == (True, True, False)
    assert row["tests_edited"] == ["tests/__init__.py", "tests/helper.py"]


@pytest.mark.parametrize("command", [MEND, "echo 1 > notes.txt"], ids=["passed", "failed"])
def test_what_an_oracle_writes_is_kept_nowhere(trial: RunTrial, world: Path, command: str) -> None:
    (world / "test_hidden.py").write_text(LOUD)
    row = trial([bash(command), DONE])
    assert row["oracle_output"] == ("passed" if command == MEND else "failed")
    kept = [path.read_bytes() for path in row["directory"].rglob("*") if path.is_file()]
    shown = json.dumps({name: str(value) for name, value in row.items()}).encode()
    for said in (b"oracle says", b"complains of", b"oracle expects"):
        assert not any(said in content for content in [*kept, shown])
    assert LOUD.encode()[:60] not in b"".join(kept), "nor is the oracle itself"


def test_the_environment_of_a_session_is_in_its_row(trial: RunTrial) -> None:
    row = trial([bash(MEND), DONE], arm="baseline")
    (session,) = row["environment"]
    assert session["tools"]["withheld"] == ["Skill"]
    assert session["variables"].keys() >= {"HOME", "PATH", "MODEL"}
    assert of(session, "mcp_servers", "hooks", "plugins") == ({}, {}, {})
    assert row["environment_repository"] == {
        "guidance": {},
        "configuration": {},
        "skills": {},
        "mcp_servers": {},
        "hooks": {},
    }
    assert {label.split(" with ")[0] for label in row["environment_undeclared"]} >= {
        "bash-agent version",
        "bash-agent plugin",
        "bash-agent variables",
        "bash-agent configuration",
        "bash-agent mcp_servers",
        "bash-agent hooks",
        "repository hooks",
        "repository guidance",
    }
