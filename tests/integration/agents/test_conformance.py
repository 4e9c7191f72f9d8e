"""The conformance suite over every agent of ours."""

from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.testing.agents import AGENT_CASES, AgentCase, AgentHands

pytestmark = [pytest.mark.needs("bwrap", "git"), pytest.mark.timeout(2000)]

CALC: Final = "/workspace/calc.py"
PATCH: Final = "*** Begin Patch\n*** Update File: calc.py\n@@\n-    return a - b\n+    return a + b\n*** End Patch"
SWAP: Final = {"old_string": "a - b", "new_string": "a + b"}


def call(tool: str, **given: object) -> dict[str, Any]:
    return {"tool": tool, "input": given}


BASH_AGENT: Final = AgentHands(
    agent="bash-agent",
    model="claude-sonnet-4-5",
    tool="Bash",
    argument="command",
    skill=[call("Skill", skill="suite-skill")],
)
CLAUDE_CODE: Final = AgentHands(
    agent="claude-code",
    model="claude-sonnet-4-5",
    tool="Bash",
    argument="command",
    edit=[call("Read", file_path=CALC), call("Edit", file_path=CALC, **SWAP)],
    skill=[call("Skill", skill="suite-skill")],
)
CODEX: Final = AgentHands(
    agent="codex",
    model="gpt-5",
    tool="exec_command",
    argument="cmd",
    skill=[call("exec_command", cmd="cat /home/agent/.codex/skills/suite-skill/SKILL.md")],
)
GEMINI_CLI: Final = AgentHands(
    agent="gemini-cli",
    model="gemini-2.5-pro",
    tool="run_shell_command",
    argument="command",
    edit=[call("replace", file_path=CALC, instruction="mend", **SWAP)],
    skill=[call("activate_skill", name="suite-skill"), call("read_file", file_path=CALC)],
)
MINI_SWE_AGENT: Final = AgentHands(
    agent="mini-swe-agent",
    model="gpt-5",
    tool="bash",
    argument="command",
    last=[call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")],
)
OPENCODE: Final = AgentHands(
    agent="opencode",
    model="gpt-5",
    tool="bash",
    argument="command",
    more={"description": "what the script says"},
    edit=[call("read", filePath=CALC), call("apply_patch", patchText=PATCH)],
    skill=[call("skill", name="suite-skill")],
    n_side_calls=1,
)


@pytest.mark.parametrize("case", AGENT_CASES, ids=str)
@pytest.mark.parametrize(
    "hands",
    [
        pytest.param(BASH_AGENT, id="bash-agent"),
        pytest.param(CLAUDE_CODE, id="claude-code", marks=pytest.mark.needs("claude")),
        pytest.param(CODEX, id="codex", marks=pytest.mark.needs("codex")),
        pytest.param(GEMINI_CLI, id="gemini-cli", marks=pytest.mark.needs("gemini")),
        pytest.param(MINI_SWE_AGENT, id="mini-swe-agent", marks=pytest.mark.needs("mini")),
        pytest.param(OPENCODE, id="opencode", marks=pytest.mark.needs("opencode", "rg")),
    ],
)
def test_an_agent_conforms(case: AgentCase, hands: AgentHands, tmp_path: Path) -> None:
    case.check(hands, tmp_path)
