"""Arms: data that says in which sessions a task is worked on. No arm has code of its own.

Presets ship as `presets.yaml` beside this file; a person's own arms stand in a file of the same form.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final, Literal, cast

from fairtrial.bench.arm_plugin import PluginEntry, PluginPlace, capture_arm_plugin
from fairtrial.bench.blobs import BlobStore, framed_digest, read_stable
from fairtrial.bench.task_file import check_model_name
from fairtrial.config.document import Document
from fairtrial.config.names import require_known
from fairtrial.config.read import read_yaml
from fairtrial.config.validate import validate
from fairtrial.errors import ConfigError, UsageError
from fairtrial.model.agent import SkillProof, Tool
from fairtrial.model.bench import MAX_STEP_S, Arm, Blob, Budget, Phase, PhaseKind, PluginFiles, SkillFiles
from fairtrial.protocols import Agent
from fairtrial.workspace.overlay import CANDIDATE_PREFIX

__all__ = [
    "NO_CONTEXT",
    "ArmEntry",
    "ArmsFile",
    "Defaults",
    "FoundArm",
    "PhaseEntry",
    "arm_digest",
    "arms_named",
    "build_arm",
    "capture_skill",
    "fill_prompt",
    "loaded_skills",
    "read_arms",
    "require_provable",
]

MAX_SKILL_FILES: Final = 64
MAX_SKILL_BYTES: Final = 4 << 20
ALL_BUT_WEB: Final = frozenset(Tool) - {Tool.WEB}
TOOL_SETS: Final[Mapping[str, frozenset[Tool]]] = {
    "explore": frozenset({Tool.READ, Tool.SEARCH, Tool.EDIT, Tool.SHELL, Tool.SKILL}),
    "implement": frozenset({Tool.READ, Tool.SEARCH, Tool.EDIT, Tool.SHELL, Tool.SKILL, Tool.SUBAGENT}),
}
NO_CONTEXT: Final = "none"
"""What an arm names that has no context, whatever the sweep gives the others."""
_OF_PLACED: Final = frozenset({SkillProof.FILE, SkillProof.PROMPT})
"""Proofs that there are only of a skill that is placed: a line of our own in its file, its text in our prompt."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEntry:
    """One session of an arm, as written.

    Attributes:
        prompt: Template: `{task}`, `{skill}`, `{plugin}` and `{<phase>}` are replaced literally.
        name: Its name; `work` when left out.
        skill: The skill that must be proven to have run: a key of the arm's `skills`, or a skill of the repository.
        tools: `explore`, `implement`, or a list of kinds of tools; all but the web when left out.
        deny: Kinds of tools taken away again.
        produces: Glob of the one file that it may change; anything when left out.
        timeout_s: Seconds; the sweep's when left out.
        kind: `review` for a session that reads the tree and leaves a review; `implement` when left out.
    """

    prompt: str
    name: str = "work"
    skill: str | None = None
    tools: str | tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    produces: str | None = None
    timeout_s: float | None = None
    kind: PhaseKind = PhaseKind.IMPLEMENT

    def __post_init__(self) -> None:
        if not self.prompt.strip():
            raise ValueError("prompt is blank")
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name {self.name!r:.80} must be letters, digits, '.', '_' or '-'")
        if self.name in {"task", "skill", "plugin"}:
            raise ValueError(f"name {self.name!r} has a meaning of its own in prompts; choose another")
        if self.timeout_s is not None and not 0 < self.timeout_s <= MAX_STEP_S:
            raise ValueError(f"timeout_s is more than 0 and at most {MAX_STEP_S}")
        if self.produces is not None and (self.produces.startswith("/") or ".." in self.produces.split("/")):
            raise ValueError(f"produces {self.produces!r:.80} is no path below the workspace")
        if self.kind is PhaseKind.REVIEW and self.produces is not None:
            raise ValueError("a review leaves its files in a directory of its own; leave 'produces' out")
        self.granted()

    def granted(self) -> frozenset[Tool]:
        """The kinds of tools that it has."""
        if self.tools is None:
            granted = ALL_BUT_WEB
        elif isinstance(self.tools, str):
            if self.tools not in TOOL_SETS:
                raise ValueError(f"tools {self.tools!r} is unknown; valid: {', '.join(TOOL_SETS)}, or a list of kinds")
            granted = TOOL_SETS[self.tools]
        else:
            granted = frozenset(map(_tool, self.tools))
        return granted - frozenset(map(_tool, self.deny))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmEntry:
    """One arm, as written.

    Attributes:
        phases: Its sessions in order.
        like: A preset whose phases it takes instead.
        skills: Directories with a SKILL.md by skill name, below the file's directory, to be placed for the agent.
        names: Real names of the skills that a preset calls by others.
        plugin: A plugin of the agent that it works with; the preset's when left out.
        agent: Agent plugin; the sweep's when left out.
        model: Model; the sweep's when left out.
        effort: How hard the model shall think.
        grants: Hosted tools that its requests may use, by name.
        budget: What each of its trials may spend; no limit when left out.
        unnamed_models: `refuse` a request for a model that the arm does not name, or `record` it and pass it on.
        include_usage: Make a streamed Chat Completions request ask for its usage, where its client does not.
        context: Context plugin whose tools its sessions have, or `none`; the sweep's when left out.
    """

    phases: tuple[PhaseEntry, ...] = ()
    like: str | None = None
    skills: Mapping[str, str] = field(default_factory=dict[str, str])
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    plugin: PluginEntry | None = None
    agent: str | None = None
    model: str | None = None
    effort: str | None = None
    grants: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    unnamed_models: Literal["refuse", "record"] = "refuse"
    include_usage: bool = False
    context: str | None = None

    def __post_init__(self) -> None:
        if bool(self.phases) == (self.like is not None):
            raise ValueError("an arm has either phases of its own or 'like' with the name of a preset")
        names = [phase.name for phase in self.phases]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"phase {twice[0]!r} is named twice; name it once")
        if len(names) > 1 and any(phase.kind is PhaseKind.REVIEW for phase in self.phases):
            raise ValueError("a phase of kind 'review' is an arm's only phase")
        producing: set[str] = set()
        for phase in self.phases:
            for name in names:
                if f"{{{name}}}" in phase.prompt and name not in producing:
                    raise ValueError(
                        f"the prompt of phase {phase.name!r} names {{{name}}}, which produces no file before"
                    )
            if "{plugin}" in phase.prompt and self.plugin is None:
                raise ValueError(f"the prompt of phase {phase.name!r} names {{plugin}}, but the arm has none")
            if "{skill}" in phase.prompt and phase.skill is None:
                raise ValueError(f"the prompt of phase {phase.name!r} names {{skill}}, but the phase has none")
            if phase.produces is not None:
                producing.add(phase.name)
        for name in (*self.skills, *self.names.values()):
            if not _NAME.fullmatch(name):
                raise ValueError(f"skill name {name!r:.80} must be letters, digits, '.', '_' or '-'")
        if self.model is not None:
            check_model_name(self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmsFile:
    """A file of arms.

    Attributes:
        arms: By name.
    """

    arms: dict[str, ArmEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What an arm takes from the sweep where it does not say.

    Attributes:
        agent: Agent plugin.
        model: Model.
        effort: How hard the model shall think, or None.
        skills: Directories of skills by the name that presets call them by.
        plugins: Plugins by name, for arms that do not say themselves where theirs is.
        context: Context plugin, or None.
    """

    agent: str
    model: str
    effort: str | None = None
    context: str | None = None
    skills: Mapping[str, Path] = field(default_factory=dict[str, Path])
    plugins: Mapping[str, PluginPlace] = field(default_factory=dict[str, PluginPlace])


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundArm:
    """An arm as written, and where.

    Attributes:
        name: Its name.
        entry: What is written; never `like`.
        names: Real names of skills.
        root: Directory that its skills' paths start at.
        where: The file, for messages.
    """

    name: str
    entry: ArmEntry
    names: Mapping[str, str]
    root: Path
    where: Path


def read_arms(path: Path | None) -> dict[str, FoundArm]:
    """Read the presets and a person's arms, which may not take a preset's name.

    Raises:
        ConfigError: The file is wrong.
    """
    with as_file(files("fairtrial.bench") / "presets.yaml") as shipped:
        presets = validate(read_yaml(shipped), ArmsFile).arms
        found = {
            name: FoundArm(name=name, entry=entry, names={}, root=shipped.parent, where=shipped)
            for name, entry in presets.items()
        }
    if path is None:
        return found
    document = read_yaml(path)
    for name, entry in validate(document, ArmsFile).arms.items():
        found[name] = _resolve(document, name, entry, presets)
    return found


def _resolve(document: Document, name: str, entry: ArmEntry, presets: Mapping[str, ArmEntry]) -> FoundArm:
    if not _NAME.fullmatch(name):
        raise document.error(("arms", name), f"arm name {name!r:.80} must be letters, digits, '.', '_' or '-'")
    if name.startswith(CANDIDATE_PREFIX):
        raise document.error(
            ("arms", name), f"{CANDIDATE_PREFIX!r} begins the names of candidate forms; choose another"
        )
    if name in presets:
        raise document.error(("arms", name), f"{name!r} is a preset's name; choose another, and write `like: {name}`")
    if entry.like is not None:
        line, column = document.locate(("arms", name, "like"))
        require_known(entry.like, presets, what="preset", where=f"{document.path}:{line}:{column}")
        preset = presets[entry.like]
        entry = replace(
            entry,
            like=None,
            phases=preset.phases,
            plugin=entry.plugin or preset.plugin,
            context=entry.context or preset.context,
        )
    used = {phase.skill for phase in entry.phases if phase.skill is not None}
    for role in entry.names:
        if role not in used:
            raise document.error(("arms", name, "names", role), f"no phase of {name!r} uses a skill {role!r}")
    return FoundArm(name=name, entry=entry, names=entry.names, root=document.path.parent, where=document.path)


def build_arm(found: FoundArm, defaults: Defaults, blobs: BlobStore) -> Arm:
    """Capture an arm's skills and pin it by digest.

    Raises:
        ConfigError: A skill is not where it should be, or one that is demanded is placed and the plugin's as well.
        UsageError: The model is no fixed model.
    """
    entry = found.entry
    names, skills = _names_and_places(found, defaults)
    phases = tuple(
        Phase(
            name=phase.name,
            prompt=phase.prompt,
            skill=names.get(phase.skill, phase.skill) if phase.skill is not None else None,
            tools=phase.granted(),
            produces=phase.produces,
            timeout_s=phase.timeout_s,
            kind=phase.kind,
        )
        for phase in entry.phases
    )
    placed: list[SkillFiles] = []
    for name, directory in sorted(skills.items()):
        try:
            placed.append(capture_skill(name, directory, blobs))
        except UsageError as problem:
            raise ConfigError(
                f"arm {found.name!r}: {problem}", path=found.where, key=f"arms.{found.name}.skills"
            ) from None
    try:
        model = check_model_name(entry.model or defaults.model)
    except ValueError as problem:
        raise UsageError(f"arm {found.name!r}: {problem}") from problem
    plugin = None if entry.plugin is None else _capture_plugin(found, entry.plugin, phases, defaults, blobs)
    for phase in phases:
        if phase.skill in skills and plugin is not None and plugin.has_skill(phase.skill):
            raise ConfigError(
                f"arm {found.name!r}: phase {phase.name!r} demands skill {phase.skill!r}, which is placed for it and"
                f" which plugin {plugin.name!r} has too: which was used cannot be told; place it under another name",
                path=found.where,
                key=f"arms.{found.name}.skills",
            )
    arm = Arm(
        name=found.name,
        phases=phases,
        agent=entry.agent or defaults.agent,
        model=model,
        effort=entry.effort or defaults.effort,
        skills=tuple(placed),
        grants=entry.grants,
        digest="",
        budget=entry.budget,
        unnamed_models=entry.unnamed_models,
        include_usage=entry.include_usage,
        plugin=plugin,
        context=None if (context := entry.context or defaults.context) == NO_CONTEXT else context,
    )
    return replace(arm, digest=arm_digest(arm))


def _capture_plugin(
    found: FoundArm, entry: PluginEntry, phases: Sequence[Phase], defaults: Defaults, blobs: BlobStore
) -> PluginFiles:
    placed = found.entry.skills
    demanded = [phase.skill for phase in phases if phase.skill is not None and phase.skill not in placed]
    return capture_arm_plugin(found.name, entry, found.root, demanded, defaults.plugins, blobs)


def _names_and_places(found: FoundArm, defaults: Defaults) -> tuple[dict[str, str], dict[str, Path]]:
    """An arm's skills: their real names by what it calls them, and the directories of those that are placed."""
    names = dict(found.names)
    skills = {name: found.root / at for name, at in found.entry.skills.items()}
    for role, directory in defaults.skills.items():
        if any(phase.skill == role for phase in found.entry.phases) and role not in names and role not in skills:
            names[role] = directory.name
            skills[directory.name] = directory
    return names, skills


def loaded_skills(found: FoundArm, defaults: Defaults) -> frozenset[str]:
    """The skills that an arm demands, from wherever, and those that are placed for it; by their real names."""
    names, skills = _names_and_places(found, defaults)
    demanded = (phase.skill for phase in found.entry.phases)
    return frozenset(names.get(each, each) for each in demanded if each is not None) | frozenset(skills)


def capture_skill(name: str, directory: Path, blobs: BlobStore) -> SkillFiles:
    """Capture a skill's files.

    Raises:
        UsageError: It has no SKILL.md, a link, too many files or too many bytes.
    """
    if not directory.is_dir() or not (directory / "SKILL.md").is_file():
        raise UsageError(f"skill {name!r}: {directory} has no SKILL.md; name the skill's directory")
    paths = sorted(path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    if len(paths) > MAX_SKILL_FILES:
        raise UsageError(f"skill {name!r}: {directory} has more than {MAX_SKILL_FILES} files")
    captured: list[Blob] = []
    frames: list[bytes] = []
    for path in paths:
        relative = path.relative_to(directory).as_posix()
        content = read_stable(directory, relative, max_bytes=MAX_SKILL_BYTES)
        captured.append(blobs.put(relative, content))
        frames += [relative.encode(), content]
    if sum(blob.n_bytes for blob in captured) > MAX_SKILL_BYTES:
        raise UsageError(f"skill {name!r}: {directory} is larger than {MAX_SKILL_BYTES} bytes")
    return SkillFiles(name=name, files=tuple(captured), digest=framed_digest(frames))


def require_provable(arm: Arm, agent: Agent) -> None:
    """Refuse an arm that demands a proof which its agent cannot give.

    Raises:
        UsageError: It does.
    """
    placed = {skill.name for skill in arm.skills}
    for phase in arm.phases:
        if phase.skill is not None and agent.skills is SkillProof.NONE:
            raise UsageError(
                f"arm {arm.name!r}: phase {phase.name!r} must prove skill {phase.skill!r}, and agent {arm.agent!r}"
                " knows no skills; choose another agent or an arm without skills"
            )
        if phase.skill is not None and phase.tools is not None and Tool.SKILL not in phase.tools:
            raise UsageError(
                f"arm {arm.name!r}: phase {phase.name!r} must prove skill {phase.skill!r} and withholds"
                f" '{Tool.SKILL}'; grant it, or demand no skill"
            )
        if phase.skill is not None and agent.skills in _OF_PLACED and phase.skill not in placed:
            raise UsageError(
                f"arm {arm.name!r}: phase {phase.name!r} must prove skill {phase.skill!r}, which is not placed for it,"
                f" and agent {arm.agent!r} proves only what is; name its directory under the arm's `skills` (or with"
                " --skill for a preset's), or choose another agent"
            )


def fill_prompt(phase: Phase, *, task: str, artifacts: Mapping[str, str], plugin: PluginFiles | None = None) -> str:
    """Fill a prompt template in one pass: what is put in is never looked at again."""
    values = {"task": task, **artifacts, **({} if phase.skill is None else {"skill": phase.skill})}
    values |= {} if plugin is None else {"plugin": plugin.name}
    known = re.compile("|".join(re.escape(f"{{{name}}}") for name in values))
    return known.sub(lambda match: values[match[0][1:-1]], phase.prompt)


def arms_named(names: Sequence[str], found: Mapping[str, FoundArm]) -> tuple[FoundArm, ...]:
    """The arms of those names.

    Raises:
        UsageError: One is unknown, or named twice.
    """
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"--arms names {twice[0]!r} more than once; name each once")
    return tuple(found[require_known(name, found, what="arm", where="--arms")] for name in names)


def _tool(name: str) -> Tool:
    try:
        return Tool(name.casefold())
    except ValueError:
        raise ValueError(f"{name!r:.40} is no kind of tool; valid: {', '.join(Tool)}") from None


def arm_digest(arm: Arm) -> str:
    """SHA-256 over all that an arm is, in hex; the digest that it carries must be "" meanwhile."""
    value = cast("dict[str, object]", asdict(arm))
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(cast("frozenset[str]", value))
    raise TypeError(f"{value!r} has no place in a digest")
