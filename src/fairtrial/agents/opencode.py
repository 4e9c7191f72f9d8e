"""opencode, headless (`opencode run --format json`).

Facts it stands on (1.18.33, see docs/reference/agents/opencode.md): it speaks Chat Completions through a provider of
its configuration; the title of a session is one more call, and neither that nor what child sessions use stands in its
output; the model's name decides which tools it offers; its search and skill tools need `rg`, which it would download;
after a failed request it tries six more times in about a minute, and cannot be told otherwise.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from fairtrial.agents.events import Events, cost_of, count_of, member_of, shortened, text_of
from fairtrial.agents.installed import asked_version, bind_beside_system, found, locate, missing
from fairtrial.agents.sessions import (
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

__all__ = ["OpenCode"]

PROGRAM: Final = f"{AGENT_ROOT}/opencode"
RIPGREP: Final = f"{AGENT_ROOT}/rg"
PROVIDER: Final = "endpoint"
TOKEN_VARIABLE: Final = "MODEL_TOKEN"  # noqa: S105 - a name
CONTEXT_TOKENS: Final = 200_000
OUTPUT_TOKENS: Final = 32_000


class OpenCode:
    """The CLI of `opencode-ai`."""

    dialect: ClassVar[str | None] = "openai-chat"
    tested_version: ClassVar[str | None] = "1.18.33"
    install: ClassVar[str] = "npm install -g opencode-ai@1.18.33 && apt-get install ripgrep"
    skills: ClassVar[SkillProof] = SkillProof.TOOL
    skills_directory: ClassVar[str | None] = ".config/opencode/skills"
    skills_besides: ClassVar[tuple[str, ...]] = (
        *(".agents/skills", ".claude/skills", ".config/opencode/skill"),
        *(".opencode/skill", ".opencode/skills"),
    )
    tools: ClassVar[Mapping[Tool, ToolControl]] = {
        Tool.READ: ToolControl(names=("read",)),
        Tool.SEARCH: ToolControl(names=("glob", "grep")),
        Tool.EDIT: ToolControl(names=("edit", "write", "apply_patch")),
        Tool.SHELL: ToolControl(names=("bash",)),
        Tool.SKILL: ToolControl(names=("skill",)),
        Tool.SUBAGENT: ToolControl(names=("task",)),
        Tool.WEB: ToolControl(names=("webfetch", "websearch")),
    }
    efforts: ClassVar[tuple[str, ...]] = ("minimal", "low", "medium", "high", "xhigh")
    speaks_mcp: ClassVar[bool] = True

    def probe(self) -> AgentProbe:
        """Find `opencode` and `rg`; one native file each."""
        binary, ripgrep = locate("opencode"), locate("rg")
        if binary is None:
            return missing("no program 'opencode' on PATH", self.install)
        if ripgrep is None:
            return missing("no program 'rg' on PATH, which opencode would download", self.install)
        version = asked_version([str(binary), "--version"])
        if version is None:
            return missing(f"{binary} --version does not tell a version of opencode", self.install)
        binds = (*bind_beside_system(binary, PROGRAM), *bind_beside_system(ripgrep, RIPGREP))
        installation = Installation(argv=(PROGRAM,), binds=binds, path=(AGENT_ROOT,))
        return found(binary, version, str(self.tested_version), installation)

    def session(self, request: SessionRequest, installation: Installation) -> SessionPlan:
        """One headless session; the prompt goes in by standard input."""
        refuse_impossible(self, request)
        skills = f"{request.home}/{self.skills_directory}"
        config = json_file(f"{request.home}/.config/opencode/opencode.json", self._config(request))
        return SessionPlan(
            argv=(*installation.argv, "run", "--format", "json"),
            env=base_environment(request, installation) | _environment(request),
            stdin=request.prompt.encode(),
            files=(config, *skill_files(request, skills)),
            binds=installation.binds,
            tmpfs=keep_skills(request, skills, *self.skills_besides),
            cwd=request.workspace,
        )

    def _config(self, request: SessionRequest) -> dict[str, object]:
        model = f"{PROVIDER}/{request.model}"
        denied = withheld_names(self, request)
        return {
            "autoupdate": False,
            "share": "disabled",
            "model": model,
            "small_model": model,  # titles and summaries
            "enabled_providers": [PROVIDER],
            "permission": {"*": "allow"} | dict.fromkeys(denied, "deny"),
            "provider": {
                PROVIDER: {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": PROVIDER,
                    "options": {"baseURL": f"{request.endpoint}/v1", "apiKey": f"{{env:{TOKEN_VARIABLE}}}"},
                    "models": {
                        request.model: {
                            "name": request.model,
                            "limit": {"context": CONTEXT_TOKENS, "output": OUTPUT_TOKENS},
                            **({} if request.effort is None else {"options": {"reasoningEffort": request.effort}}),
                        }
                    },
                }
            },
            "mcp": {
                server.name: {
                    "type": "local",
                    "command": list(server.argv),
                    "environment": dict(server.env),
                    "enabled": True,
                    "timeout": SERVER_S * 1000,
                }
                for server in request.mcp
            },
        }

    def read_report(self, lines: Iterable[bytes]) -> Report:
        """No event ends its output: the last step's reason, or an error, is the end."""
        events = Events(lines)
        calls: Counter[str] = Counter()
        skills: dict[str, None] = {}
        usages: list[TokenUsage] = []
        costs: list[float | None] = []
        error: object = None
        session_id = final = ending = None
        for event in events:
            part = member_of(event, "part")
            session_id = session_id or text_of(event, "sessionID")
            match event.get("type"):
                case "tool_use":
                    name = text_of(part, "tool") or "?"
                    calls[name] += 1
                    if name == "skill" and text_of(part, "state", "status") == "completed":
                        skills[text_of(part, "state", "input", "name") or "?"] = None
                case "text":
                    final = text_of(part, "text")
                case "step_finish":
                    ending = text_of(part, "reason")
                    usages.append(_claimed_usage(member_of(part, "tokens")))
                    costs.append(cost_of(part, "cost"))
                case "error":
                    error, ending = member_of(event, "error"), "error"
                case _:
                    pass
        said = text_of(error, "data", "message") or text_of(error, "name")
        return Report(
            ended=ending not in {None, "tool-calls"},
            problem=events.problem,
            is_error=error is not None if ending is not None else None,
            error_status=count_of(error, "data", "statusCode"),
            error_text=shortened(said) if said else None,
            ending=ending,
            usage=sum_usage(usages) if usages else None,
            # Zero is what it says of a model whose price it does not know.
            cost_usd=sum(known) if (known := [cost for cost in costs if cost]) and len(known) == len(costs) else None,
            turns=len(usages) or None,
            tool_calls=dict(calls),
            skills_used=tuple(skills),
            session_id=session_id,
            final_text=final,
        )


def _environment(request: SessionRequest) -> dict[str, str]:
    return {
        TOKEN_VARIABLE: request.token,
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_SHARE": "1",
    }


def _claimed_usage(tokens: object) -> TokenUsage:
    return TokenUsage(
        uncached_input=count_of(tokens, "input"),
        cache_write=count_of(tokens, "cache", "write"),
        cache_read=count_of(tokens, "cache", "read"),
        output=count_of(tokens, "output"),
        reasoning=count_of(tokens, "reasoning"),
    )
