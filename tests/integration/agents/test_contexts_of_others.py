"""A context with the other command lines that speak MCP: each asks a ctags index, and the row says so."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

pytestmark = [
    pytest.mark.needs("bwrap", "git", "codex", "opencode", "rg", "gemini", "ctags"),
    pytest.mark.timeout(580),
    pytest.mark.xdist_group("agents-contexts"),
]

Sweep = Any
Row = dict[str, Any]
Usage = Callable[..., dict[str, int]]

AGENTS: Final = {"codex": "gpt-5", "gemini-cli": "gemini-2.5-pro", "opencode": "gpt-5"}
TOOLS: Final = ["find_symbol", "list_symbols", "search_symbols"]
MEND: Final = "sed -i 's/a - b/a + b/' calc.py"
ASK: Final = [
    {"tool": "find_symbol", "namespace": "mcp__ctags", "input": {"name": "add"}, "only": ["openai-responses"]},
    {"tool": "ctags_find_symbol", "input": {"name": "add"}, "only": ["openai-chat"]},
    {"tool": "mcp_ctags_find_symbol", "input": {"name": "add"}, "only": ["gemini"]},
]
WORK: Final = [
    {"tool": "exec_command", "input": {"cmd": MEND}, "only": ["openai-responses"]},
    {"tool": "bash", "input": {"command": MEND, "description": "mend"}, "only": ["openai-chat"]},
    {"tool": "run_shell_command", "input": {"command": MEND}, "only": ["gemini"]},
]


@pytest.fixture(scope="module")
def rows(shared_sweep: Sweep, usage: Usage) -> dict[str, Row]:
    """The row of each agent of one sweep, in which all have the context."""
    turns = [
        {"calls": ASK, "usage": usage(1)},
        {"calls": WORK, "usage": usage(2)},
        {"text": "Done.", "usage": usage(3)},
    ]
    title = {"name": "title", "match": {"tools": "none"}, "turns": [{"text": "A title", "usage": usage(90)}]}
    script = shared_sweep.write_script([title, {"name": "main", "turns": turns}])
    arms = shared_sweep.write_arms(
        {
            agent: {"phases": [{"prompt": "{task}"}], "agent": agent, "model": model, "context": "ctags"}
            for agent, model in AGENTS.items()
        }
    )
    options = ("--runs", 1, "--timeout", 400, "--arms-file", arms, "--script", script)
    done = shared_sweep.run(*options, arms=",".join(AGENTS))
    found = {row["arm"]: row for row in shared_sweep.rows}
    assert found.keys() == AGENTS.keys(), done.stderr
    return found


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_asks_its_context_and_the_row_says_so(rows: dict[str, Row], shared_sweep: Sweep, agent: str) -> None:
    row = rows[agent]
    assert (row["resolved"], row["error_kind"]) == (True, None), row["error_detail"]
    assert (row["agent"], row["context"]) == (agent, "ctags")
    assert row["context_index"]["commit"] == row["sanitized_task_sha"]
    (seen,) = row["context_sessions"]
    assert seen["offered"] == seen["server_listed"] == TOOLS
    assert seen["calls"] == seen["server_calls"] == {"find_symbol": 1}, "the wire and the server agree"
    assert (seen["server_failed_calls"], seen["server_refused_calls"]) == ({}, {})
    (path,) = [
        path
        for path in shared_sweep.out.rglob("tools-work.jsonl")
        if row["key"] in (path.parent / "intent.json").read_text()
    ]
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["tool"] for event in events if event["event"] == "called"] == ["find_symbol"]
    (transcript,) = path.parent.glob("transcript-work.jsonl")
    assert "calc.py:1: function add (a, b)" in transcript.read_text(), "the answer is the tree's"
