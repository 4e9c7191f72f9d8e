"""What a sweep of the agent lane depends on: read, captured and pinned, and compared with what was recorded."""

import hashlib
import json
import os
import platform
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from fairtrial import __version__
from fairtrial.bench.arm_plugin import PluginPlace
from fairtrial.bench.arms import Defaults, loaded_skills, read_arms, require_provable
from fairtrial.bench.blobs import BlobStore, read_stable
from fairtrial.bench.brought import refuse_brought, refuse_traces
from fairtrial.bench.candidate import Candidate, build_arms
from fairtrial.bench.controls import NOP, REFERENCE, control_arm, exit_at_import
from fairtrial.bench.controls_note import CHECKING, read_controls
from fairtrial.bench.environment import Seen, describe_arm, require_declared, undeclared
from fairtrial.bench.index import find_context
from fairtrial.bench.node import BLOBS
from fairtrial.bench.review import require_same_kind
from fairtrial.bench.secrecy import require_secrecy
from fairtrial.bench.shadows import refuse_shadowed_skills
from fairtrial.bench.tasks import bind_task, binding_changes, read_task_file, select_tasks, task_binding
from fairtrial.bench.trial import read_skill_places
from fairtrial.errors import HostError, IntegrityError, UsageError
from fairtrial.gateway.script import read_script
from fairtrial.host.files import remove_tree
from fairtrial.model.bench import Arm, Blob, Task
from fairtrial.plugins import load_plugin
from fairtrial.protocols import Agent
from fairtrial.store.layout import Results
from fairtrial.store.sweep_file import SweepFile
from fairtrial.sweep.bench_plan import BenchOptions, PlannedBench, plan_bench, plan_controls
from fairtrial.sweep.candidate import read_candidate
from fairtrial.sweep.resolve import changed_inputs

__all__ = [
    "OPTIONS",
    "BenchInputs",
    "bind_tasks",
    "commits_of",
    "open_inputs",
    "pin_changes",
    "pins_of",
    "plan_entry",
    "private_blobs",
    "recorded_bindings",
    "recorded_commits",
    "recorded_options",
    "require_unchanged",
    "task_changes",
]

OPTIONS: Final[TypeAdapter[BenchOptions]] = TypeAdapter(BenchOptions)


class _Bound(TypedDict):
    """What is read of each task of a plan before it is compared as a whole."""

    id: str
    resolved_sha: str


class _Recorded(TypedDict):
    """What else of a `sweep.json` is used before the plan is compared with what is there now."""

    created_utc: str
    scratch: str
    inputs: dict[str, str]
    environments: dict[str, list[object]]
    tasks: list[_Bound]
    plan: list[object]


RECORDED: Final = TypeAdapter(_Recorded)
MAX_SCRIPT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchInputs:
    """Everything that a sweep depends on, resolved, captured and pinned.

    Attributes:
        options: What was asked.
        tasks: The tasks.
        skipped: Ids of tasks that are left out because they are expensive.
        arms: The arms.
        dialects: The dialects that the arms' agents speak.
        script: Path of the scripted model's captured file, or None.
        pinned: Digests and versions by name.
        controls: What is known of each task's controls.
        exits: The exit-at-import control's script by task, where the task can have one.
        environments: What each arm's sessions can see, by arm.
        candidate: The candidate, or None.
        loaded: The skills that each known arm loads, by its name; never candidates.
        skills_directories: Where each agent looks for skills below a tree, by the agent's name; None for nowhere.
    """

    options: BenchOptions
    tasks: tuple[Task, ...]
    skipped: tuple[str, ...]
    arms: tuple[Arm, ...]
    dialects: tuple[str, ...]
    script: str | None
    pinned: Mapping[str, str]
    controls: Mapping[str, str]
    exits: Mapping[str, Blob]
    environments: Mapping[str, tuple[Seen, ...]]
    candidate: Candidate | None
    loaded: Mapping[str, frozenset[str]]
    skills_directories: Mapping[str, str | None]

    @property
    def plan(self) -> tuple[PlannedBench, ...]:
        """The trials."""
        asked = self.options
        if asked.control_runs is not None:
            return plan_controls(self.tasks, self.exits, reference_runs=asked.control_runs, timeout_s=asked.timeout_s)
        return plan_bench(
            self.tasks,
            self.arms,
            runs=asked.runs,
            seed=asked.seed,
            timeout_s=asked.timeout_s,
        )


def bind_tasks(
    options: BenchOptions, blobs: BlobStore, *, commits: Mapping[str, str]
) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """Resolve and capture the tasks alone.

    Args:
        options: What was asked.
        blobs: Takes the captured bytes.
        commits: Commits that an earlier pass resolved, by task id.

    Returns:
        The tasks, and the ids of those that are left out because they are expensive.

    Raises:
        UsageError: Something that was asked for is wrong.
    """
    document, parsed = read_task_file(Path(options.tasks))
    selection = select_tasks(
        parsed,
        only=options.only,
        include_expensive=options.include_expensive,
        include_holdout=options.control_runs is not None,
    )
    places = {entry.id: index for index, entry in enumerate(parsed.tasks)}
    tasks = tuple(
        bind_task(document, places[entry.id], entry, blobs, commit=commits.get(entry.id))
        for entry in selection.selected
    )
    return tasks, selection.skipped


def open_inputs(
    options: BenchOptions, blobs: BlobStore, *, commits: Mapping[str, str], frozen: Candidate | None = None
) -> BenchInputs:
    """Resolve, capture and pin.

    Args:
        options: What was asked.
        blobs: Takes the captured bytes.
        commits: Commits that an earlier pass resolved, by task id.
        frozen: The candidate as an earlier pass read it; None for reading it now.

    Raises:
        UsageError: Something that was asked for is wrong.
        HostError: An agent cannot be used here.
    """
    is_check = options.control_runs is not None
    tasks, skipped = bind_tasks(options, blobs, commits=commits)
    require_secrecy(Path(options.tasks), tasks, blobs)
    defaults = Defaults(
        agent=options.agent,
        model=options.model,
        effort=options.effort,
        context=options.context,
        skills={role: Path(path) for role, path in options.skills.items()},
        plugins={
            name: PluginPlace(version=place.version, directory=Path(place.directory))
            for name, place in options.plugins.items()
        },
    )
    found = read_arms(Path(options.arms_file) if options.arms_file else None)
    candidate = frozen or (None if options.candidate is None else read_candidate(options.candidate))
    if is_check:
        arms = tuple(control_arm(name) for name in (NOP, REFERENCE))
    else:
        arms = build_arms(options.arms, found, defaults, blobs, candidate)
        require_same_kind(tasks, arms)
    exits = {task.id: exit_at_import(task, blobs) for task in tasks}
    pinned = {"fairtrial.version": __version__, "python.version": platform.python_version()}
    pinned[f"engine.{options.engine}.plugin_sha256"] = load_plugin("fairtrial.engines", options.engine).file_sha256
    dialects: set[str] = set()
    environments: dict[str, tuple[Seen, ...]] = {}
    plugins = [arm.plugin for arm in arms if arm.plugin is not None]
    pinned |= {f"plugin.{each.name}@{each.version}.sha256": each.manifest_digest for each in plugins}
    if candidate is not None:
        pinned["candidate.sha256"] = candidate.overlay.digest
    skills_directories: dict[str, str | None] = {}
    skills_read: dict[str, tuple[str, ...]] = {}
    for name in sorted({arm.agent for arm in arms}):
        plugin = load_plugin("fairtrial.agents", name)
        agent = cast("type[Agent]", plugin.target)()
        for arm in arms:
            if arm.agent == name:
                require_provable(arm, agent)
        probe = agent.probe()
        if probe.installation is None:
            raise HostError(f"agent {name}: {probe.missing}")
        if agent.dialect is not None:
            dialects.add(agent.dialect)
        for arm in arms:
            if arm.agent == name:
                environments[arm.name] = describe_arm(agent, probe.installation, arm, blobs)
        skills_directories[name] = agent.skills_directory
        skills_read[name] = () if agent.skills_directory is None else read_skill_places(agent)
        pinned[f"agent.{name}.version"] = probe.version or "unknown"
        pinned[f"agent.{name}.plugin_sha256"] = plugin.file_sha256
    refuse_shadowed_skills(tasks, arms, skills_read)
    if (
        not is_check
        and any(arm.agent == REFERENCE for arm in arms)
        and (lacking := [t.id for t in tasks if t.reference is None or t.is_review])
    ):
        raise UsageError(f"the reference agent needs a 'reference' patch in task {', '.join(lacking)}")
    pinned |= _pin_contexts(arms, tasks) | {f"arm.{arm.name}.sha256": arm.digest for arm in arms}
    require_declared(
        {
            arm.name: [
                undeclared(arm.agent, arm, phase, seen)
                for phase, seen in zip(arm.phases, environments[arm.name], strict=True)
            ]
            for arm in arms
        }
    )
    script = None
    if options.script is not None:
        read_script(Path(options.script))
        path = Path(options.script)
        blob = blobs.put(path.name, read_stable(path.parent, path.name, max_bytes=MAX_SCRIPT_BYTES))
        pinned["script.sha256"] = blob.sha256
        script = str(blobs.root / blob.sha256)
    return BenchInputs(
        options=options,
        tasks=tasks,
        skipped=skipped,
        arms=arms,
        dialects=tuple(sorted(dialects)),
        script=script,
        pinned=pinned,
        controls={task.id: CHECKING for task in tasks} if is_check else read_controls(Path(options.tasks), tasks),
        exits={name: blob for name, blob in exits.items() if blob is not None},
        environments=environments,
        candidate=candidate,
        loaded={name: loaded_skills(each, defaults) for name, each in found.items()},
        skills_directories=skills_directories,
    )


def _pin_contexts(arms: Sequence[Arm], tasks: Sequence[Task]) -> dict[str, str]:
    """What the arms' contexts are on this host.

    Raises:
        UsageError: There is no context of that name, or a task brings one of its own or tells of it.
        HostError: One cannot be used here.
    """
    pinned: dict[str, str] = {}
    for name in sorted({arm.context for arm in arms if arm.context is not None}):
        found = find_context(name)
        refuse_brought(name, found.context.settings, tasks)
        refuse_traces(name, found.context, tasks, arms)
        pinned[f"context.{name}.version"] = str(found.probe.version)
        pinned[f"context.{name}.plugin_sha256"] = found.plugin.file_sha256
    return pinned


@contextmanager
def private_blobs(base: Path) -> Generator[BlobStore]:
    """A place for captured bytes before a sweep has one of its own."""
    root = base / f"ft-{os.urandom(5).hex()}"
    root.mkdir(mode=0o700)
    try:
        yield BlobStore(root / BLOBS)
    finally:
        remove_tree(root)


def recorded_options(results: Results, sweep: SweepFile) -> BenchOptions:
    """What was asked of a sweep.

    Raises:
        IntegrityError: It does not have the form that this version writes.
    """
    try:
        RECORDED.validate_python(sweep.document)
        return OPTIONS.validate_python(sweep.document["options"])
    except (ValidationError, KeyError) as problem:
        raise IntegrityError(f"{results.sweep_json}: not a plan that this version understands: {problem}") from problem


def recorded_bindings(sweep: SweepFile) -> dict[str, Mapping[str, object]]:
    """The tasks of a sweep as they were bound, by id."""
    return {str(task["id"]): task for task in cast("Sequence[Mapping[str, object]]", sweep.document["tasks"])}


def recorded_commits(sweep: SweepFile) -> dict[str, str]:
    """The commit that each task's ref was resolved to."""
    return commits_of(tuple(recorded_bindings(sweep).values()))


def commits_of(bound: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """The same of tasks as they were bound."""
    return {str(task["id"]): str(task["resolved_sha"]) for task in bound}


def task_changes(bound: Sequence[Mapping[str, object]], tasks: Sequence[Task]) -> list[str]:
    """One sentence for each field of a task that is not what was bound."""
    before = {str(task["id"]): task for task in bound}
    now = {task.id: task_binding(task) for task in tasks}
    return [
        change
        for name in sorted(before.keys() | now.keys())
        for change in binding_changes(before.get(name, {"id": name}), now.get(name, {"id": name}))
    ]


def pins_of(inputs: BenchInputs) -> dict[str, str]:
    """Versions and digests of all that a later sweep of these arms must find again, tasks apart, by name."""
    seen = {
        f"arm.{name}.environment_sha256": hashlib.sha256(json.dumps(list(each), sort_keys=True).encode()).hexdigest()
        for name, each in inputs.environments.items()
    }
    return {**inputs.pinned, **seen}


def pin_changes(bound: Mapping[str, str], inputs: BenchInputs) -> tuple[str, ...]:
    """One sentence for each input that is not what was bound; a sweep may have arms besides, or only some of them."""
    now = pins_of(inputs)
    both = bound.keys() & now.keys()
    return changed_inputs({name: bound[name] for name in both}, {name: now[name] for name in both})


def require_unchanged(results: Results, sweep: SweepFile, inputs: BenchInputs) -> None:
    """Refuse to go on with other inputs than the recorded ones.

    Raises:
        UsageError: One has changed; the message names it.
    """
    changed = list(changed_inputs(cast("Mapping[str, str]", sweep.document["inputs"]), inputs.pinned))
    changed += task_changes(tuple(recorded_bindings(sweep).values()), inputs.tasks)
    seen = cast("Mapping[str, object]", sweep.document["environments"])
    changed += [f"what arm {name} can see" for name, now in inputs.environments.items() if list(now) != seen.get(name)]
    if [plan_entry(trial) for trial in inputs.plan] != sweep.document["plan"]:
        changed.append("the plan")
    if changed:
        raise UsageError(
            f"{results.root}: inputs have changed ({'; '.join(changed)}), so it cannot go on; begin a new sweep"
        )


def plan_entry(trial: PlannedBench) -> dict[str, object]:
    """A planned trial as `sweep.json` names it."""
    bench = trial.bench
    return {
        "plan_index": trial.plan_index,
        "key": trial.key,
        "task": bench.task.id,
        "arm": bench.arm.name,
        "run": bench.run,
        "block": bench.block,
        "position_in_block": bench.position_in_block,
    }
