"""The nop agent: it does nothing, and every task must fail with it."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from fairtrial.agents.sessions import base_environment, refuse_impossible
from fairtrial.model.agent import (
    AgentProbe,
    Installation,
    Report,
    SessionPlan,
    SessionRequest,
    SkillProof,
    Tool,
    ToolControl,
)

__all__ = ["Nop"]


class Nop:
    """Ends at once with success."""

    dialect: ClassVar[str | None] = None
    tested_version: ClassVar[str | None] = None
    install: ClassVar[str] = "apt-get install coreutils"
    skills: ClassVar[SkillProof] = SkillProof.NONE
    skills_directory: ClassVar[str | None] = None
    skills_besides: ClassVar[tuple[str, ...]] = ()
    tools: ClassVar[Mapping[Tool, ToolControl]] = {}
    efforts: ClassVar[tuple[str, ...]] = ()
    speaks_mcp: ClassVar[bool] = False

    def probe(self) -> AgentProbe:
        """Always there: the sandbox has the program."""
        installation = Installation(argv=("/bin/true",))
        return AgentProbe(binary="/bin/true", version=None, details={}, installation=installation, missing=None)

    def session(self, request: SessionRequest, installation: Installation) -> SessionPlan:
        """Nothing."""
        refuse_impossible(self, request)
        env = base_environment(request, installation)
        return SessionPlan(argv=installation.argv, env=env, binds=installation.binds, cwd=request.workspace)

    def read_report(self, lines: Iterable[bytes]) -> Report:
        """It says nothing; anything that it did say is no word of its own."""
        said = any(line.strip() for line in lines)
        return Report(ended=not said, problem="output of an agent that prints nothing" if said else None)
