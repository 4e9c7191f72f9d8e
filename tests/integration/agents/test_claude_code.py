"""Claude Code in the sandbox: subagents, skills, trouble, and what it reports; whole edits are in test_bench_rows."""

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


def subagent(prompt: str, kind: str = "general-purpose", *, background: bool = False) -> dict[str, Any]:
    given = {"description": prompt, "prompt": prompt, "subagent_type": kind, "run_in_background": background}
    return {"tool": "Agent", "input": given}


def test_every_kind_of_subagent_is_counted(drive: Drive, usage: Usage, buckets: Buckets) -> None:
    main = [
        {"calls": [subagent("FOREGROUND task")], "usage": usage(1, cache_write=100)},
        {"calls": [subagent("EXPLORE task", "Explore")], "usage": usage(2)},
        {"calls": [subagent("BACKGROUND task", background=True)], "usage": usage(3)},
        {"text": "Waiting.", "usage": usage(4)},
        {"text": "All done.", "usage": usage(5)},
    ]
    agents = [
        {
            "name": name,
            "match": {"claimed": "subagent", "prompt_contains": name.upper()},
            "turns": [
                {"calls": [bash(f"echo {name} >>seen")], "usage": usage(n)},
                {"text": "ok", "usage": usage(n + 1)},
            ],
        }
        for name, n in (("foreground", 20), ("explore", 30), ("background", 40))
    ]
    session = drive("claude-code", [*agents, {"name": "main", "turns": main}])
    assert session.result.returncode == 0, session.stdout
    assert sorted((session.workspace / "seen").read_text().split()) == ["background", "explore", "foreground"]
    assert session.buckets == buckets(session.expected)
    assert session.closed.totals.requests == 11
    assert len({row.agent_claim for row in session.rows} - {None}) == 3
    assert session.closed.totals.other_models == (), "every call is pinned to the session's model"
    by_agent = session.closed.totals.by_agent
    assert by_agent["subagent"].usage.output == sum(usage(n)["output"] for n in (20, 21, 30, 31, 40, 41))
    # What it reports is the whole session, though it prints a result for each time that it was woken.
    assert session.stdout.count(b'"type":"result"') == 2
    assert buckets(session.report.usage) == session.buckets
    assert session.report.final_text == "All done."
    assert session.report.tool_calls == {"Agent": 3}


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


def test_a_subagent_that_meets_a_500_is_no_error_of_the_session(drive: Drive, usage: Usage) -> None:
    fault = {"kind": "status", "parameter": 500, "times": 0}
    sub = {"name": "sub", "match": {"claimed": "subagent"}, "turns": [{"text": "never", "fault": fault}]}
    main = [{"calls": [subagent("DO it")], "usage": usage(1)}, {"text": "Gave up.", "usage": usage(2)}]
    session = drive("claude-code", [sub, {"name": "main", "turns": main}])
    assert session.result.returncode == 0
    assert session.report.is_error is False
    failed = [row for row in session.rows if row.status == 500]
    assert len(failed) == session.closed.totals.failed_requests > 1
    assert {row.agent_claim is None for row in failed} == {False}
    assert session.closed.provider_fault is None, "the main loop's last request was answered"
    assert session.buckets == tuple(map(sum, zip(*(buckets_of_turn(turn) for turn in main), strict=True)))


def buckets_of_turn(turn: dict[str, Any]) -> tuple[int, ...]:
    return tuple(turn["usage"][name] for name in ("uncached_input", "cache_write", "cache_read", "output"))


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
