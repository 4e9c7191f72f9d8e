"""The reference agent: it applies the task's known-good patch, and every task must pass with it."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from fairtrial.agents.installed import asked_version, locate, missing
from fairtrial.agents.sessions import base_environment, refuse_impossible
from fairtrial.errors import UsageError
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

__all__ = ["Reference"]

GIT: Final = "/usr/bin/git"


class Reference:
    """`git apply` with the patch on standard input; outside of any repository, so that no configuration has a say."""

    dialect: ClassVar[str | None] = None
    tested_version: ClassVar[str | None] = None
    install: ClassVar[str] = "apt-get install git"
    skills: ClassVar[SkillProof] = SkillProof.NONE
    skills_directory: ClassVar[str | None] = None
    skills_besides: ClassVar[tuple[str, ...]] = ()
    tools: ClassVar[Mapping[Tool, ToolControl]] = {}
    efforts: ClassVar[tuple[str, ...]] = ()
    speaks_mcp: ClassVar[bool] = False

    def probe(self) -> AgentProbe:
        """The system's git, which the sandbox has."""
        binary = locate(GIT)
        version = None if binary is None else asked_version([GIT, "--version"])
        if version is None:
            return missing(f"no git at {GIT}", self.install)
        installation = Installation(argv=(GIT,))
        return AgentProbe(binary=GIT, version=version, details={}, installation=installation, missing=None)

    def session(self, request: SessionRequest, installation: Installation) -> SessionPlan:
        """Apply the patch, whole or not at all."""
        refuse_impossible(self, request)
        if not request.patch.strip():
            raise UsageError("the reference agent has no patch to apply; name the task's 'reference'")
        env = base_environment(request, installation)
        return SessionPlan(
            argv=(*installation.argv, "apply", "--whitespace=nowarn", "-"),
            env=env | {"GIT_DIR": "/nonexistent", "GIT_CONFIG_GLOBAL": "/dev/null"},
            stdin=request.patch,
            binds=installation.binds,
            cwd=request.workspace,
        )

    def read_report(self, lines: Iterable[bytes]) -> Report:
        """It says nothing; its exit status tells whether the patch applied."""
        said = any(line.strip() for line in lines)
        return Report(ended=not said, problem="output of an agent that prints nothing" if said else None)
