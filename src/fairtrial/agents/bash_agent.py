"""bash-agent, our own: `payload/bash_agent.py`, run by the sandbox's python3, so that it is wherever fairtrial is."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final

from fairtrial.agents.events import Events, count_of, items_of, member_of, members_of, shortened, text_of, truth_of
from fairtrial.agents.installed import asked_version, found, missing
from fairtrial.agents.sessions import base_environment, keep_skills, refuse_impossible, skill_files, withheld_tools
from fairtrial.host.payload import payload_file
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

__all__ = ["BashAgent"]

PYTHON: Final = "/usr/bin/python3"
INSIDE: Final = f"{AGENT_ROOT}/bash_agent.py"
VERSION: Final = "1"
ONE_SHELL: Final = "it reads, searches, edits and runs with one shell tool"


class BashAgent:
    """A tool loop on the Messages API with the tools Bash and Skill."""

    dialect: ClassVar[str | None] = "anthropic-messages"
    tested_version: ClassVar[str | None] = VERSION
    install: ClassVar[str] = "apt-get install python3"
    skills: ClassVar[SkillProof] = SkillProof.TOOL
    skills_directory: ClassVar[str | None] = ".claude/skills"
    skills_besides: ClassVar[tuple[str, ...]] = ()
    tools: ClassVar[Mapping[Tool, ToolControl]] = {
        Tool.READ: ToolControl(names=("Bash",), obstacle=ONE_SHELL),
        Tool.SEARCH: ToolControl(names=("Bash",), obstacle=ONE_SHELL),
        Tool.EDIT: ToolControl(names=("Bash",), obstacle=ONE_SHELL),
        Tool.SHELL: ToolControl(names=("Bash",), obstacle=ONE_SHELL),
        Tool.SKILL: ToolControl(names=("Skill",)),
        Tool.SUBAGENT: ToolControl(),
        Tool.WEB: ToolControl(),
    }
    efforts: ClassVar[tuple[str, ...]] = ()
    speaks_mcp: ClassVar[bool] = False

    def probe(self) -> AgentProbe:
        """Our own file and the system's python3, 3.9 or newer."""
        told = asked_version([PYTHON, "--version"])
        if told is None or tuple(map(int, told.split(".")[:2])) < (3, 9):
            return missing(f"no Python 3.9 or newer at {PYTHON}", self.install)
        file = Path(__file__).resolve().parents[1] / "payload" / "bash_agent.py"
        installation = Installation(argv=(PYTHON, "-I", "-S", INSIDE))
        return found(file, VERSION, VERSION, installation)

    def session(self, request: SessionRequest, installation: Installation) -> SessionPlan:
        """One session; the prompt goes in by standard input."""
        refuse_impossible(self, request)
        skills = f"{request.home}/{self.skills_directory}"
        own = {
            "MODEL": request.model,
            "MODEL_ENDPOINT": request.endpoint,
            "MODEL_TOKEN": request.token,
            "BASH_AGENT_TOOLS": "bash" if Tool.SKILL in withheld_tools(request) else "bash,skill",
        }
        return SessionPlan(
            argv=installation.argv,
            env=base_environment(request, installation) | own,
            stdin=request.prompt.encode(),
            files=(payload_file(INSIDE), *skill_files(request, skills)),
            binds=installation.binds,
            tmpfs=keep_skills(request, skills, *self.skills_besides),
            cwd=request.workspace,
        )

    def read_report(self, lines: Iterable[bytes]) -> Report:
        """`result` is its last event."""
        events = Events(lines)
        result: object = None
        for event in events:
            if result is not None:
                events.note(f"event {events.n_events}: '{event.get('type')}' after the result")
            if event.get("type") == "result":
                result = event
        if result is None:
            return Report(ended=False, problem=events.problem)
        usage, error = member_of(result, "usage"), text_of(result, "error")
        calls = members_of(result, "tool_calls")
        return Report(
            ended=True,
            problem=events.problem,
            is_error=truth_of(result, "is_error"),
            error_status=count_of(result, "error_status"),
            error_text=shortened(error) if error else None,
            ending=text_of(result, "ending"),
            usage=TokenUsage(
                uncached_input=count_of(usage, "input_tokens"),
                cache_write=count_of(usage, "cache_creation_input_tokens"),
                cache_read=count_of(usage, "cache_read_input_tokens"),
                output=count_of(usage, "output_tokens"),
            ),
            turns=count_of(result, "turns"),
            tool_calls={name: count for name in calls if (count := count_of(calls, name)) is not None},
            skills_used=tuple(map(str, items_of(result, "skills"))),
            final_text=text_of(result, "text"),
            retries=count_of(result, "retries"),
        )
