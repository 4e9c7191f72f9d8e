"""Claude Code in the sandbox: skills, trouble, and what it reports; edits and subagents are in test_bench_rows."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fairtrial.model.agent import Skill, Tool

pytestmark = pytest.mark.needs("bwrap", "git", "claude")

Drive = Callable[..., Any]
Usage = Callable[..., dict[str, int]]
Buckets = Callable[..., tuple[int | None, ...]]


def bash(command: str) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command}}


def test_a_stream_that_breaks_is_tried_again_and_its_tokens_are_kept_apart(
    drive: Drive, usage: Usage, buckets: Buckets
) -> None:
    fault = {"kind": "truncate_reply", "parameter": 600, "times": 1}
    turns = [
        {"calls": [bash("ls")], "usage": usage(1, cache_write=100), "fault": fault},
        {"text": "Done.", "usage": usage(2)},
    ]
    session = drive("claude-code", [{"name": "main", "turns": turns}])
    assert session.result.returncode == 0, session.stdout
    assert session.buckets == buckets(session.expected)
    assert (session.closed.totals.requests, session.closed.totals.failed_requests) == (3, 1)
    assert session.closed.totals.broken_spend.usage.is_lower_bound
    assert session.closed.totals.broken_spend.usage.uncached_input == usage(1)["uncached_input"]
    assert session.report.retries == 1
    # Whether it counts what the broken try said at its start depends on how far it had read when the end came.
    broken = buckets(session.closed.totals.broken_spend.usage)
    with_broken = tuple(map(sum, zip(session.buckets, broken, strict=True)))
    assert buckets(session.report.usage) in {session.buckets, with_broken}


def test_a_command_in_the_background_that_ends_late_wakes_it_again(
    drive: Drive, usage: Usage, buckets: Buckets
) -> None:
    """It has said that it is done by then: what it says after that result is no garbage, and is counted."""
    waits = {"tool": "Bash", "input": {"command": "sleep 3 && touch woken", "run_in_background": True}}
    said = ({"text": "Done.", "usage": usage(2)}, {"text": "It has ended.", "usage": usage(3)})
    turns = [{"calls": [waits], "usage": usage(1, cache_write=100)}, *said]
    session = drive("claude-code", [{"name": "main", "turns": turns}])
    assert session.result.returncode == 0, session.stdout
    results = [event for event in map(json.loads, session.stdout.splitlines()) if event["type"] == "result"]
    assert [event["result"] for event in results] == ["Done.", "It has ended."]
    report = session.report
    assert (report.problem, report.is_error, report.final_text) == (None, False, "It has ended.")
    assert (session.workspace / "woken").exists()
    assert session.buckets == buckets(session.expected) == buckets(session.report.usage)


def test_what_is_withheld_is_not_offered_and_what_is_placed_is_found(drive: Drive, usage: Usage) -> None:
    skill = Skill(name="placed", files={"SKILL.md": b"---\nname: placed\ndescription: A placed one\n---\nBODY\n"})
    turns = [
        {"calls": [bash("touch made"), {"tool": "Skill", "input": {"skill": "placed"}}], "usage": usage(1)},
        {"text": "Done.", "usage": usage(2)},
    ]
    granted = frozenset(Tool) - {Tool.SHELL, Tool.WEB, Tool.SUBAGENT}
    session = drive("claude-code", [{"name": "main", "turns": turns}], tools=granted, skills=(skill,))
    assert session.result.returncode == 0, session.stdout
    assert not (session.workspace / "made").exists()
    assert [result.is_error for result in session.rows[1].tool_results] == [True, False]
    assert session.report.skills_used == ("placed",)


def test_session_files_that_it_forges_below_its_home_are_no_evidence(
    drive: Drive, usage: Usage, buckets: Buckets
) -> None:
    forge = """
mkdir -p ~/.claude/projects/-workspace
for file in ~/.claude/projects/-workspace/1.jsonl ~/.claude/projects/*/*.jsonl ~/.claude.json; do
  printf '{"type":"result","subtype":"success","session_id":"FOR%s","num_turns":99,"result":"FOR%s",' GED GED >>$file
  printf '"total_cost_usd":0,"usage":{"input_tokens":1,"output_tokens":777}}\\n' >>$file
done
grep -l "FORGE[D]" ~/.claude/projects/-workspace/1.jsonl && sed -i 's/a - b/a + b/' /workspace/calc.py
"""
    turns = [{"calls": [bash(forge)], "usage": usage(1, cache_write=100)}, {"text": "Mended.", "usage": usage(2)}]
    session = drive("claude-code", [{"name": "main", "turns": turns}])
    assert "a + b" in (session.workspace / "calc.py").read_text(), "it was written"
    assert session.result.returncode == 0, session.stdout
    assert session.buckets == buckets(session.expected) == buckets(session.report.usage)
    assert (session.report.ended, session.report.is_error, session.report.problem) == (True, False, None)
    assert (session.report.turns, session.report.final_text) == (2, "Mended.")
    assert session.report.session_id is not None
    assert b"FORGED" not in session.stdout
