"""Our own agent, and the two that have no model."""

from collections.abc import Callable
from typing import Any

import pytest

from fairtrial.agents.reference import Reference
from fairtrial.model.agent import Tool

pytestmark = pytest.mark.needs("bwrap", "git")

Drive = Callable[..., Any]
Usage = Callable[..., dict[str, int]]
Buckets = Callable[..., tuple[int | None, ...]]
DriveWithoutModel = Callable[..., tuple[int | None, str]]

MEND = "sed -i 's/a - b/a + b/' calc.py && git -c user.name=m -c user.email=m@example.invalid commit -qam mended"


def test_a_whole_edit_is_counted_as_the_script_says(drive: Drive, usage: Usage, buckets: Buckets, fixed: str) -> None:
    turns = [
        {"calls": [{"tool": "Skill", "input": {"skill": "demo"}}], "usage": usage(1, cache_write=500)},
        {
            "calls": [{"tool": "Bash", "input": {"command": "cat calc.py"}}, {"tool": "Nothing", "input": {}}],
            "usage": usage(2, cache_write=600),
        },
        {"text": "Now.", "calls": [{"tool": "Bash", "input": {"command": MEND}}], "usage": usage(3)},
        {"text": "Mended.", "usage": usage(4)},
    ]
    session = drive("bash-agent", [{"name": "main", "turns": turns}])
    assert session.result.returncode == 0, session.result.stderr.tail
    assert (session.workspace / "calc.py").read_text() == fixed
    assert session.buckets == buckets(session.expected) == buckets(session.report.usage)
    assert session.closed.totals.requests == 4
    assert session.report.turns == 4
    assert session.report.skills_used == ("demo",)
    assert session.report.tool_calls == {"Skill": 1, "Bash": 2, "Nothing": 1}
    assert session.report.final_text == "Mended."
    assert session.report.is_error is False
    assert [result.is_error for row in session.rows for result in row.tool_results] == [False, False, True, False]


def test_a_provider_that_recovers_is_asked_again(drive: Drive, usage: Usage, buckets: Buckets) -> None:
    fault = {"kind": "status", "parameter": 529, "retry_after_s": 0, "times": 2}
    turns = [{"text": "Done.", "usage": usage(1), "fault": fault}]
    session = drive("bash-agent", [{"name": "main", "turns": turns}])
    assert session.result.returncode == 0
    assert session.buckets == buckets(session.expected)
    assert (session.closed.totals.requests, session.closed.totals.failed_requests) == (3, 2)
    assert session.report.retries == 2


def test_a_refusal_ends_the_session_at_once(drive: Drive, usage: Usage) -> None:
    fault = {"kind": "status", "parameter": 400, "times": 0}
    session = drive("bash-agent", [{"name": "main", "turns": [{"text": "no", "usage": usage(1), "fault": fault}]}])
    assert session.result.returncode == 1
    assert session.closed.totals.requests == 1
    assert (session.report.is_error, session.report.error_status, session.report.ending) == (True, 400, "api-error")


def test_without_the_skill_grant_there_is_no_skill_tool(drive: Drive, usage: Usage) -> None:
    turns = [{"calls": [{"tool": "Skill", "input": {"skill": "demo"}}], "usage": usage(1)}, {"text": "Done."}]
    session = drive("bash-agent", [{"name": "main", "turns": turns}], tools=frozenset(Tool) - {Tool.SKILL, Tool.WEB})
    assert session.report.skills_used == ()
    assert session.rows[1].tool_results[0].is_error is True


def test_a_command_that_leaves_something_behind_does_not_hold_the_session(drive: Drive, usage: Usage) -> None:
    command = {"command": "sleep 600 & sleep 600", "timeout_s": 0.5}
    turns = [{"calls": [{"tool": "Bash", "input": command}], "usage": usage(1)}, {"text": "Done.", "usage": usage(2)}]
    session = drive("bash-agent", [{"name": "main", "turns": turns}], wall_s=30)
    assert session.result.returncode == 0
    assert session.report.ending == "end"


def test_the_token_is_not_in_the_environment_of_a_command(drive: Drive, usage: Usage) -> None:
    turns = [{"calls": [{"tool": "Bash", "input": {"command": "env; exit 1"}}], "usage": usage(1)}, {"text": "Done."}]
    session = drive("bash-agent", [{"name": "main", "turns": turns}])
    assert b"MODEL_ENDPOINT" in session.stdout
    assert b"MODEL_TOKEN" not in session.stdout


def test_the_reference_agent_applies_its_patch_and_the_nop_agent_does_nothing(
    drive_without_model: DriveWithoutModel,
) -> None:
    patch = b"--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
    assert drive_without_model("nop", patch=b"") == (0, "def add(a, b):\n    return a - b\n")
    assert drive_without_model("reference", patch=patch) == (0, "def add(a, b):\n    return a + b\n")
    code, text = drive_without_model("reference", patch=patch)
    assert code == 1, "it is applied already"
    assert text == "def add(a, b):\n    return a + b\n"
    assert Reference().probe().version
