"""What every agent's session is made of: its environment, the files placed in it, and the refusal of what cannot be."""

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from fairtrial.errors import UsageError
from fairtrial.model.agent import Installation, SessionRequest, SkillProof, Tool
from fairtrial.model.sandbox import Access, File, Tmpfs
from fairtrial.plugins import name_of
from fairtrial.protocols import Agent

__all__ = [
    "CONFIG_ROOT",
    "SERVER_S",
    "SYSTEM_PATH",
    "base_environment",
    "json_file",
    "keep_skills",
    "refuse_impossible",
    "skill_files",
    "withheld_names",
    "withheld_tools",
]

CONFIG_ROOT: Final = "/opt/agent-config"
"""Where generated files are that belong into no home directory."""
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
SERVER_S: Final = 120
"""How long a tool server may take to start, with every agent: what each allows by itself differs."""
_PAGE_BYTES: Final = 4096
_ABOVE_SKILLS_BYTES: Final = 512 << 20
"""What an agent may write beside its user's skills: settings, transcripts, caches."""


def base_environment(request: SessionRequest, installation: Installation) -> dict[str, str]:
    """The variables that every session has; an agent's own come on top."""
    return {
        "CI": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "HOME": request.home,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "LOGNAME": "agent",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "PATH": ":".join((*installation.path, SYSTEM_PATH)),
        "SHELL": "/bin/bash",
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108 - inside the sandbox
        "USER": "agent",
    }


def withheld_tools(request: SessionRequest) -> frozenset[Tool]:
    """The kinds of tools that the session goes without."""
    granted = frozenset(Tool) - {Tool.WEB} if request.tools is None else request.tools
    return frozenset(Tool) - granted


def withheld_names(agent: Agent, request: SessionRequest) -> tuple[str, ...]:
    """The names of the tools that the session goes without, in the order of the kinds."""
    withheld = withheld_tools(request)
    return tuple(name for tool in Tool if tool in withheld and tool in agent.tools for name in agent.tools[tool].names)


def refuse_impossible(agent: Agent, request: SessionRequest, *, takes_plugins: bool = False) -> None:
    """Refuse what the agent cannot do, before anything is spent.

    Raises:
        UsageError: It cannot withhold a tool, use skills, speak MCP, load plugins or take the effort.
    """
    name = name_of("fairtrial.agents", type(agent))
    for tool in sorted(withheld_tools(request)):
        control = agent.tools.get(tool)
        if control is not None and control.names and control.obstacle is not None:
            raise UsageError(
                f"{name} cannot go without its '{tool}' tools ({', '.join(control.names)}): {control.obstacle}; "
                f"grant '{tool}' or choose another agent"
            )
    if request.skills and agent.skills is SkillProof.NONE:
        raise UsageError(f"{name} knows no skills; take them out of the arm or choose another agent")
    if request.mcp and not agent.speaks_mcp:
        raise UsageError(f"{name} does not speak MCP; give the arm `context: none` or choose another agent")
    if request.plugins and not takes_plugins:
        raise UsageError(f"{name} loads no plugins; take them out of the arm or choose claude-code")
    if request.effort is not None and request.effort not in agent.efforts:
        known = ", ".join(agent.efforts) or "none"
        raise UsageError(f"{name} takes no effort '{request.effort}'; it takes: {known}")


def skill_files(request: SessionRequest, directory: str) -> tuple[File, ...]:
    """The skills' files below the directory in which the agent looks for its user's skills."""
    return tuple(
        File(target=f"{directory}/{skill.name}/{path}", content=content)
        for skill in request.skills
        for path, content in sorted(skill.files.items())
    )


def keep_skills(request: SessionRequest, directory: str, *besides: str) -> tuple[Tmpfs, ...]:
    """Keep the user's skills as they are placed, or none where none are: one made meanwhile could shadow another.

    Their directory is read-only, as are all others in which the agent looks (`besides`, below the home). A directory
    above one could be renamed with all that is mounted in it, and another put in its place; a mount cannot, so each of
    them is one.
    """
    home = PurePosixPath(request.home)
    places = [PurePosixPath(directory), *(home / each for each in besides)]
    above = {each: None for place in places for each in reversed(place.parents) if home in each.parents}
    return (
        *(Tmpfs(target=str(each), size_bytes=_ABOVE_SKILLS_BYTES) for each in above),
        *(Tmpfs(target=str(each), size_bytes=_PAGE_BYTES, access=Access.READ_ONLY) for each in places),
    )


def json_file(target: str, value: Mapping[str, object]) -> File:
    """A generated configuration file."""
    return File(target=target, content=json.dumps(value, indent=1, sort_keys=True).encode() + b"\n")
