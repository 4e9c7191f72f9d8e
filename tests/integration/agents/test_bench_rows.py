"""Every command line through a whole sweep: its row has the script's sum, and beside it what it reported itself."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final, cast

import pytest

from fairtrial.plugins import load_plugin, plugin_names
from fairtrial.protocols import Agent

pytestmark = [
    pytest.mark.needs("bwrap", "git", "claude", "codex", "ctags", "opencode", "rg", "gemini", "mini"),
    pytest.mark.timeout(580),
    pytest.mark.xdist_group("agents-sweep"),
]

Sweep = Any
Row = dict[str, Any]
Usage = Callable[..., dict[str, int]]
Turn = dict[str, Any]

BUCKETS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
IN_SCRIPT: Final = ("uncached_input", "cache_write", "cache_read", "output")
COMMIT: Final = "git -c user.name=m -c user.email=m@example.invalid commit -qam mended"
MEND: Final = f"sed -i 's/a - b/a + b/' calc.py && {COMMIT}"
PATCH: Final = "*** Begin Patch\n*** Update File: calc.py\n@@\n-    return a - b\n+    return a + b\n*** End Patch"
CALC: Final = "/workspace/calc.py"
# A child thread runs beside its parent; its last word stands in its own record. (The brackets keep this command from
# finding itself.)
CHILD_IS_DONE: Final = "until grep -rqs 'CHILD-IS-[D]ONE' /home/agent/.codex/sessions; do sleep 0.1; done"
SKILL: Final = "---\nname: demo\ndescription: How add is mended here\n---\nBODY-OF-IT: turn the sign around.\n"
ARMS: Final = {
    "claude": ("claude-code", "claude-sonnet-4-5"),
    "trouble": ("claude-code", "claude-sonnet-4-5"),
    "codex": ("codex", "gpt-5"),
    "opencode": ("opencode", "gpt-5"),
    "gemini": ("gemini-cli", "gemini-3.1-pro-preview"),
    "mini": ("mini-swe-agent", "gpt-5"),
}

EFFORTS: Final = {"claude": "high", "codex": "low", "opencode": "high", "gemini": "low", "mini": "low"}
"""What the model is to be told. Claude Code says nothing of it to this model: the row must."""

SPEAK_MCP: Final = ("codex", "gemini-cli", "opencode")
"""These have a context, and ask it; `claude-code` does in test_contexts, and the others cannot be given one."""


def call(tool: str, namespace: str | None = None, **given: object) -> dict[str, Any]:
    return {"tool": tool, "input": given} | ({"namespace": namespace} if namespace else {})


def bash(command: str) -> dict[str, Any]:
    return call("Bash", command=command)


def subagent(prompt: str, kind: str = "general-purpose", *, background: bool = False) -> dict[str, Any]:
    return call("Agent", description=prompt, prompt=prompt, subagent_type=kind, run_in_background=background)


def speaks(name: str, prompt: str, turns: list[Turn], **match: str) -> dict[str, Any]:
    return {"name": name, "match": {"prompt_contains": prompt, **match}, "turns": turns}


def conversations(usage: Usage) -> dict[str, list[dict[str, Any]]]:
    """What the model says to each arm; each usage has a number of its own, so no sum is right by chance."""
    kinds = ("foreground", "explore", "background")
    numbers = iter(range(1, 100))

    def turn(*calls: dict[str, Any], text: str = "", cache_write: int = 0, **more: object) -> Turn:
        return {"text": text, "calls": list(calls), "usage": usage(next(numbers), cache_write=cache_write), **more}

    return {
        "claude": [
            *(
                speaks(kind, kind.upper(), [turn(bash(f"echo {kind} >>seen")), turn(text="ok")], claimed="subagent")
                for kind in kinds
            ),
            speaks(
                "claude",
                "ARM-CLAUDE.",
                [
                    turn(call("Skill", skill="demo"), text="Looking.", cache_write=9),
                    turn(bash("ls"), call("Read", file_path=CALC), bash("git status"), cache_write=700),
                    turn(call("Edit", file_path=CALC, old_string="a - b", new_string="a + b")),
                    turn(bash(COMMIT)),
                    turn(subagent("FOREGROUND task")),
                    turn(subagent("EXPLORE task", "Explore")),
                    turn(subagent("BACKGROUND task", background=True)),
                    turn(text="Waiting."),
                    turn(text="All done."),
                ],
            ),
        ],
        "trouble": [
            speaks("failing", "FAIL", [{"text": "never", "fault": {"kind": "status", "parameter": 500, "times": 0}}]),
            speaks(
                "trouble",
                "ARM-TROUBLE.",
                [
                    turn(bash("ls"), cache_write=5, fault={"kind": "truncate_reply", "parameter": 600, "times": 1}),
                    turn(subagent("FAIL it")),
                    turn(bash(MEND)),
                    turn(text="Mended all the same."),
                ],
            ),
        ],
        "codex": [
            speaks(
                "thread",
                "CHILD",
                [turn(call("exec_command", cmd="touch child")), turn(text="CHILD-IS-DONE")],
                claimed="subagent",
            ),
            speaks(
                "codex",
                "ARM-CODEX.",
                [
                    turn(
                        call("exec_command", cmd="cat /home/agent/.codex/skills/demo/SKILL.md"),
                        call("find_symbol", "mcp__ctags", name="add"),
                        text="Looking.",
                    ),
                    turn(call("spawn_agent", "multi_agent_v1", message="CHILD task")),
                    turn(call("exec_command", cmd=CHILD_IS_DONE, yield_time_ms=30_000), call("exec_command", cmd=MEND)),
                    turn(text="Mended."),
                ],
            ),
        ],
        "opencode": [
            speaks("title", "", [turn(text="A title")], tools="none"),
            speaks(
                "session",
                "KID",
                [turn(call("bash", command="touch child", description="touch")), turn(text="ok")],
                claimed="subagent",
            ),
            speaks(
                "opencode",
                "ARM-OPENCODE.",
                [
                    turn(
                        *(
                            call("skill", name="demo"),
                            call("read", filePath=CALC),
                            call("ctags_find_symbol", name="add"),
                        ),
                        text="Looking.",
                    ),
                    turn(call("task", description="child", prompt="KID task", subagent_type="general")),
                    turn(call("apply_patch", patchText=PATCH), call("grep", pattern="def")),
                    turn(call("bash", command=COMMIT, description="commit")),
                    turn(text="Mended."),
                ],
            ),
        ],
        "gemini": [
            speaks(
                "generalist",
                "OTHER task",
                [
                    turn(call("run_shell_command", command="touch child")),
                    turn(call("complete_task", result={"response": "ok"})),
                ],
            ),
            speaks(
                "gemini",
                "ARM-GEMINI.",
                [
                    turn(
                        *(call("activate_skill", name="demo"), call("mcp_ctags_find_symbol", name="add")),
                        call("read_file", file_path=CALC),
                        text="Looking.",
                    ),
                    turn(call("invoke_agent", agent_name="generalist", prompt="OTHER task")),
                    turn(call("replace", file_path=CALC, instruction="mend", old_string="a - b", new_string="a + b")),
                    turn(call("run_shell_command", command=COMMIT)),
                    turn(text="Mended."),
                ],
            ),
        ],
        "mini": [
            speaks(
                "mini",
                "BODY-OF-IT",  # the skill's text is part of its prompt; the other arms' prompts are told before
                [
                    turn(call("bash", command="cat calc.py"), text="Looking."),
                    turn(call("bash", command=MEND), text="Mending."),
                    turn(call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")),
                ],
            )
        ],
    }


def plus(agents: list[dict[str, Any]]) -> dict[str, int]:
    """The sum of all turns that say what they cost, each played once, in the row's words."""
    usages = [turn["usage"] for agent in agents for turn in agent["turns"] if "usage" in turn]
    return {in_row: sum(usage[name] for usage in usages) for name, in_row in zip(IN_SCRIPT, BUCKETS, strict=True)}


def counted(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in BUCKETS}


def wire_of(sweep: Sweep, row: Row) -> list[Row]:
    """The wire log of an attempt."""
    trial = hashlib.sha256(row["key"].encode()).hexdigest()[:16]
    lines = (sweep.out / "trials" / trial / "1" / "wire-work.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def said(usage: Usage) -> dict[str, list[dict[str, Any]]]:
    return conversations(usage)


@pytest.fixture(scope="module")
def rows(shared_sweep: Sweep, said: dict[str, list[dict[str, Any]]]) -> dict[str, Row]:
    """The one row of each arm of one sweep."""
    (shared_sweep.root / "demo").mkdir()
    (shared_sweep.root / "demo" / "SKILL.md").write_text(SKILL)
    script = shared_sweep.write_script([agent for agents in said.values() for agent in agents])
    arms = shared_sweep.write_arms(
        {
            name: {
                "phases": [{"prompt": f"ARM-{name.upper()}. {{task}}"}],
                "agent": agent,
                "model": model,
                "skills": {"demo": "demo"},
                **({"effort": EFFORTS[name]} if name in EFFORTS else {}),
                **({"context": "ctags"} if agent in SPEAK_MCP else {}),
            }
            for name, (agent, model) in ARMS.items()
        }
    )
    options = ("--runs", 1, "--workers", 2, "--timeout", 200, "--arms-file", arms, "--script", script)
    done = shared_sweep.run(*options, arms=",".join(ARMS))
    rows = {row["arm"]: row for row in shared_sweep.rows}
    assert rows.keys() == ARMS.keys(), done.stderr
    return rows


@pytest.mark.parametrize("arm", ARMS)
def test_the_wire_has_the_scripts_sum_in_every_bucket(
    rows: dict[str, Row], said: dict[str, list[dict[str, Any]]], arm: str
) -> None:
    row = rows[arm]
    assert (row["resolved"], row["error_kind"]) == (True, None), row["error_detail"]
    assert row["diff_files"] == (2 if arm in {"claude", "codex", "opencode", "gemini"} else 1), "the subagent wrote too"
    assert row["usage_source"] == "wire"
    broken = row["wire"]["broken_tokens"]
    assert {name: n - broken[name] for name, n in counted(row).items()} == plus(said[arm])
    assert row["usage_is_lower_bound"] is (arm == "trouble"), "what honest clients leave early was told whole"
    assert any(broken.values()) is (arm == "trouble")
    assert row["wire"]["unmeasured_requests"] == 0
    assert row["wire"]["egress_refused"] == []
    assert row["wire"]["other_models"] == []
    (version,) = row["environment_undeclared"].keys() & {f"{ARMS[arm][0]} version"}
    assert row["environment_undeclared"][version] == row["agent_version"] is not None


@pytest.mark.parametrize(
    ("arm", "reported_agents"),
    [
        ("claude", None),
        ("codex", ["codex"]),
        ("opencode", ["opencode"]),
        ("gemini", None),
        ("mini", None),
    ],
)
def test_what_the_cli_reported_stands_beside_it_and_a_difference_is_flagged(
    rows: dict[str, Row], said: dict[str, list[dict[str, Any]]], arm: str, reported_agents: list[str] | None
) -> None:
    (reported,) = rows[arm]["reported_usage"]
    agents = [agent for agent in said[arm] if reported_agents is None or agent["name"] in reported_agents]
    assert reported["usage"] == plus(agents)
    expected = ["work: effort"] if arm == "claude" else [] if reported_agents is None else ["work: usage"]
    assert rows[arm]["integrity_flags"] == expected
    assert reported["is_error"] is False


@pytest.mark.parametrize(
    ("arm", "tool_calls", "skills_used"),
    [
        ("claude", {"Skill": 1, "Bash": 3, "Read": 1, "Edit": 1, "Agent": 3}, ["demo"]),
        (
            "opencode",
            {"skill": 1, "read": 1, "ctags_find_symbol": 1, "task": 1, "apply_patch": 1, "grep": 1, "bash": 1},
            ["demo"],
        ),
        ("mini", {"bash": 3}, None),
    ],
)
def test_what_the_cli_reported_names_its_own_calls_and_skills(
    rows: dict[str, Row], arm: str, tool_calls: dict[str, int], skills_used: list[str] | None
) -> None:
    (reported,) = rows[arm]["reported_usage"]
    assert (reported["tool_calls"], reported["skills_used"]) == (tool_calls, skills_used)


@pytest.mark.parametrize("arm", ARMS)
def test_the_effort_of_an_arm_is_what_every_request_asks_for(
    rows: dict[str, Row], shared_sweep: Sweep, arm: str
) -> None:
    asked = {line.get("effort") for line in wire_of(shared_sweep, rows[arm]) if line["kind"] == "request"}
    told = None if ARMS[arm][0] == "claude-code" else EFFORTS[arm]  # whom the CLI does not hold to take one
    assert {None if each is None else each.lower() for each in asked} == {told}
    assert rows[arm]["effort"] == EFFORTS.get(arm)


def test_whose_a_request_is_stays_unknown_where_the_wire_does_not_tell(rows: dict[str, Row]) -> None:
    """gemini-cli's subagent asked, and nothing in its requests says that it was one."""
    assert rows["gemini"]["wire"]["by_agent"] is None
    assert rows["gemini"]["tool_calls"]["invoke_agent"] == 1


@pytest.mark.parametrize(("arm", "children"), [("claude", 3), ("codex", 1), ("opencode", 1)])
def test_subagents_and_child_sessions_are_told_from_the_main_loop(
    rows: dict[str, Row], said: dict[str, list[dict[str, Any]]], shared_sweep: Sweep, arm: str, children: int
) -> None:
    agents = [agent for agent in said[arm] if agent["match"].get("claimed") == "subagent"]
    assert len(agents) == children
    assert rows[arm]["wire"]["by_agent"]["subagent"] == plus(agents)
    claims = {line["agent_claim"] for line in wire_of(shared_sweep, rows[arm]) if line["kind"] == "request"}
    assert len(claims - {None}) == children, "each by a name of its own"


def test_a_skill_and_three_parallel_tools_are_calls_on_the_wire(rows: dict[str, Row], shared_sweep: Sweep) -> None:
    wire = wire_of(shared_sweep, rows["claude"])
    assert max(len(line.get("tool_results", ())) for line in wire) == 3, "three tools ran side by side"
    calls = rows["claude"]["tool_calls"]
    assert (calls["Skill"], calls["Agent"], calls["Read"], calls["Edit"]) == (1, 3, 1, 1)
    assert rows["claude"]["reported_usage"][0]["skills_used"] == ["demo"]
    assert rows["claude"]["cost_usd"] == pytest.approx(rows["claude"]["reported_usage"][0]["cost_usd"], abs=1e-5)


def test_a_broken_stream_and_a_500_in_a_subagent_are_counted_apart(rows: dict[str, Row]) -> None:
    row = rows["trouble"]
    wire = row["wire"]
    assert wire["by_ending"]["broken"] == 1
    assert wire["by_ending"]["error-status"] == wire["failed_requests"] - 1 > 1
    assert wire["broken_tokens"]["input_tokens"] > 0
    assert "subagent" not in wire["by_agent"], "it was never answered"
    assert row["reported_usage"][0]["is_error"] is False, "what a subagent meets is no error of the session"
    assert wire["waited_ms"] == 0.0, "a fault that we planned is no provider's trouble"
    assert wire["backed_off_ms"] > 0
    assert row["sweep_paused_s"] == 0.0


@pytest.mark.parametrize("arm", [arm for arm, (agent, _) in ARMS.items() if agent in SPEAK_MCP])
def test_an_agent_that_speaks_mcp_asks_its_context_and_is_answered(
    rows: dict[str, Row], shared_sweep: Sweep, arm: str
) -> None:
    row = rows[arm]
    (seen,) = row["context_sessions"]
    assert (row["context"], seen["offered"]) == ("ctags", ["find_symbol", "list_symbols", "search_symbols"])
    assert seen["calls"] == seen["server_calls"] == {"find_symbol": 1}, "the wire and the server agree"
    assert (seen["server_failed_calls"], seen["server_refused_calls"], seen["server_ended"]) == ({}, {}, "stopped")
    trial = hashlib.sha256(row["key"].encode()).hexdigest()[:16]
    transcript = (shared_sweep.out / "trials" / trial / "1" / "transcript-work.jsonl").read_text()
    assert "calc.py:1: function add (a, b)" in transcript, "the answer came from the tree's own index"


def test_which_agents_speak_mcp_is_what_they_declare() -> None:
    agents = {name: load_plugin("fairtrial.agents", name).target for name in plugin_names("fairtrial.agents")}
    declared = {name for name, agent in agents.items() if cast("type[Agent]", agent).speaks_mcp}
    assert declared == {"claude-code", *SPEAK_MCP}
