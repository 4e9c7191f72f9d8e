"""What a provider may do to the other command lines, and how that ends: 500, 400 and crashes are the suite's.

Each tries again in its own way, or takes what it got for the end; what the wire shows decides all the same.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

pytestmark = [
    pytest.mark.needs("bwrap", "git", "codex", "opencode", "rg", "gemini", "mini"),
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("agents-faults-of-others"),
]

Sweep = Any
Row = dict[str, Any]
Usage = Callable[..., dict[str, int]]

AGENTS: Final = {
    "codex": "gpt-5",
    "gemini-cli": "gemini-2.5-pro",
    "mini-swe-agent": "gpt-5",
    "opencode": "gpt-5",
}
FAULTS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "closed-in-the-middle": ({"kind": "truncate_reply", "parameter": 600}, "session-error"),
    "rate-limited": ({"kind": "status", "parameter": 429, "retry_after_s": 1}, "session-error"),
    "unauthorized": ({"kind": "status", "parameter": 401}, "agent-crash"),
}
LONG: Final = "Never. " * 500
LOOK: Final = [
    {"tool": "exec_command", "input": {"cmd": "ls"}, "only": ["openai-responses"]},
    {"tool": "bash", "input": {"command": "ls", "description": "look"}, "only": ["openai-chat"]},
    {"tool": "run_shell_command", "input": {"command": "ls"}, "only": ["gemini"]},
]


def prompt_of(fault: str) -> str:
    return f"FAULT-{fault.upper()}."


@pytest.fixture(scope="module")
def rows(shared_sweep: Sweep, usage: Usage) -> dict[tuple[str, str], Row]:
    """The row of each agent and fault, all of one sweep: work first, then a fault that stays."""
    path = shared_sweep.root / "tasks.yaml"
    (task,) = json.loads(path.read_text())["tasks"]
    tasks = [{**task, "id": fault, "prompt": prompt_of(fault)} for fault in FAULTS]
    path.write_text(json.dumps({"tasks": tasks}))
    work = {"text": "Looking.", "calls": LOOK, "usage": usage(1)}
    conversations = [
        {
            "name": name,
            "match": {"prompt_contains": prompt_of(name)},
            "turns": [work, {"text": LONG, "usage": usage(2), "fault": {**fault, "times": 0}}],
            "beyond": "repeat",  # gemini-cli puts more into the conversation when it tries again
        }
        for name, (fault, _) in FAULTS.items()
    ]
    title = {"name": "title", "match": {"tools": "none"}, "turns": [{"text": "A title", "usage": usage(90)}]}
    script = shared_sweep.write_script([title, *conversations])
    arms = {
        agent: {"phases": [{"prompt": "{task}"}], "agent": agent, "model": model} for agent, model in AGENTS.items()
    }
    options = ("--runs", 1, "--workers", len(FAULTS), "--timeout", 500, "--outage-streak", 0, "--script", script)
    done = shared_sweep.run(*options, "--arms-file", shared_sweep.write_arms(arms), arms=",".join(AGENTS))
    found = {(row["arm"], row["task"]): row for row in shared_sweep.rows}
    assert found.keys() == {(agent, fault) for agent in AGENTS for fault in FAULTS}, done.stderr
    return found


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_its_ending_whatever_the_cli_makes_of_it(
    rows: dict[tuple[str, str], Row], usage: Usage, agent: str, fault: str
) -> None:
    row, (_, kind) = rows[agent, fault], FAULTS[fault]
    assert (row["error_kind"], row["resolved"]) == (kind, False), row["error_detail"]
    whole = [usage(1), *([usage(90)] if agent == "opencode" else [])]
    assert row["input_tokens"] == sum(each["uncached_input"] for each in whole)
    assert row["output_tokens"] == sum(each["output"] for each in whole)
    assert row["wire"]["failed_requests"] == row["wire"]["requests"] - len(whole) > 0


def test_an_end_that_is_none_is_not_believed(rows: dict[tuple[str, str], Row]) -> None:
    row = rows["gemini-cli", "closed-in-the-middle"]
    (reported,) = row["reported_usage"]
    assert reported["is_error"] is False, "it says that all went well"
    (flag,) = [flag for flag in row["integrity_flags"] if "says success" in flag]
    assert flag.startswith("work: says success after broken connection")
