"""What a session is made of, for every agent: what is in it, what must not be, and what is refused."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from fairtrial.agents.bash_agent import BashAgent
from fairtrial.agents.claude_code import ClaudeCode
from fairtrial.agents.codex import Codex
from fairtrial.agents.gemini_cli import GeminiCli
from fairtrial.agents.mini_swe_agent import MiniSweAgent
from fairtrial.agents.nop import Nop
from fairtrial.agents.opencode import OpenCode
from fairtrial.agents.reference import Reference
from fairtrial.bench.transcript import LONGEST_LINE_BYTES
from fairtrial.errors import UsageError
from fairtrial.model.agent import (
    AGENT_ROOT,
    Installation,
    McpServer,
    SessionPlan,
    SessionRequest,
    Skill,
    SkillProof,
    Tool,
)
from fairtrial.model.sandbox import Access
from fairtrial.protocols import Agent

WITH_MODEL = [BashAgent, ClaudeCode, Codex, GeminiCli, MiniSweAgent, OpenCode]
ALL = [*WITH_MODEL, Nop, Reference]
INSTALLATION = Installation(argv=("/opt/agent/program",))
PROMPT = 'Mend "add"\nnow, $HOME {{task}} ünï'
SKILL = Skill(name="acme", files={"SKILL.md": b"TEXT-OF-ACME", "more/x.md": b"MORE-OF-ACME"})
SERVER = McpServer(name="index", argv=("/usr/bin/python3", "-I", "server.py"), env={"ROOT": "/workspace"})


def plan_of(agent: type[Agent], **changes: object) -> SessionPlan:
    wanted: dict[str, Any] = {
        "prompt": PROMPT,
        "model": "some-model",
        "endpoint": "http://127.0.0.1:8484",
        "token": "TOKEN-OF-TRIAL",
        "timeout_s": 60.0,
        "patch": b"a patch",
    }
    plan: SessionPlan = agent().session(SessionRequest(**(wanted | changes)), INSTALLATION)
    return plan


def file_of(plan: SessionPlan, end: str) -> bytes:
    (file,) = [file for file in plan.files if file.target.endswith(end)]
    return file.content


@pytest.mark.parametrize("agent", ALL)
def test_neither_prompt_nor_token_stands_in_an_argv(agent: type[Agent]) -> None:
    argv = "\0".join(plan_of(agent).argv)
    assert "TOKEN-OF-TRIAL" not in argv
    assert "Mend" not in argv


@pytest.mark.parametrize("agent", WITH_MODEL)
def test_the_prompt_goes_in_whole_and_the_token_by_the_environment_alone(agent: type[Agent]) -> None:
    plan = plan_of(agent)
    if agent is MiniSweAgent:
        assert json.loads(file_of(plan, "session.yaml"))["run"]["task"] == PROMPT
    else:
        assert plan.stdin.decode() == PROMPT
    assert list(plan.env.values()).count("TOKEN-OF-TRIAL") == 1
    assert not [file.target for file in plan.files if b"TOKEN-OF-TRIAL" in file.content]


@pytest.mark.parametrize("agent", ALL)
def test_nothing_of_our_own_environment_is_in_a_session(agent: type[Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan_of(agent)
    monkeypatch.setenv("HOME", "/somewhere/else")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-ours")
    monkeypatch.setenv("http_proxy", "http://proxy.invalid")
    assert plan_of(agent) == before
    assert before.env["HOME"] == "/home/agent"
    assert before.cwd == "/workspace"


@pytest.mark.parametrize("agent", WITH_MODEL)
def test_the_endpoint_is_the_only_address_in_a_session(agent: type[Agent]) -> None:
    plan = plan_of(agent, mcp=(SERVER,) if agent.speaks_mcp else ())
    files = [file.content.decode() for file in plan.files if not file.target.startswith(f"{AGENT_ROOT}/")]
    words = [*plan.argv, *plan.env.values(), *files]
    addresses = [part for word in words for part in word.split() if "http" in part and "://" in part]
    assert addresses
    assert all("http://127.0.0.1:8484" in address for address in addresses)


@pytest.mark.parametrize("agent", WITH_MODEL)
def test_skills_are_placed_where_the_agent_looks_or_stand_in_its_prompt(agent: type[Agent]) -> None:
    plan = plan_of(agent, skills=(SKILL,))
    if agent.skills is SkillProof.PROMPT:
        text = json.loads(file_of(plan, "session.yaml"))["run"]["task"]
        assert text.startswith(PROMPT)
        assert text.index("TEXT-OF-ACME") < text.index("MORE-OF-ACME")
        return
    assert file_of(plan, f"/home/agent/{agent.skills_directory}/acme/SKILL.md") == b"TEXT-OF-ACME"
    assert file_of(plan, f"/home/agent/{agent.skills_directory}/acme/more/x.md") == b"MORE-OF-ACME"


def test_a_skill_that_is_withheld_is_in_no_prompt() -> None:
    plan = plan_of(MiniSweAgent, skills=(SKILL,), tools=frozenset(Tool) - {Tool.SKILL})
    assert json.loads(file_of(plan, "session.yaml"))["run"]["task"] == PROMPT


@pytest.mark.parametrize("skills", [(), (SKILL,)])
@pytest.mark.parametrize("agent", [BashAgent, ClaudeCode, Codex, GeminiCli, OpenCode])
def test_the_users_skills_are_read_only_below_mounts_that_cannot_be_renamed(
    agent: type[Agent], skills: tuple[Skill, ...]
) -> None:
    mounts = [(each.target, each.access) for each in plan_of(agent, skills=skills).tmpfs]
    home = PurePosixPath("/home/agent")
    places = [home / str(agent.skills_directory), *(home / each for each in agent.skills_besides)]
    above = {each: None for place in places for each in reversed(place.parents) if home in each.parents}
    assert mounts == [
        *((str(each), Access.READ_WRITE) for each in above),
        *((str(each), Access.READ_ONLY) for each in places),
    ]


@pytest.mark.parametrize("agent", [Nop, Reference])
def test_an_agent_without_a_model_uses_no_skills(agent: type[Agent]) -> None:
    with pytest.raises(UsageError, match="knows no skills"):
        plan_of(agent, skills=(SKILL,))


def test_the_web_is_withheld_unless_it_is_granted() -> None:
    web = frozenset(Tool)
    assert plan_of(ClaudeCode).argv[-2:] == ("--disallowedTools", "WebFetch,WebSearch")
    assert "--disallowedTools" not in plan_of(ClaudeCode, tools=web).argv
    assert 'web_search = "disabled"' in file_of(plan_of(Codex), "config.toml").decode()
    assert 'web_search = "live"' in file_of(plan_of(Codex, tools=web), "config.toml").decode()
    assert json.loads(file_of(plan_of(GeminiCli), "settings.json"))["tools"]["exclude"] == [
        "web_fetch",
        "google_web_search",
    ]
    assert json.loads(file_of(plan_of(OpenCode), "opencode.json"))["permission"] == {
        "*": "allow",
        "webfetch": "deny",
        "websearch": "deny",
    }


@pytest.mark.parametrize("agent", WITH_MODEL)
@pytest.mark.parametrize("tool", list(Tool))
def test_a_tool_that_cannot_be_withheld_is_said_and_not_ignored(agent: type[Agent], tool: Tool) -> None:
    control = agent.tools[tool]
    granted = frozenset(Tool) - {tool}
    if control.names and control.obstacle:
        with pytest.raises(UsageError, match=f"cannot go without its '{tool}' tools"):
            plan_of(agent, tools=granted)
    elif control.names:
        assert plan_of(agent, tools=granted) != plan_of(agent, tools=frozenset(Tool))
    else:
        assert plan_of(agent, tools=granted) == plan_of(agent, tools=frozenset(Tool))


def test_the_configuration_of_codex_is_toml_whatever_is_asked_for() -> None:
    odd = McpServer(name='odd "name"', argv=("/x y", 'a"b\\c'), env={"K K": "v\n"})
    plan = plan_of(Codex, model='m"\\é', mcp=(SERVER, odd), effort="low")
    config = tomllib.loads(file_of(plan, "config.toml").decode())
    assert config["model"] == 'm"\\é'
    assert config["model_reasoning_effort"] == "low"
    assert config["model_providers"]["endpoint"]["base_url"] == "http://127.0.0.1:8484/v1"
    assert config["mcp_servers"]["index"]["env"] == {"ROOT": "/workspace"}
    assert config["mcp_servers"]['odd "name"']["args"] == ['a"b\\c']
    assert config["mcp_servers"]['odd "name"']["env"] == {"K K": "v\n"}


def test_a_tool_server_has_the_same_time_to_start_whatever_the_agent() -> None:
    assert plan_of(ClaudeCode, mcp=(SERVER,)).env["MCP_TIMEOUT"] == "120000"
    (server,) = tomllib.loads(file_of(plan_of(Codex, mcp=(SERVER,)), "config.toml").decode())["mcp_servers"].values()
    assert (server["startup_timeout_sec"], server["tool_timeout_sec"]) == (120, 120)
    (server,) = json.loads(file_of(plan_of(OpenCode, mcp=(SERVER,)), "opencode.json"))["mcp"].values()
    assert server["timeout"] == 120_000


@pytest.mark.parametrize(
    ("agent", "name"),
    [(BashAgent, "bash-agent"), (MiniSweAgent, "mini-swe-agent"), (Nop, "nop"), (Reference, "reference")],
)
def test_an_agent_that_does_not_speak_mcp_refuses_a_tool_server_by_the_name_it_is_asked_for(
    agent: type[Agent], name: str
) -> None:
    with pytest.raises(UsageError, match=f"^{name} does not speak MCP; give the arm `context: none`"):
        plan_of(agent, mcp=(SERVER,))


@pytest.mark.parametrize("agent", [agent for agent in ALL if agent is not ClaudeCode])
def test_only_claude_code_loads_plugins(agent: type[Agent]) -> None:
    with pytest.raises(UsageError, match="loads no plugins"):
        plan_of(agent, plugins=("/opt/plugin",))
    assert "/opt/plugin" in plan_of(ClaudeCode, plugins=("/opt/plugin",)).argv


@pytest.mark.parametrize("agent", ALL)
def test_an_effort_that_an_agent_does_not_take_is_refused(agent: type[Agent]) -> None:
    with pytest.raises(UsageError, match="takes no effort 'heroic'"):
        plan_of(agent, effort="heroic")
    for effort in agent.efforts:
        assert plan_of(agent, effort=effort) != plan_of(agent)


def test_an_effort_stands_where_the_program_looks_for_it() -> None:
    """Each of these was seen in the bodies that the real programs sent."""
    chats = json.loads(file_of(plan_of(GeminiCli, effort="low"), "settings.json"))["modelConfigs"]["overrides"]
    thinking = {"generateContentConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}}
    assert chats == [{"match": {"model": "chat-base"}, "modelConfig": thinking}]
    provider = json.loads(file_of(plan_of(OpenCode, effort="high"), "opencode.json"))["provider"]["endpoint"]
    assert provider["models"]["some-model"]["options"] == {"reasoningEffort": "high"}
    (config,) = plan_of(MiniSweAgent, effort="xhigh").files
    given = json.loads(config.content)["model"]["model_kwargs"]
    assert (given["reasoning_effort"], given["allowed_openai_params"]) == ("xhigh", ["reasoning_effort"])
    argv = plan_of(ClaudeCode, effort="max").argv
    assert argv[argv.index("--effort") + 1] == "max"


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gemini-1.5-flash"])
def test_gemini_takes_no_effort_for_a_model_that_counts_tokens_instead(model: str) -> None:
    with pytest.raises(UsageError, match=f"from Gemini 3 on, and the model is {model}"):
        plan_of(GeminiCli, model=model, effort="low")
    plan_of(GeminiCli, model=model)


def test_the_reference_agent_without_a_patch_is_refused() -> None:
    with pytest.raises(UsageError, match="no patch"):
        plan_of(Reference, patch=b" \n")


@pytest.mark.parametrize("agent", [agent for agent in ALL if agent is not Reference])
def test_no_other_agent_sees_the_reference_patch(agent: type[Agent]) -> None:
    plan = plan_of(agent, patch=b"SECRET-SOLUTION")
    assert b"SECRET-SOLUTION" not in plan.stdin
    assert not [file for file in plan.files if b"SECRET-SOLUTION" in file.content]


@pytest.mark.parametrize("agent", ALL)
def test_the_install_command_names_the_tested_version(agent: type[Agent]) -> None:
    if agent in WITH_MODEL and agent is not BashAgent:
        assert agent.tested_version in agent.install


def test_every_agent_is_an_entry_point(clone: Path) -> None:
    declared = tomllib.loads((clone / "pyproject.toml").read_text())["project"]["entry-points"]["fairtrial.agents"]
    assert {value.partition(":")[2] for value in declared.values()} == {agent.__name__ for agent in ALL}
    assert {point.name for point in entry_points(group="fairtrial.agents")} == set(declared)


MINI = """
import json, sys
print("all that it prints itself")
tool = {"role": "tool", "content": "shortened", "extra": {"returncode": 0, "raw_output": "x" * (17 << 20)}}
large = "s" * (6 << 20)
end = {"role": "exit", "content": large, "extra": {"exit_status": "Submitted", "submission": large}}
with open(sys.argv[-1], "w") as file:
    messages = [{"role": "user", "content": "m" * 5000}, tool, end]
    json.dump({"info": {"exit_status": "Submitted", "submission": large}, "messages": messages}, file, indent=2)
sys.exit(3)
"""


def test_what_mini_prints_is_one_line_that_can_be_read_however_much_its_commands_print(tmp_path: Path) -> None:
    argv = plan_of(MiniSweAgent, home=str(tmp_path)).argv
    at = argv.index(*INSTALLATION.argv)
    argv = (*argv[:at], sys.executable, "-c", MINI, *argv[at + 1 :])
    done = subprocess.run(argv, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (3, b"all that it prints itself\n")
    (line,) = done.stdout.splitlines()
    assert len(line) < LONGEST_LINE_BYTES
    tool = {"role": "tool", "content": "shortened", "extra": {"returncode": 0}}
    said = "s" * 4096
    end = {"role": "exit", "content": said, "extra": {"exit_status": "Submitted", "submission": said}}
    trajectory = json.loads(line)
    assert trajectory["messages"] == [{"role": "user", "content": "m" * 5000}, tool, end]
    assert trajectory["info"]["submission"] == said
    assert MiniSweAgent().read_report([line]).ending == "Submitted"
