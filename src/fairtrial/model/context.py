"""The vocabulary of contexts: an index of a task's tree, what makes it, and what answers from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fairtrial.model.sandbox import Bind

__all__ = ["CONTEXT_ROOT", "INDEX", "ContextCommand", "ContextInstallation", "ContextProbe", "Described"]

CONTEXT_ROOT: Final = "/opt/context"
"""Where a context's programs and files are mounted, in its own sandboxes only."""
INDEX: Final = f"{CONTEXT_ROOT}/index"
"""Where the index is: written by what builds it, read-only for what proves it and for what serves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextInstallation:
    """What of the host a context needs, and how its programs are started inside.

    Attributes:
        programs: What begins the command line of each program, by the context's own name for it.
        binds: Its files, read-only; a path of the host without a symbolic link in it each.
    """

    programs: Mapping[str, tuple[str, ...]]
    binds: tuple[Bind, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextProbe:
    """What was found of a context on this host.

    Attributes:
        version: What makes its index and serves it, with versions, in one line; None when it cannot be used.
        details: Anything else worth a record.
        installation: How it is started; None when it cannot be used.
        missing: Why it cannot be used, with the install command; None when it can.
    """

    version: str | None
    details: Mapping[str, str]
    installation: ContextInstallation | None
    missing: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCommand:
    """A command of a context, run in a sandbox of its own without network; its directory is the tree.

    Attributes:
        argv: Program and arguments.
        env: Variables besides HOME, LANG, LC_ALL, PATH and TMPDIR.
        wall_s: Seconds that it may take; of no meaning for a server, which lives as long as its session.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    wall_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a tool server says of itself when it is asked.

    Attributes:
        name: Its name.
        version: Its version.
        protocol: The version of MCP that it speaks.
        tools: Names of all its tools, sorted.
    """

    name: str
    version: str
    protocol: str
    tools: tuple[str, ...]
