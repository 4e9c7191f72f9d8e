"""What an arm's sessions can see of their surroundings, and what of it no arm asked for.

A session is described by the plan that its agent makes for it, with an empty prompt and without token and patch, so
that sessions of one arm are described alike. `undeclared` gives each aspect a label that holds what the arm declares of
it: under one label all arms must have the same value, before a sweep begins and in its rows.
"""

import hashlib
import json
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, TypeAlias, cast

from fairtrial.agents.sessions import withheld_names
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.plugin_files import PLUGIN_ROOT
from fairtrial.bench.tool_server import bridge_to
from fairtrial.errors import UsageError
from fairtrial.model.agent import Installation, SessionRequest, Skill
from fairtrial.model.bench import Arm, Phase, PluginFiles
from fairtrial.protocols import Agent
from fairtrial.workspace.tree import Tree

__all__ = [
    "ENDPOINT",
    "Seen",
    "describe_arm",
    "describe_session",
    "describe_tree",
    "is_read_unasked",
    "request_of",
    "require_declared",
    "tells_server",
    "undeclared",
]

Seen: TypeAlias = dict[str, object]
ENDPOINT: Final = "http://127.0.0.1:8484"
MOST_CONFIGURATION_BYTES: Final = 1 << 20
NO_PATCH: Final = b"a patch"
"""What stands for the task's own: the reference agent refuses to do without."""
_EXPLAINED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "version": (),
    "plugin": (),
    "arguments": ("model", "effort", "tools", "skills", "plugin", "context"),
    "variables": ("model", "effort", "tools", "context"),
    "configuration": ("model", "effort", "tools", "skills", "context"),
    "hooks": (),
    "mcp_servers": (),
    "mounts": ("skills", "plugin", "context"),
}
"""For each aspect, the keys of an arm that may make it differ."""
_GUIDANCE: Final = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENTS.override.md", "GEMINI.md", ".cursorrules")
_CONFIGURATION: Final = (
    ".mcp.json",
    "opencode.json",
    "opencode.jsonc",
    ".claude/*",
    ".codex/*",
    ".gemini/*",
    ".opencode/*",
    ".agents/*",
)
_SKILLS: Final = ("*/skills/*", "*/skill/*")
_SERVER_KEYS: Final = ("mcpServers", "mcp_servers", "mcp")
_HOOK_KEYS: Final = ("hooks", "notify")


def request_of(
    arm: Arm, phase: Phase, *, prompt: str, token: str, timeout_s: float, skills: Sequence[Skill], patch: bytes
) -> SessionRequest:
    """One phase of an arm as its agent is asked for it."""
    return SessionRequest(
        prompt=prompt,
        model=arm.model,
        endpoint=ENDPOINT,
        token=token,
        timeout_s=timeout_s,
        tools=phase.tools,
        skills=tuple(skills),
        plugins=() if arm.plugin is None else (PLUGIN_ROOT,),
        mcp=() if arm.context is None else (bridge_to(arm.context),),
        effort=arm.effort,
        patch=patch,
    )


def describe_session(
    agent: Agent,
    installation: Installation,
    request: SessionRequest,
    skills: Mapping[str, str],
    plugin: PluginFiles | None = None,
) -> Seen:
    """Describe a session without what differs from task to task and from trial to trial.

    Variables and files stand with digests, everything else with names.

    Args:
        agent: The agent.
        installation: What of the host it needs.
        request: What it is asked.
        skills: Digests of the placed skills by name.
        plugin: The plugin that it works with.

    Raises:
        UsageError: The agent cannot do what is asked.
    """
    plan = agent.session(replace(request, prompt="", token="", patch=NO_PATCH, timeout_s=1.0), installation)
    home = f"{request.home}/{agent.skills_directory}/" if agent.skills_directory is not None else None
    files = {file.target: file.content for file in plan.files if home is None or not file.target.startswith(home)}
    found = [_servers_and_hooks(target, content) for target, content in files.items()]
    granted = "all but web" if request.tools is None else ",".join(sorted(request.tools))
    return {
        "tools": {"granted": granted, "withheld": list(withheld_names(agent, request))},
        "skills": dict(skills),
        "plugins": {} if plugin is None else {plugin.name: plugin.manifest_digest},
        "arguments": _digest(json.dumps(plan.argv).encode()),
        "variables": {name: _digest(value.encode()) for name, value in sorted(plan.env.items())},
        "configuration": {target: _digest(content) for target, content in sorted(files.items())},
        "mcp_servers": {name: digest for servers, _ in found for name, digest in servers.items()},
        "hooks": {name: digest for _, hooks in found for name, digest in hooks.items()},
        "mounts": sorted(
            {*(bind.target for bind in plan.binds), *(each.target for each in plan.tmpfs), *request.plugins}
        ),
        "generated_files": sorted(file.target for file in plan.files),
    }


def describe_arm(agent: Agent, installation: Installation, arm: Arm, blobs: BlobStore) -> tuple[Seen, ...]:
    """Describe an arm's sessions before any of them runs, in the order of its phases.

    Raises:
        UsageError: The agent cannot do what the arm asks.
    """
    skills = [Skill(name=each.name, files={blob.name: blobs.read(blob) for blob in each.files}) for each in arm.skills]
    digests = {each.name: each.digest for each in arm.skills}
    return tuple(
        {
            "phase": phase.name,
            **describe_session(
                agent,
                installation,
                request_of(arm, phase, prompt="", token="", timeout_s=1.0, skills=skills, patch=b""),
                digests,
                arm.plugin,
            ),
        }
        for phase in arm.phases
    )


def describe_tree(tree: Tree) -> Seen:
    """What a repository itself tells agents: guidance, configuration, hooks, tool servers and skills, by digest."""
    guidance: dict[str, str] = {}
    configuration: dict[str, str] = {}
    skills: dict[str, str] = {}
    servers: dict[str, str] = {}
    hooks: dict[str, str] = {}
    for item in tree.walk():
        path = item.path.decode(errors="backslashreplace")
        if not is_read_unasked(path) or stat.S_ISDIR(item.mode):
            continue
        is_configuration = _is_configuration(path)
        content = _content(tree, item.path, item.mode)
        if is_configuration and any(fnmatchcase(path, pattern) for pattern in _SKILLS):
            skills[path] = _digest(content)
        elif is_configuration:
            configuration[path] = _digest(content)
            more_servers, more_hooks = _servers_and_hooks(path, content)
            servers |= more_servers
            hooks |= more_hooks
        else:
            guidance[path] = _digest(content)
    return {
        "guidance": guidance,
        "configuration": configuration,
        "skills": skills,
        "mcp_servers": servers,
        "hooks": hooks,
    }


def is_read_unasked(path: str) -> bool:
    """Whether agents read a file of the tree because it is there: guidance, settings, skills."""
    return _is_configuration(path) or path.rpartition("/")[2] in _GUIDANCE


def _is_configuration(path: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in _CONFIGURATION)


def tells_server(path: str, content: bytes, name: str) -> bool:
    """Whether a configuration file has a tool server of this name.

    One that is not read here, since it has comments, counts when it speaks of such servers and has the name as a key.
    """
    if not _is_configuration(path):
        return False
    servers, _ = _servers_and_hooks(path, content)
    if any(server == f"{path}: {key}.{name}" for server in servers for key in _SERVER_KEYS):
        return True
    has_key = re.search(rb'"%b"\s*:\s*\{' % re.escape(name.encode()), content) is not None
    return path.endswith(".jsonc") and has_key and any(f'"{key}"'.encode() in content for key in _SERVER_KEYS)


def undeclared(agent: str, arm: Arm, phase: Phase, seen: Seen) -> Seen:
    """Each aspect of what a session sees, under a label that says for whom it must be the same; pure."""
    declared = {
        "model": arm.model,
        "effort": arm.effort,
        "tools": None if phase.tools is None else sorted(phase.tools),
        "skills": {skill.name: skill.digest for skill in arm.skills},
        "plugin": None if arm.plugin is None else arm.plugin.manifest_digest,
        "context": arm.context,
    }
    labelled: Seen = {}
    for aspect, value in seen.items():
        causes = _EXPLAINED_BY.get(aspect)
        if causes is None:
            continue
        key = _digest(json.dumps([declared[cause] for cause in causes]).encode())[:8]
        like = f" with the same {', '.join(causes)} ({key})" if causes else ""
        labelled[f"{agent} {aspect}{like}"] = _without_own(value, arm.context) if aspect == "mcp_servers" else value
    return labelled


def _without_own(servers: object, context: str | None) -> object:
    """Tool servers but that of the arm's own context: any other must be the same for all arms."""
    if context is None or not isinstance(servers, dict):
        return servers
    named = cast("dict[str, object]", servers)
    return {name: digest for name, digest in named.items() if not name.endswith(f".{context}")}


def require_declared(arms: Mapping[str, Iterable[Seen]]) -> None:
    """Refuse arms that differ in what none of them declares.

    Args:
        arms: What `undeclared` says of each session, by arm.

    Raises:
        UsageError: They do; the message names arms, aspect and what differs.
    """
    first: dict[str, tuple[str, object]] = {}
    for arm, sessions in arms.items():
        for session in sessions:
            for label, value in session.items():
                other, before = first.setdefault(label, (arm, value))
                if before != value:
                    raise UsageError(
                        f"arms {other!r} and {arm!r}: {label} differ ({_difference(before, value)}), and neither says"
                        " so; see the agent plugin: what it makes of an arm may depend on the arm alone"
                    )


def _difference(before: object, now: object) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        old, new = cast("dict[str, object]", before), cast("dict[str, object]", now)
        return ", ".join(name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name))
    if isinstance(before, list) and isinstance(now, list):
        return ", ".join(sorted({*map(str, cast("list[object]", before))} ^ {*map(str, cast("list[object]", now))}))
    return f"{before!s:.40} and {now!s:.40}"


def _servers_and_hooks(path: str, content: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """Tool servers and hooks that a configuration file names, each with a digest of what it says."""
    try:
        parsed: object = tomllib.loads(content.decode()) if path.endswith(".toml") else json.loads(content)
    except (ValueError, RecursionError):
        return {}, {}
    if not isinstance(parsed, dict):
        return {}, {}
    document = cast("dict[str, object]", parsed)
    return _members(path, document, _SERVER_KEYS), _members(path, document, _HOOK_KEYS)


def _members(path: str, document: Mapping[str, object], keys: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key in keys:
        value = document.get(key)
        members = cast("dict[str, object]", value) if isinstance(value, dict) else {"": value} if value else {}
        for name, member in members.items():
            found[f"{path}: {key}{f'.{name}' if name else ''}"] = _digest(
                json.dumps(member, sort_keys=True, default=str).encode()
            )
    return found


def _content(tree: Tree, path: bytes, mode: int) -> bytes:
    if stat.S_ISLNK(mode):
        return b"link to " + tree.read_link(path)
    return tree.read_file(path, MOST_CONFIGURATION_BYTES) if stat.S_ISREG(mode) else b"special file"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
