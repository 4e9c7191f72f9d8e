"""Claude Code, headless (`claude -p`).

Facts it stands on (2.1.332, see docs/reference/agents/claude-code.md): the program is one native file; `--verbose` is
needed for `stream-json`; `subtype: success` says nothing, `is_error` does; `usage` of a result covers its own segment
of the main loop, `modelUsage` and `total_cost_usd` of the *last* result cover the session, subagents included, but no
broken try; a subagent that dies of an API error leaves `is_error: false`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from fairtrial.agents.events import (
    Events,
    cost_of,
    count_of,
    items_of,
    members_of,
    objects_of,
    shortened,
    text_of,
    truth_of,
)
from fairtrial.agents.installed import asked_version, bind_beside_system, found, locate, missing
from fairtrial.agents.sessions import (
    CONFIG_ROOT,
    SERVER_S,
    base_environment,
    json_file,
    keep_skills,
    refuse_impossible,
    skill_files,
    withheld_names,
)
from fairtrial.model.agent import (
    AGENT_ROOT,
    AgentProbe,
    Installation,
    Report,
    SessionPlan,
    SessionRequest,
    SkillProof,
    Tool,
    ToolControl,
)
from fairtrial.model.usage import TokenUsage, sum_usage
from fairtrial.store.strict_json import JsonObject

__all__ = ["ClaudeCode"]

PROGRAM: Final = f"{AGENT_ROOT}/claude"
MCP_CONFIG: Final = f"{CONFIG_ROOT}/mcp.json"
RETRIES: Final = "3"
# By default the first request goes out before slow servers have answered, and without their tools.
WITH_SERVERS: Final = {"MCP_CONNECTION_NONBLOCKING": "false", "MCP_TIMEOUT": str(SERVER_S * 1000)}


class ClaudeCode:
    """The CLI of `@anthropic-ai/claude-code`."""

    dialect: ClassVar[str | None] = "anthropic-messages"
    tested_version: ClassVar[str | None] = "2.1.332"
    install: ClassVar[str] = "npm install -g @anthropic-ai/claude-code@2.1.332"
    skills: ClassVar[SkillProof] = SkillProof.TOOL
    skills_directory: ClassVar[str | None] = ".claude/skills"
    skills_besides: ClassVar[tuple[str, ...]] = ()
    tools: ClassVar[Mapping[Tool, ToolControl]] = {
        Tool.READ: ToolControl(names=("Read",)),
        Tool.SEARCH: ToolControl(names=("Glob", "Grep")),  # there only when Bash is not
        Tool.EDIT: ToolControl(names=("Edit", "Write", "NotebookEdit")),
        Tool.SHELL: ToolControl(names=("Bash", "Monitor")),
        Tool.SKILL: ToolControl(names=("Skill",)),
        Tool.SUBAGENT: ToolControl(names=("Agent", "Workflow", "SendMessage", "ListAgents")),
        Tool.WEB: ToolControl(names=("WebFetch", "WebSearch")),
    }
    efforts: ClassVar[tuple[str, ...]] = ("low", "medium", "high", "xhigh", "max")
    speaks_mcp: ClassVar[bool] = True

    def probe(self) -> AgentProbe:
        """Find `claude`; the file that its link leads to is all that it needs."""
        binary = locate("claude")
        if binary is None:
            return missing("no program 'claude' on PATH", self.install)
        version = asked_version([str(binary), "--version"])
        if version is None:
            return missing(f"{binary} --version does not tell a version of Claude Code", self.install)
        installation = Installation(argv=(PROGRAM,), binds=bind_beside_system(binary, PROGRAM))
        return found(binary, version, str(self.tested_version), installation)

    def session(self, request: SessionRequest, installation: Installation) -> SessionPlan:
        """One headless session; the prompt goes in by standard input."""
        refuse_impossible(self, request, takes_plugins=True)
        skills = f"{request.home}/{self.skills_directory}"
        argv = [*installation.argv, "-p", "--input-format", "text", "--output-format", "stream-json", "--verbose"]
        argv += ["--model", request.model, "--permission-mode", "bypassPermissions", "--strict-mcp-config"]
        files = skill_files(request, skills)
        if request.mcp:
            argv += ["--mcp-config", MCP_CONFIG]
            files = (*files, json_file(MCP_CONFIG, {"mcpServers": _servers(request)}))
        for directory in request.plugins:
            argv += ["--plugin-dir", directory]
        if request.effort is not None:
            argv += ["--effort", request.effort]
        if names := withheld_names(self, request):
            argv += ["--disallowedTools", ",".join(names)]
        return SessionPlan(
            argv=tuple(argv),
            env=base_environment(request, installation) | _environment(request) | (WITH_SERVERS if request.mcp else {}),
            stdin=request.prompt.encode(),
            files=files,
            binds=installation.binds,
            tmpfs=keep_skills(request, skills, *self.skills_besides),
            cwd=request.workspace,
        )

    def read_report(self, lines: Iterable[bytes]) -> Report:
        """The last `result` is the one for the session; only `system` events may come after it.

        After one that is not the last there are whatever a session says that a command or a subagent in the background
        has woken again.
        """
        events, seen = Events(lines), _Seen()
        for event in events:
            seen.take(event, events.n_events)
        if seen.late is not None:
            events.note(seen.late)
        result = seen.result
        by_model = {name: _claimed_usage(usage) for name, usage in members_of(result, "modelUsage").items()}
        subtype = text_of(result, "subtype") or ""
        is_error = subtype.startswith("error") or truth_of(result, "is_error")
        said = text_of(result, "result") or " ".join(map(str, items_of(result, "errors"))) or None
        return Report(
            ended=bool(result),
            problem=events.problem,
            is_error=is_error,
            error_status=count_of(result, "api_error_status"),
            error_text=shortened(said) if is_error and said else None,
            ending=text_of(result, "terminal_reason") or subtype or None,
            usage=sum_usage(by_model.values()) if by_model else None,
            usage_by_model=by_model,
            cost_usd=cost_of(result, "total_cost_usd"),
            turns=seen.turns,
            tool_calls=dict(seen.calls),
            skills_used=tuple(seen.skills),
            session_id=text_of(result, "session_id") or seen.session_id,
            final_text=text_of(result, "result"),
            retries=seen.retries,
        )


class _Seen:
    """What the events of one output come to."""

    def __init__(self) -> None:
        self.result: JsonObject = {}
        self.session_id: str | None = None
        self.turns: int | None = None
        self.calls: Counter[str] = Counter()
        self.skills: dict[str, None] = {}
        self.retries = 0
        self.late: str | None = None
        self._asked: dict[str, str] = {}

    def take(self, event: JsonObject, n_events: int) -> None:
        kind, subtype = event.get("type"), event.get("subtype")
        if self.result and kind not in {"result", "system"}:
            self.late = self.late or f"event {n_events}: '{kind}' after the result"
        if kind == "result":
            self.result, self.late = event, None
            turns = count_of(event, "num_turns")
            self.turns = turns if self.turns is None else None if turns is None else self.turns + turns
        elif kind == "system":
            self.retries += subtype == "api_retry"
            if subtype == "init":
                self.session_id = text_of(event, "session_id")
        elif kind == "assistant":
            for block in objects_of(event, "message", "content"):
                self._take_call(block, is_main=event.get("parent_tool_use_id") is None)
        elif kind == "user":
            for block in objects_of(event, "message", "content"):
                self._take_result(block)

    def _take_call(self, block: JsonObject, *, is_main: bool) -> None:
        name, call = text_of(block, "name"), text_of(block, "id")
        if block.get("type") != "tool_use" or name is None or call is None:
            return
        if is_main:
            self.calls[name] += 1
        skill = text_of(block, "input", "skill") or text_of(block, "input", "command")
        if name == "Skill" and skill:
            self._asked[call] = skill.split()[0].removeprefix("/")

    def _take_result(self, block: JsonObject) -> None:
        skill = self._asked.get(text_of(block, "tool_use_id") or "")
        if skill and block.get("type") == "tool_result" and not truth_of(block, "is_error"):
            self.skills[skill] = None


def _environment(request: SessionRequest) -> dict[str, str]:
    return {
        "ANTHROPIC_API_KEY": request.token,
        "ANTHROPIC_BASE_URL": request.endpoint,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": RETRIES,
        # `--model` alone does not pin every call: other model names are in the program for small and for sub tasks.
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": request.model,
        "CLAUDE_CODE_SUBAGENT_MODEL": request.model,
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }


def _servers(request: SessionRequest) -> dict[str, object]:
    return {
        server.name: {
            "type": "stdio",
            "command": server.argv[0],
            "args": list(server.argv[1:]),
            "env": dict(server.env),
        }
        for server in request.mcp
    }


def _claimed_usage(claimed: object) -> TokenUsage:
    return TokenUsage(
        uncached_input=count_of(claimed, "inputTokens"),
        cache_write=count_of(claimed, "cacheCreationInputTokens"),
        cache_read=count_of(claimed, "cacheReadInputTokens"),
        output=count_of(claimed, "outputTokens"),
        reasoning=count_of(claimed, "thinkingTokens"),
    )
