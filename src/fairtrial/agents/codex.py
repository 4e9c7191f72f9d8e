"""codex, headless (`codex exec --json`).

Facts it stands on (0.171.0, see docs/reference/agents/codex.md): it speaks Responses only; `turn.completed.usage` sums
the main thread's calls with the cached tokens inside the input; nothing in its output knows what child threads used; an
item of type `error` stands in healthy runs too; `request_max_retries` and `stream_max_retries` multiply; a hosted
web search is offered unless it is switched off; all work is done with one shell tool, which cannot be taken away.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final

from fairtrial.agents.events import Events, count_of, member_of, shortened, text_of, usage_of
from fairtrial.agents.installed import asked_version, bind_beside_system, found, locate, missing
from fairtrial.agents.sessions import (
    SERVER_S,
    base_environment,
    keep_skills,
    refuse_impossible,
    skill_files,
    withheld_tools,
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
from fairtrial.model.sandbox import File
from fairtrial.model.usage import TokenUsage, sum_usage

__all__ = ["Codex"]

TOKEN_VARIABLE: Final = "MODEL_TOKEN"  # noqa: S105 - a name
SHELL_TOOLS: Final = ("exec_command", "write_stdin")
ONE_SHELL: Final = "codex reads, searches, edits and runs with one shell tool"
RETRIES: Final = 2
NATIVE: Final = "codex-linux-*/vendor/*/bin/codex"


class Codex:
    """The CLI of `@openai/codex`; the native program is used, not its Node launcher."""

    dialect: ClassVar[str | None] = "openai-responses"
    tested_version: ClassVar[str | None] = "0.171.0"
    install: ClassVar[str] = "npm install -g @openai/codex@0.171.0"
    skills: ClassVar[SkillProof] = SkillProof.FILE
    skills_directory: ClassVar[str | None] = ".codex/skills"
    skills_besides: ClassVar[tuple[str, ...]] = (".agents/skills",)
    tools: ClassVar[Mapping[Tool, ToolControl]] = {
        Tool.READ: ToolControl(names=SHELL_TOOLS, obstacle=ONE_SHELL),
        Tool.SEARCH: ToolControl(names=SHELL_TOOLS, obstacle=ONE_SHELL),
        Tool.EDIT: ToolControl(names=SHELL_TOOLS, obstacle=ONE_SHELL),
        Tool.SHELL: ToolControl(names=SHELL_TOOLS, obstacle=ONE_SHELL),
        Tool.SKILL: ToolControl(names=("skills",)),  # no tool: a list of files in the first messages
        Tool.SUBAGENT: ToolControl(names=("multi_agent_v1",)),
        Tool.WEB: ToolControl(names=("web_search",)),
    }
    efforts: ClassVar[tuple[str, ...]] = ("minimal", "low", "medium", "high", "xhigh")
    speaks_mcp: ClassVar[bool] = True

    def probe(self) -> AgentProbe:
        """Find `codex` and, where that is npm's launcher, the native program beside it."""
        program = locate("codex")
        if program is None:
            return missing("no program 'codex' on PATH", self.install)
        binary = _native(program)
        version = None if binary is None else asked_version([str(binary), "--version"])
        if binary is None or version is None:
            return missing(f"{program} leads to no native codex that tells its version", self.install)
        root = binary.parent.parent if binary.parent.name == "bin" else binary.parent
        inside = f"{AGENT_ROOT}/{binary.relative_to(root)}"
        installation = Installation(argv=(inside,), binds=bind_beside_system(root, AGENT_ROOT))
        return found(binary, version, str(self.tested_version), installation)

    def session(self, request: SessionRequest, installation: Installation) -> SessionPlan:
        """One headless session; the prompt goes in by standard input, everything else stands in its configuration."""
        refuse_impossible(self, request)
        home, skills = f"{request.home}/.codex", f"{request.home}/{self.skills_directory}"
        config = File(target=f"{home}/config.toml", content=_config(request).encode())
        return SessionPlan(
            argv=(*installation.argv, "exec", "--json", "--strict-config", "--skip-git-repo-check", "-"),
            env=base_environment(request, installation) | {"CODEX_HOME": home, TOKEN_VARIABLE: request.token},
            stdin=request.prompt.encode(),
            files=(config, *skill_files(request, skills)),
            binds=installation.binds,
            tmpfs=keep_skills(request, skills, *self.skills_besides),
            cwd=request.workspace,
        )

    def read_report(self, lines: Iterable[bytes]) -> Report:
        """`turn.completed` or `turn.failed` ends a run."""
        events = Events(lines)
        calls: Counter[str] = Counter()
        usages: list[TokenUsage] = []
        session_id = ending = error = final = None
        retries = turns = 0
        for event in events:
            kind = event.get("type")
            item = member_of(event, "item")
            if kind == "thread.started":
                session_id = text_of(event, "thread_id")
            elif kind == "error":
                error = text_of(event, "message")
                retries += bool(error and error.startswith("Reconnecting"))
            elif kind in {"turn.completed", "turn.failed"}:
                ending = str(kind)
                turns += 1
                error = text_of(event, "error", "message") or error
                if (usage := member_of(event, "usage")) is not None:
                    usages.append(_claimed_usage(usage))
            elif kind == "item.completed":
                if text_of(item, "type") == "agent_message":
                    final = text_of(item, "text")
                elif name := _tool_of(item):
                    calls[name] += 1
        is_error = None if ending is None else ending == "turn.failed"
        return Report(
            ended=ending is not None,
            problem=events.problem,
            is_error=is_error,
            error_text=shortened(error) if is_error and error else None,
            ending=ending,
            usage=sum_usage(usages) if usages else None,
            turns=turns or None,
            tool_calls=dict(calls),
            session_id=session_id,
            final_text=final,
            retries=retries,
        )


def _native(program: Path) -> Path | None:
    if program.suffix != ".js":
        return program
    package = program.parent.parent
    places = (package.parent, package / "node_modules" / "@openai")
    return next((each.resolve() for place in places for each in sorted(place.glob(NATIVE))), None)


def _config(request: SessionRequest) -> str:
    """The configuration; its strings are written as JSON writes them, which TOML reads the same."""
    withheld = withheld_tools(request)
    lines = [
        f"model = {json.dumps(request.model)}",
        'model_provider = "endpoint"',
        'approval_policy = "never"',
        'sandbox_mode = "danger-full-access"',  # namespaces do not nest: the sandbox is ours
        f'web_search = "{"disabled" if Tool.WEB in withheld else "live"}"',
        "check_for_update_on_startup = false",
    ]
    if request.effort is not None:
        lines.append(f"model_reasoning_effort = {json.dumps(request.effort)}")
    lines += [
        "[model_providers.endpoint]",
        'name = "endpoint"',
        f"base_url = {json.dumps(request.endpoint + '/v1')}",
        f"env_key = {json.dumps(TOKEN_VARIABLE)}",
        'wire_api = "responses"',
        f"request_max_retries = {RETRIES}",
        f"stream_max_retries = {RETRIES}",
        "[analytics]",
        "enabled = false",
        "[history]",
        'persistence = "none"',
        "[agents]",
        f"enabled = {'false' if Tool.SUBAGENT in withheld else 'true'}",
        "[skills]",
        f"include_instructions = {'false' if Tool.SKILL in withheld else 'true'}",
        "[skills.bundled]",
        "enabled = false",
    ]
    for server in request.mcp:
        lines += [
            f"[mcp_servers.{json.dumps(server.name)}]",
            f"command = {json.dumps(server.argv[0])}",
            f"args = {json.dumps(list(server.argv[1:]))}",
            "required = true",
            f"startup_timeout_sec = {SERVER_S}",
            f"tool_timeout_sec = {SERVER_S}",
            f"[mcp_servers.{json.dumps(server.name)}.env]",
            *(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in sorted(server.env.items())),
        ]
    return "\n".join(lines) + "\n"


def _tool_of(item: object) -> str | None:
    """The tool that a completed item is a call of, as the model named it where the item tells."""
    match text_of(item, "type"):
        case "command_execution":
            return "exec_command"
        case "file_change":
            return "apply_patch"
        case "mcp_tool_call":
            return f"mcp__{text_of(item, 'server')}.{text_of(item, 'tool')}"
        case "collab_tool_call":
            return text_of(item, "tool")
        case "web_search":
            return "web_search"
        case _:
            return None


def _claimed_usage(usage: object) -> TokenUsage:
    return usage_of(
        total_input=count_of(usage, "input_tokens"),
        cache_read=count_of(usage, "cached_input_tokens"),
        cache_write=count_of(usage, "cache_write_input_tokens"),
        output=count_of(usage, "output_tokens"),
        reasoning=count_of(usage, "reasoning_output_tokens"),
    )
