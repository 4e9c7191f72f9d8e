"""gemini-cli, headless (`gemini -o stream-json`).

Facts it stands on (0.61.0, see docs/reference/agents/gemini-cli.md): it speaks generateContent; its web tools are
requests of its own to *another* model with Google's hosted search, so they are left out unless granted; it retries each
request ten times from five seconds on unless told otherwise; its exit code after an API error is the HTTP status
modulo 256 (500 gives 244); the `stats` of its last event count the main loop and its subagents by model.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from fairtrial.agents.events import Events, count_of, member_of, members_of, shortened, text_of, usage_of
from fairtrial.agents.installed import asked_version, bind_beside_system, found, locate, missing
from fairtrial.agents.sessions import (
    base_environment,
    json_file,
    keep_skills,
    refuse_impossible,
    skill_files,
    withheld_names,
)
from fairtrial.errors import UsageError
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
from fairtrial.model.usage import TokenUsage

__all__ = ["GeminiCli"]

NODE: Final = "/opt/node"
TRIES: Final = 3
SUCCESS: Final = "success"
BY_BUDGET: Final = re.compile(r"gemini-[12]\b")
"""Generations that think for a number of tokens."""
EVERY_CHAT: Final = "chat-base"
"""What the settings of every model begin with; by the name that it was asked for it would not know a renamed one."""


class GeminiCli:
    """The CLI of `@google/gemini-cli`; its package is one bundle that needs Node and nothing else."""

    dialect: ClassVar[str | None] = "gemini"
    tested_version: ClassVar[str | None] = "0.61.0"
    install: ClassVar[str] = "npm install -g @google/gemini-cli@0.61.0"
    skills: ClassVar[SkillProof] = SkillProof.TOOL
    skills_directory: ClassVar[str | None] = ".gemini/skills"
    skills_besides: ClassVar[tuple[str, ...]] = (".agents/skills",)
    tools: ClassVar[Mapping[Tool, ToolControl]] = {
        Tool.READ: ToolControl(names=("read_file", "read_many_files", "list_directory")),
        Tool.SEARCH: ToolControl(names=("glob", "grep_search")),
        Tool.EDIT: ToolControl(names=("replace", "write_file")),
        Tool.SHELL: ToolControl(names=("run_shell_command", "list_background_processes", "read_background_output")),
        Tool.SKILL: ToolControl(names=("activate_skill",)),
        Tool.SUBAGENT: ToolControl(names=("invoke_agent",)),
        Tool.WEB: ToolControl(names=("web_fetch", "google_web_search")),
    }
    efforts: ClassVar[tuple[str, ...]] = ("minimal", "low", "medium", "high")
    speaks_mcp: ClassVar[bool] = True

    def probe(self) -> AgentProbe:
        """Find `gemini` and the Node that runs it."""
        program, node = locate("gemini"), locate("node")
        if program is None:
            return missing("no program 'gemini' on PATH", self.install)
        if node is None:
            return missing("no program 'node' on PATH, which gemini-cli needs", self.install)
        version = asked_version([str(node), str(program), "--version"])
        if version is None:
            return missing(f"{program} --version does not tell a version of gemini-cli", self.install)
        package = program.parent.parent
        inside = f"{AGENT_ROOT}/{program.relative_to(package)}"
        binds = (*bind_beside_system(package, AGENT_ROOT), *bind_beside_system(node, NODE))
        installation = Installation(argv=(NODE, inside), binds=binds)
        return found(program, version, str(self.tested_version), installation)

    def session(self, request: SessionRequest, installation: Installation) -> SessionPlan:
        """One headless session; the prompt goes in by standard input."""
        refuse_impossible(self, request)
        skills = f"{request.home}/{self.skills_directory}"
        settings = json_file(f"{request.home}/.gemini/settings.json", self._settings(request))
        return SessionPlan(
            argv=(*installation.argv, "--yolo", "--output-format", "stream-json", "--model", request.model),
            env=base_environment(request, installation)
            | {
                "GEMINI_API_KEY": request.token,
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
                "GOOGLE_GEMINI_BASE_URL": request.endpoint,
            },
            stdin=request.prompt.encode(),
            files=(settings, *skill_files(request, skills)),
            binds=installation.binds,
            tmpfs=keep_skills(request, skills, *self.skills_besides),
            cwd=request.workspace,
        )

    def _settings(self, request: SessionRequest) -> dict[str, object]:
        return {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": TRIES},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "ide": {"enabled": False},
            "tools": {"exclude": list(withheld_names(self, request)), "sandbox": False},
            **_thinking(request),
            "mcpServers": {
                server.name: {
                    "command": server.argv[0],
                    "args": list(server.argv[1:]),
                    "env": dict(server.env),
                    "trust": True,
                }
                for server in request.mcp
            },
        }

    def read_report(self, lines: Iterable[bytes]) -> Report:
        """`result` is its last event."""
        events = Events(lines)
        calls: Counter[str] = Counter()
        asked: dict[str, str] = {}
        skills: dict[str, None] = {}
        said: list[str] = []
        result: object = None
        session_id = None
        for event in events:
            kind = event.get("type")
            if result is not None:
                events.note(f"event {events.n_events}: '{kind}' after the result")
            call = text_of(event, "tool_id") or ""
            match kind:
                case "init":
                    session_id = text_of(event, "session_id")
                case "message":
                    if event.get("role") == "assistant":
                        said.append(text_of(event, "content") or "")
                case "tool_use":
                    said.clear()
                    name = text_of(event, "tool_name") or "?"
                    calls[name] += 1
                    if name == "activate_skill":
                        asked[call] = text_of(event, "parameters", "name") or "?"
                case "tool_result":
                    if call in asked and event.get("status") == SUCCESS:
                        skills[asked[call]] = None
                case "result":
                    result = event
                case _:
                    pass
        ending, error = text_of(result, "status"), text_of(result, "error", "message")
        models = members_of(result, "stats", "models")
        return Report(
            ended=result is not None,
            problem=events.problem,
            is_error=None if ending is None else ending != SUCCESS,
            error_text=shortened(error) if error else None,
            ending=ending,
            usage=_claimed_usage(member_of(result, "stats")) if member_of(result, "stats") is not None else None,
            usage_by_model={name: _claimed_usage(stats) for name, stats in models.items()},
            tool_calls=dict(calls),
            skills_used=tuple(skills),
            session_id=session_id,
            final_text="".join(said) or None,
        )


def _thinking(request: SessionRequest) -> dict[str, object]:
    """The effort, for whatever of the session speaks to the model.

    Raises:
        UsageError: The model is of a generation that takes a number of tokens instead, and no request with both.
    """
    if request.effort is None:
        return {}
    if BY_BUDGET.match(request.model):
        raise UsageError(
            f"gemini-cli takes an effort from Gemini 3 on, and the model is {request.model}; leave 'effort' out"
        )
    thinking = {"thinkingConfig": {"thinkingLevel": request.effort.upper()}}
    override = {"match": {"model": EVERY_CHAT}, "modelConfig": {"generateContentConfig": thinking}}
    return {"modelConfigs": {"overrides": [override]}}


def _claimed_usage(stats: object) -> TokenUsage:
    return usage_of(
        total_input=count_of(stats, "input_tokens"),
        cache_read=count_of(stats, "cached"),
        output=count_of(stats, "output_tokens"),
    )
