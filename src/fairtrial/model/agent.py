"""The vocabulary of agents: what a session is asked to be, what it is made of, and what its CLI says became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fairtrial.model.sandbox import AGENT_HOME, WORKSPACE, Bind, File, Tmpfs
from fairtrial.model.usage import TokenUsage

__all__ = [
    "AGENT_ROOT",
    "AgentProbe",
    "Installation",
    "McpServer",
    "Report",
    "SessionPlan",
    "SessionRequest",
    "Skill",
    "SkillProof",
    "Tool",
    "ToolControl",
]

AGENT_ROOT = "/opt/agent"
"""Where an agent's installation is mounted inside; the same for every agent, so that the mount table tells no arm."""


class SkillProof(StrEnum):
    """How an agent uses a skill, and what proves it on the wire."""

    TOOL = "tool"
    """The model calls a tool with the skill's name and a later request brings its result."""
    FILE = "file"
    """The model reads the placed file: a line of it that only this trial knows stands in a later request."""
    PROMPT = "prompt"
    """The skill's text is part of the prompt: used by construction, which is no proof that it was followed."""
    NONE = "none"
    """The agent knows no skills."""


class Tool(StrEnum):
    """Kinds of tools that an arm grants or withholds, whatever each agent calls them."""

    READ = "read"
    SEARCH = "search"
    EDIT = "edit"
    SHELL = "shell"
    SKILL = "skill"
    SUBAGENT = "subagent"
    WEB = "web"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolControl:
    """What an agent has of one kind of tool, and whether it can go without.

    Attributes:
        names: What the agent calls its tools of this kind, as the model sees them; empty when it has none.
        obstacle: Why they cannot be withheld from the model; None when they can (or when there are none).
    """

    names: tuple[str, ...] = ()
    obstacle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill that is placed where the agent looks for its user's skills.

    Attributes:
        name: Its name: one path component.
        files: Its files by path below its directory, `SKILL.md` among them.
    """

    name: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A tool server that the agent starts inside its sandbox and speaks MCP with on its standard streams.

    Attributes:
        name: Its name; the model sees its tools below it.
        argv: Program and arguments, inside the sandbox.
        env: Variables that it gets besides the session's.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """One session as an arm asks for it; all paths are inside the sandbox.

    Attributes:
        prompt: What the agent is told.
        model: The model's name as the provider knows it.
        endpoint: Base address of the model endpoint, without a path: `http://127.0.0.1:PORT`.
        token: What the endpoint takes for an API key; worth nothing anywhere else.
        timeout_s: Seconds that the session may take; the sandbox ends it, an agent that can be told is told.
        tools: Kinds of tools granted; None = all that the agent has, but for the web, which is not there.
        skills: Skills to be placed beside those of the repository.
        mcp: Tool servers.
        plugins: Directories of plugins.
        effort: How hard the model shall think, in the agent's own word; None = the agent's default.
        patch: What the reference agent applies; no other agent may see it.
        workspace: The tree to work on, and the session's directory.
        home: The session's home directory.
    """

    prompt: str
    model: str
    endpoint: str
    token: str
    timeout_s: float
    tools: frozenset[Tool] | None = None
    skills: tuple[Skill, ...] = ()
    mcp: tuple[McpServer, ...] = ()
    plugins: tuple[str, ...] = ()
    effort: str | None = None
    patch: bytes = b""
    workspace: str = WORKSPACE
    home: str = AGENT_HOME


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What of the host an agent needs, and how it is started inside.

    Attributes:
        argv: What begins every command line of it.
        binds: Its installation, read-only; a path of the host without a symbolic link in it each.
        path: Directories inside that go before the system's on PATH.
    """

    argv: tuple[str, ...]
    binds: tuple[Bind, ...] = ()
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProbe:
    """What was found of an agent on this host.

    Attributes:
        binary: Absolute path of its program, or None when it cannot be used.
        version: What it says of its version, or None.
        details: Anything else worth a record (strings only).
        installation: How it is started; None when it cannot be used.
        missing: Why it cannot be used, with the install command; None when it can.
    """

    binary: str | None
    version: str | None
    details: Mapping[str, str]
    installation: Installation | None
    missing: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """One session as a sandbox runs it: the command that the relay starts, and what it finds inside.

    Attributes:
        argv: Program and arguments; neither prompt nor token is in them.
        env: The whole environment.
        stdin: What it reads; nothing = /dev/null.
        files: Generated files: configuration, skills, prompt.
        binds: What is mounted of the host besides the workspace.
        tmpfs: Directories in memory besides the sandbox's own.
        cwd: Its directory.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes = b""
    files: tuple[File, ...] = ()
    binds: tuple[Bind, ...] = ()
    tmpfs: tuple[Tmpfs, ...] = ()
    cwd: str = WORKSPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a CLI says of its own session: claims, to be shown beside what the wire saw. None = it does not say.

    Attributes:
        ended: It printed the event that ends its output.
        problem: The first thing in its output that it would not have written itself (no JSON, no object, not UTF-8,
            an event that ends the output twice), or None.
        is_error: Whether it says that the session failed.
        error_status: The HTTP status that it blames.
        error_text: What it says went wrong, at most 500 characters.
        ending: Its own word for how the session ended.
        usage: Tokens in four buckets, for as much of the session as it counts.
        usage_by_model: The same by model.
        cost_usd: What it believes the session cost, in US dollars.
        turns: Turns, as it counts them.
        tool_calls: Tool calls of the main loop by the tool's name.
        skills_used: Skills that it says were loaded with success, in order, each once.
        session_id: Its own id of the session.
        final_text: The last thing the model said to the user.
        retries: Requests that it says it repeated.
    """

    ended: bool
    problem: str | None = None
    is_error: bool | None = None
    error_status: int | None = None
    error_text: str | None = None
    ending: str | None = None
    usage: TokenUsage | None = None
    usage_by_model: Mapping[str, TokenUsage] = field(default_factory=dict[str, TokenUsage])
    cost_usd: float | None = None
    turns: int | None = None
    tool_calls: Mapping[str, int] | None = None
    skills_used: tuple[str, ...] | None = None
    session_id: str | None = None
    final_text: str | None = None
    retries: int | None = None
