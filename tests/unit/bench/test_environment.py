"""What sessions can see: recorded by digest, and alike wherever no arm says otherwise."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from typing_extensions import override

from fairtrial.agents.bash_agent import BashAgent
from fairtrial.agents.claude_code import ClaudeCode
from fairtrial.agents.codex import Codex
from fairtrial.agents.gemini_cli import GeminiCli
from fairtrial.agents.mini_swe_agent import MiniSweAgent
from fairtrial.agents.opencode import OpenCode
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.environment import describe_arm, describe_tree, require_declared, undeclared
from fairtrial.errors import UsageError
from fairtrial.model.agent import Installation, McpServer, SessionPlan, SessionRequest, Tool
from fairtrial.model.bench import Arm, Phase, PluginFiles
from fairtrial.model.sandbox import Bind, File
from fairtrial.protocols import Agent
from fairtrial.workspace.tree import Tree

HERE = Installation(argv=("/opt/agent/x",), binds=(Bind(source=Path("/bin/sh"), target="/opt/agent/x"),))
ALL = frozenset(Tool) - {Tool.WEB}


def arm_of(name: str, *, deny: Tool | None = None, model: str = "m-1") -> Arm:
    phase = Phase(name="work", prompt="{task}", tools=ALL - {deny} if deny else ALL)
    return Arm(name=name, phases=(phase,), agent="x", model=model, effort=None, skills=(), grants=(), digest="d")


def see(agent: Agent, *arms: Arm, blobs: BlobStore) -> dict[str, list[dict[str, object]]]:
    return {
        arm.name: [
            undeclared("x", arm, phase, seen)
            for phase, seen in zip(arm.phases, describe_arm(agent, HERE, arm, blobs), strict=True)
        ]
        for arm in arms
    }


@pytest.mark.parametrize("agent", [BashAgent(), ClaudeCode(), Codex(), OpenCode(), GeminiCli(), MiniSweAgent()])
def test_arms_that_differ_in_what_they_declare_are_taken(agent: Agent, blobs: BlobStore) -> None:
    require_declared(see(agent, arm_of("a"), arm_of("b"), arm_of("c", model="m-2"), blobs=blobs))


@pytest.mark.parametrize("agent", [BashAgent(), ClaudeCode(), Codex(), OpenCode(), GeminiCli()])
def test_a_withheld_tool_is_declared_and_recorded(agent: Agent, blobs: BlobStore) -> None:
    require_declared(see(agent, arm_of("a"), arm_of("b", deny=Tool.SKILL), blobs=blobs))
    (seen,) = describe_arm(agent, HERE, arm_of("b", deny=Tool.SKILL), blobs)
    tools = seen["tools"]
    assert isinstance(tools, dict)
    assert set(agent.tools[Tool.SKILL].names) <= set(tools["withheld"])


class Drifting(BashAgent):
    """An agent plugin that gives each session something else."""

    def __init__(self, extra: Mapping[str, tuple[str, bytes]]) -> None:
        self._extra = extra
        self._n = count()

    @override
    def session(self, request: SessionRequest, installation: Installation) -> SessionPlan:
        plan = super().session(request, installation)
        n = next(self._n)
        for kind, (name, content) in self._extra.items():
            if kind == "variable":
                plan = replace(plan, env={**plan.env, name: str(n)})
            elif kind == "file":
                plan = replace(plan, files=(*plan.files, File(target=name, content=content % n)))
            elif kind == "mount":
                plan = replace(plan, binds=(*plan.binds, Bind(source=Path("/bin/sh"), target=f"{name}{n}")))
        return plan


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"variable": ("LUCK", b"")}, r"arms 'a' and 'b': x variables .* differ \(LUCK\)"),
        ({"file": ("/home/agent/.rc", b"%d")}, r"x configuration .* differ \(/home/agent/.rc\)"),
        (
            {"file": ("/home/agent/.claude/settings.json", b'{"hooks": {"Stop": [%d]}}')},
            r"(configuration|hooks).*settings\.json",
        ),
        ({"mount": ("/opt/more", b"")}, r"x mounts .* differ \(/opt/more0, /opt/more1\)"),
    ],
)
def test_a_difference_that_no_arm_declares_is_refused_by_name(
    blobs: BlobStore, extra: Mapping[str, tuple[str, bytes]], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        require_declared(see(Drifting(extra), arm_of("a"), arm_of("b"), blobs=blobs))


def test_a_hook_or_a_tool_server_in_one_arm_alone_is_refused_whatever_else_it_declares(blobs: BlobStore) -> None:
    found = see(BashAgent(), arm_of("a"), arm_of("b", model="m-2"), blobs=blobs)
    for aspect in ("hooks", "mcp_servers"):
        one = {name: [dict(session) for session in sessions] for name, sessions in found.items()}
        one["b"][0][f"x {aspect}"] = {"settings.json: Stop": "digest"}
        with pytest.raises(UsageError, match=f"x {aspect} differ .settings.json: Stop"):
            require_declared(one)


@pytest.mark.parametrize("agent", [ClaudeCode(), Codex(), OpenCode(), GeminiCli()])
def test_a_context_may_make_arms_differ_in_its_own_server_alone(agent: Agent, blobs: BlobStore) -> None:
    arms = (arm_of("a"), replace(arm_of("b"), context="ctags"), replace(arm_of("c"), context="ctags"))
    found = see(agent, *arms, blobs=blobs)
    require_declared(found)
    found["b"][0]["x mcp_servers"] = {"mcp.json: mcpServers.other": "digest"}
    with pytest.raises(UsageError, match=r"x mcp_servers differ .mcp\.json: mcpServers\.other"):
        require_declared(found)


@pytest.mark.parametrize("agent", [ClaudeCode(), Codex(), OpenCode(), GeminiCli()])
def test_an_arm_without_a_context_has_no_trace_of_one(agent: Agent, blobs: BlobStore) -> None:
    (seen,) = describe_arm(agent, HERE, arm_of("a"), blobs)
    (given,) = describe_arm(agent, HERE, replace(arm_of("a"), context="ctags"), blobs)
    assert "ctags" not in json.dumps(seen)
    assert seen["mcp_servers"] == {}
    assert [name.rpartition(".")[2] for name in given["mcp_servers"]] == ["ctags"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("agent", [BashAgent(), MiniSweAgent()])
def test_an_agent_that_speaks_no_mcp_is_refused_a_context(agent: Agent, blobs: BlobStore) -> None:
    with pytest.raises(UsageError, match="does not speak MCP; give the arm `context: none`"):
        describe_arm(agent, HERE, replace(arm_of("a"), context="ctags"), blobs)


class Serving(ClaudeCode):
    """Claude Code with a tool server and a hook in its configuration."""

    @override
    def session(self, request: SessionRequest, installation: Installation) -> SessionPlan:
        plan = super().session(replace(request, mcp=(McpServer(name="graph", argv=("/opt/graph",)),)), installation)
        hooks = json.dumps({"hooks": {"PreToolUse": [{"command": "x"}]}}).encode()
        return replace(plan, files=(*plan.files, File(target="/home/agent/.claude/settings.json", content=hooks)))


def test_tool_servers_and_hooks_are_recorded_as_the_agent_will_read_them(blobs: BlobStore) -> None:
    (seen,) = describe_arm(Serving(), HERE, arm_of("a"), blobs)
    assert list(seen["mcp_servers"]) == ["/opt/agent-config/mcp.json: mcpServers.graph"]  # type: ignore[call-overload]
    assert list(seen["hooks"]) == ["/home/agent/.claude/settings.json: hooks.PreToolUse"]  # type: ignore[call-overload]


def test_what_a_repository_tells_agents_is_recorded_by_kind(tmp_path: Path) -> None:
    files = {
        "CLAUDE.md": "be kind",
        "lib/deep/AGENTS.md": "here too",
        ".mcp.json": '{"mcpServers": {"db": {"command": "x"}}}',
        ".claude/settings.json": '{"hooks": {"Stop": []}, "env": {}}',
        ".claude/skills/acme/SKILL.md": "how",
        ".codex/config.toml": "[mcp_servers.graph]\ncommand = 'g'\n",
        ".gemini/settings.json": "not json",
        "src/main.py": "print()",
        ".git/hooks/post-commit": "never seen",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "GEMINI.md").symlink_to("CLAUDE.md")
    seen = {kind: sorted(found) for kind, found in describe_tree(Tree(tmp_path)).items() if isinstance(found, dict)}
    assert seen == {
        "guidance": ["CLAUDE.md", "GEMINI.md", "lib/deep/AGENTS.md"],
        "configuration": [".claude/settings.json", ".codex/config.toml", ".gemini/settings.json", ".mcp.json"],
        "skills": [".claude/skills/acme/SKILL.md"],
        "mcp_servers": [".codex/config.toml: mcp_servers.graph", ".mcp.json: mcpServers.db"],
        "hooks": [".claude/settings.json: hooks.Stop"],
    }


def test_a_plugin_is_declared_and_explains_arguments_and_mounts(blobs: BlobStore) -> None:
    plugin = PluginFiles(
        name="p",
        version="1.2.3",
        manifest_schema_version=1,
        manifest_digest="d" * 64,
        file_count=1,
        total_bytes=1,
        offers=("p:work",),
        dropped=(),
    )
    with_plugin = replace(arm_of("with"), plugin=plugin)
    require_declared(see(ClaudeCode(), arm_of("without"), with_plugin, blobs=blobs))
    (seen,) = describe_arm(ClaudeCode(), HERE, with_plugin, blobs)
    assert seen["plugins"] == {"p": "d" * 64}
    mounts = seen["mounts"]
    assert isinstance(mounts, list)
    assert "/opt/plugin" in mounts
