"""A sweep of the agent lane: begin one, or take up one that was broken off."""

import os
import platform
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Final, cast

from pydantic import TypeAdapter, ValidationError

from fairtrial import __version__
from fairtrial.bench.arm_plugin import PluginPlace
from fairtrial.bench.arms import Defaults, loaded_skills, read_arms, require_provable
from fairtrial.bench.blobs import BlobStore, read_stable
from fairtrial.bench.candidate import Candidate, build_arms
from fairtrial.bench.controls import NOP, REFERENCE, control_arm, exit_at_import
from fairtrial.bench.controls_note import CHECKING, read_controls
from fairtrial.bench.environment import Seen, describe_arm, require_declared, undeclared
from fairtrial.bench.index import find_context
from fairtrial.bench.node import BLOBS
from fairtrial.bench.review import require_same_kind
from fairtrial.bench.rows import lost_row
from fairtrial.bench.shadows import refuse_shadowed_skills
from fairtrial.bench.tasks import bind_task, binding_changes, read_task_file, select_tasks, task_binding
from fairtrial.errors import HostError, IntegrityError, UsageError
from fairtrial.evidence.bench import Streaks
from fairtrial.gateway.client import GatewayProcess, ask_status
from fairtrial.gateway.control import Status
from fairtrial.gateway.price import price_table
from fairtrial.gateway.script import read_script
from fairtrial.gateway.settings import GatewaySettings, UpstreamSettings
from fairtrial.host.clock import rfc3339, stamp, utc_now
from fairtrial.host.files import remove_tree
from fairtrial.host.janitor import kill_strays_of
from fairtrial.host.limits import probe_limits
from fairtrial.host.lock import HOST_LOCK_PATH, acquire_lock
from fairtrial.host.machine import describe_machine
from fairtrial.host.preflight import require_sandboxes
from fairtrial.host.secret import hide_variable
from fairtrial.host.signals import stop_requests
from fairtrial.host.slot import open_slot
from fairtrial.model.bench import Arm, Blob, Task
from fairtrial.model.sandbox import Containment, Limit
from fairtrial.model.trial import AnySpec, AttemptSpec, BenchSpec, ModelSource
from fairtrial.plugins import load_plugin
from fairtrial.protocols import Agent, Engine
from fairtrial.store.events import EventLog
from fairtrial.store.journal import Journal
from fairtrial.store.layout import Results, create_results, hold
from fairtrial.store.reserve import prepare_reserve, release_reserve
from fairtrial.store.seal import read_seal, set_aside_seal, write_seal
from fairtrial.store.sweep_file import SweepFile, read_sweep, write_sweep
from fairtrial.sweep.bench_plan import BenchOptions, PlannedBench, plan_bench, plan_controls
from fairtrial.sweep.candidate import FROZEN, PROMOTION, Promoter, read_candidate, read_frozen
from fairtrial.sweep.execute import Lane, Pass, drive, due_attempts, never_held
from fairtrial.sweep.loop_sweep import Begun, SweepOptions, final_rows, pass_number, recover
from fairtrial.sweep.pause import ProviderWatch
from fairtrial.sweep.resolve import changed_inputs
from fairtrial.sweep.scratch import open_scratch, remove_earlier, scratch_base, scratch_of
from fairtrial.workspace.overlay import freeze_overlay

__all__ = [
    "SCRATCH_MODE",
    "BenchInputs",
    "begin_bench",
    "open_inputs",
    "private_blobs",
    "recorded_bindings",
    "recorded_commits",
    "recorded_options",
    "require_fit",
    "resume_bench",
]

OPTIONS: Final[TypeAdapter[BenchOptions]] = TypeAdapter(BenchOptions)
PROVIDERS: Final = {
    "anthropic-messages": ("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "openai-chat": ("https://api.openai.com", "OPENAI_API_KEY"),
    "openai-responses": ("https://api.openai.com", "OPENAI_API_KEY"),
    "gemini": ("https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
}
MAX_SCRIPT_BYTES: Final = 1 << 20
SCRATCH_MODE: Final = 0o711
"""When we are root, sandboxes run under other uids, which must be able to pass; nothing can be listed."""
OWN_TIME_S: Final = 1800.0


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
        exits: The exit-at-import control's script by task, when controls are what runs.
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
    document, parsed = read_task_file(Path(options.tasks))
    is_check = options.control_runs is not None
    selection = select_tasks(
        parsed, only=options.only, include_expensive=options.include_expensive, include_holdout=is_check
    )
    places = {entry.id: index for index, entry in enumerate(parsed.tasks)}
    tasks = tuple(
        bind_task(document, places[entry.id], entry, blobs, commit=commits.get(entry.id))
        for entry in selection.selected
    )
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
    exits = {task.id: exit_at_import(task, blobs) for task in tasks} if is_check else {}
    pinned = {"fairtrial.version": __version__, "python.version": platform.python_version()}
    pinned[f"engine.{options.engine}.plugin_sha256"] = load_plugin("fairtrial.engines", options.engine).file_sha256
    dialects: set[str] = set()
    environments: dict[str, tuple[Seen, ...]] = {}
    plugins = [arm.plugin for arm in arms if arm.plugin is not None]
    pinned |= {f"plugin.{each.name}@{each.version}.sha256": each.manifest_digest for each in plugins}
    if candidate is not None:
        pinned["candidate.sha256"] = candidate.overlay.digest
    skills_directories: dict[str, str | None] = {}
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
        pinned[f"agent.{name}.version"] = probe.version or "unknown"
        pinned[f"agent.{name}.plugin_sha256"] = plugin.file_sha256
    refuse_shadowed_skills(tasks, arms, skills_directories)
    if (
        not is_check
        and any(arm.agent == REFERENCE for arm in arms)
        and (lacking := [t.id for t in tasks if t.reference is None or t.is_review])
    ):
        raise UsageError(f"the reference agent needs a 'reference' patch in task {', '.join(lacking)}")
    pinned |= _pin_contexts(arms) | {f"arm.{arm.name}.sha256": arm.digest for arm in arms}
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
        skipped=selection.skipped,
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


def _pin_contexts(arms: Sequence[Arm]) -> dict[str, str]:
    """What the arms' contexts are on this host.

    Raises:
        UsageError: There is no context of that name.
        HostError: One cannot be used here.
    """
    pinned: dict[str, str] = {}
    for name in sorted({arm.context for arm in arms if arm.context is not None}):
        found = find_context(name)
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


def begin_bench(
    options: BenchOptions,
    how: SweepOptions,
    *,
    n_workers: int,
    promoter: Promoter | None = None,
    bound_tasks: Sequence[Mapping[str, object]] = (),
) -> Begun:
    """Plan and run a new sweep.

    Args:
        options: What was asked.
        how: How it is run.
        n_workers: Trials at the same time.
        promoter: Who decides on a candidate; needed with one.
        bound_tasks: Tasks as an earlier sweep bound them: they must still be the same, at the same commits.

    Raises:
        UsageError: The request is wrong, or a task is not what was bound.
        HostError: The host is not fit.
    """
    _require_room(options, n_workers)
    base = scratch_base(how.scratch)
    with private_blobs(base) as blobs:
        inputs = open_inputs(options, blobs, commits=_commits(bound_tasks))
        if bound_tasks and (changed := _task_changes(bound_tasks, inputs)):
            raise UsageError(f"{options.tasks}: tasks have changed since they were bound: {'; '.join(changed)}")
        _upstreams(inputs)
        binding = None if inputs.candidate is None or promoter is None else promoter.bind(inputs)
    require_fit(base, options)
    begun = utc_now()
    results = create_results(how.out, lane="bench", now=begun, base=Path("results"))
    sweep = f"bench-{stamp(begun)}-{os.urandom(3).hex()}"
    record: dict[str, object] = {
        "schema": "sweep/1",
        "sweep": sweep,
        "lane": "bench",
        "created_utc": rfc3339(begun),
        "fairtrial": __version__,
        "options": OPTIONS.dump_python(options, mode="json"),
        "tasks": [task_binding(task) for task in inputs.tasks],
        "skipped_tasks": list(inputs.skipped),
        "controls": {name: str(state) for name, state in inputs.controls.items()},
        "arms": [_describe_arm(arm) for arm in inputs.arms],
        "environments": {name: list(seen) for name, seen in inputs.environments.items()},
        "inputs": dict(inputs.pinned),
        "machine": asdict(describe_machine()),
        "scratch": str(scratch_of(base, sweep, results.root)),
        "plan": [_entry(trial) for trial in inputs.plan],
        PROMOTION: None if binding is None else dict(binding),
    }
    with hold(results):
        return _run(results, write_sweep(results, record), options, how, n_workers, promoter)


def resume_bench(results: Results, how: SweepOptions, *, n_workers: int, promoter: Promoter | None = None) -> Begun:
    """Finish a sweep: adopt what is on disk, name what was interrupted, run what has no counting attempt.

    Raises:
        UsageError: An input has changed since the sweep began, or the sweep is still running.
        IntegrityError: What is recorded is not what was written.
    """
    with hold(results):
        sweep = read_sweep(results)
        options = recorded_options(results, sweep)
        _require_room(options, n_workers)
        require_fit(scratch_base(how.scratch), options)
        return _run(results, sweep, options, how, n_workers, promoter)


def recorded_options(results: Results, sweep: SweepFile) -> BenchOptions:
    """What was asked of a sweep.

    Raises:
        IntegrityError: It does not have the form that this version writes.
    """
    try:
        return OPTIONS.validate_python(sweep.document["options"])
    except (ValidationError, KeyError) as problem:
        raise IntegrityError(f"{results.sweep_json}: not options of this version: {problem}") from problem


def require_fit(base: Path, options: BenchOptions) -> None:
    """Run one sandbox, and find what enforces each limit, before anything is spent.

    Raises:
        HostError: The host is not fit.
    """
    if options.containment is Containment.NONE:
        return
    root = base / f"ft-{os.urandom(5).hex()}"
    root.mkdir()
    try:
        root.chmod(SCRATCH_MODE)
        slot = open_slot(root)
        allowed = frozenset(Limit(name) for name in options.allow_unenforced)
        require_sandboxes(slot, probe_limits(slot, allow_unenforced=allowed))
    finally:
        remove_tree(root)


def _require_room(options: BenchOptions, n_workers: int) -> None:
    """Refuse what cannot be without sandboxes.

    Raises:
        UsageError: Two trials would share the host's loopback, or a candidate could not be promoted whatever it does.
    """
    if options.containment is not Containment.NONE:
        return
    if n_workers > 1:
        raise UsageError("--unsafe-no-sandbox: trials at the same time would share one network; use --workers 1")
    if options.candidate is not None:
        raise UsageError(
            "--unsafe-no-sandbox: nothing can be promoted that ran without a sandbox; leave out --candidate-overlay"
        )


def _describe_arm(arm: Arm) -> dict[str, object]:
    """An arm as `sweep.json` shows it to a person; its digest is what is compared."""
    return cast("dict[str, object]", TypeAdapter(Arm).dump_python(arm, mode="json"))


def _entry(trial: PlannedBench) -> dict[str, object]:
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


def recorded_bindings(sweep: SweepFile) -> dict[str, Mapping[str, object]]:
    """The tasks of a sweep as they were bound, by id."""
    return {str(task["id"]): task for task in cast("Sequence[Mapping[str, object]]", sweep.document["tasks"])}


def recorded_commits(sweep: SweepFile) -> dict[str, str]:
    """The commit that each task's ref was resolved to."""
    return _commits(tuple(recorded_bindings(sweep).values()))


def _commits(bound: Sequence[Mapping[str, object]]) -> dict[str, str]:
    return {str(task["id"]): str(task["resolved_sha"]) for task in bound}


def _task_changes(bound: Sequence[Mapping[str, object]], inputs: BenchInputs) -> list[str]:
    """One sentence for each field of a task that is not what was bound."""
    before = {str(task["id"]): task for task in bound}
    now = {task.id: task_binding(task) for task in inputs.tasks}
    return [
        change
        for name in sorted(before.keys() | now.keys())
        for change in binding_changes(before.get(name, {"id": name}), now.get(name, {"id": name}))
    ]


def _require_unchanged(results: Results, sweep: SweepFile, inputs: BenchInputs) -> None:
    """Refuse to go on with other inputs than the recorded ones.

    Raises:
        UsageError: One has changed; the message names it.
    """
    changed = list(changed_inputs(cast("Mapping[str, str]", sweep.document["inputs"]), inputs.pinned))
    changed += _task_changes(tuple(recorded_bindings(sweep).values()), inputs)
    seen = cast("Mapping[str, object]", sweep.document["environments"])
    changed += [f"what arm {name} can see" for name, now in inputs.environments.items() if list(now) != seen.get(name)]
    if [_entry(trial) for trial in inputs.plan] != sweep.document["plan"]:
        changed.append("the plan")
    if changed:
        raise UsageError(
            f"{results.root}: inputs have changed ({'; '.join(changed)}), so it cannot go on; begin a new sweep"
        )


def _upstreams(inputs: BenchInputs) -> tuple[UpstreamSettings, ...]:
    """The providers that the arms need; none with a script.

    Raises:
        UsageError: A key is not set.
    """
    options = inputs.options
    if options.script is not None:
        return ()
    found: list[UpstreamSettings] = []
    for dialect in inputs.dialects:
        url, variable = PROVIDERS[dialect]
        key = options.key_env or (variable if options.base_url is None else None)
        if key is not None and not os.environ.get(key):
            raise UsageError(
                f"variable {key} is not set: it must hold the provider's key; set it, name another with --key-env, or"
                " give a scripted model with --script"
            )
        found.append(UpstreamSettings(name=dialect, url=options.base_url or url, key_variable=key))
    return tuple(found)


def _run(
    results: Results,
    sweep: SweepFile,
    options: BenchOptions,
    how: SweepOptions,
    n_workers: int,
    promoter: Promoter | None,
) -> Begun:
    kill_strays_of(sweep.sweep)
    scratch = scratch_of(scratch_base(how.scratch), sweep.sweep, results.root)
    remove_earlier(Path(str(sweep.document["scratch"])), now=scratch)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_requests())
        prepare_reserve(results)
        mode = SCRATCH_MODE if os.geteuid() == 0 else 0o700
        stack.enter_context(open_scratch(scratch, keep=how.keep_workspaces, mode=mode))
        frozen = None if options.candidate is None else read_frozen(results, options.candidate)
        inputs = open_inputs(options, BlobStore(scratch / BLOBS), commits=recorded_commits(sweep), frozen=frozen)
        _require_unchanged(results, sweep, inputs)
        if inputs.candidate is not None and frozen is None:
            freeze_overlay(inputs.candidate.overlay, results.root / FROZEN)
        plan = inputs.plan
        if options.metric == "duration_s":
            stack.enter_context(acquire_lock(HOST_LOCK_PATH, wait_s=how.lock_wait_s, on_wait=how.say))
        journal = stack.enter_context(Journal.open(results, sweep))
        if (repair := journal.repair) is not None:
            torn = f"a torn tail of {repair.n_bytes} bytes ({repair.what})"
            how.say(f"{results.results_jsonl}: {torn} is kept as {repair.kept}")
        gateway = _start_gateway(stack, inputs, scratch)
        provider = None if gateway is None else _watch_provider(gateway, results, how)
        this_pass = Pass(
            lane=_lane(results, inputs, gateway, provider, n_workers),
            results=results,
            journal=journal,
            sweep=sweep.sweep,
            number=pass_number(results, sweep),
            scratch=scratch,
            metadata=_metadata(sweep.document),
            engine=cast("type[Engine]", load_plugin("fairtrial.engines", options.engine).target)(),
            n_workers=n_workers,
            passed_env=(),
            watch=how.watch,
            stop=stop,
        )
        recover(this_pass, sweep, plan, how.say)
        this_pass.n_done = 0
        this_pass.streaks = Streaks()  # what an earlier pass met says nothing of today
        due = due_attempts(plan, tuple(final_rows(results, sweep)))
        seal = read_seal(results)
        if due and seal is not None:
            set_aside_seal(results)
            seal = None
        drive(this_pass, due)
        if this_pass.tripped:
            how.say(
                f"stopped: {this_pass.streaks.longest} trials in a row ended as in an outage; "
                f"when it is over: fairtrial resume {results.root}"
            )
        if provider is not None and provider.given_up is not None:
            how.say(f"stopped: {provider.given_up}; when it is back: fairtrial resume {results.root}")
        digest = seal.digest if seal is not None else None
        if digest is None:
            if promoter is not None:
                promoter.conclude(results, complete=not this_pass.is_ending)
            how.report(results)
            release_reserve(results)
            digest = write_seal(results, journal) if stop.signal_number is None else None
    return Begun(
        results=results,
        n_planned=len(plan),
        stopped_by=stop.signal_number,
        seal=digest,
        scratch=scratch if how.keep_workspaces else None,
        tripped=this_pass.tripped or this_pass.given_up,
    )


def _start_gateway(stack: ExitStack, inputs: BenchInputs, scratch: Path) -> GatewayProcess | None:
    """Start this node's gateway, which alone is given the provider's key; None when no arm speaks to a model."""
    if not inputs.dialects:
        return None
    upstreams = _upstreams(inputs)
    kept = (
        "PATH",
        "HOME",
        "PYTHONPATH",
        "SSL_CERT_FILE",
        *(each.key_variable for each in upstreams if each.key_variable),
    )
    env = {name: os.environ[name] for name in kept if name in os.environ}
    for each in upstreams:
        if each.key_variable is not None:
            hide_variable(each.key_variable)
    gateway = stack.enter_context(GatewayProcess(python=sys.executable))
    gateway.start(GatewaySettings(directory=str(scratch / "g"), upstreams=upstreams), env)
    return gateway


def _watch_provider(gateway: GatewayProcess, results: Results, how: SweepOptions) -> ProviderWatch:
    def ask() -> Status:
        if gateway.has_ended:
            raise HostError(f"the gateway died; see its last words above, then `fairtrial resume {results.root}`")
        return ask_status(gateway.control)

    return ProviderWatch(ask, wait_s=how.provider_wait_s, say=how.say, events=EventLog(results))


def _lane(
    results: Results,
    inputs: BenchInputs,
    gateway: GatewayProcess | None,
    provider: ProviderWatch | None,
    n_workers: int,
) -> Lane[PlannedBench]:
    options, controls = inputs.options, inputs.controls
    dialects = {name: _dialect(name) for name in {arm.agent for arm in inputs.arms}}

    def complete(shared: AttemptSpec, trial: PlannedBench) -> BenchSpec:
        dialect = dialects[trial.bench.arm.agent]
        upstream = dialect if inputs.script is None else None
        source = ModelSource(script=inputs.script, upstream=upstream, record=options.record)
        known = str(controls[trial.bench.task.id])
        paused_s = 0.0 if provider is None else round(provider.paused_s, 3)
        shared = replace(shared, metadata={**shared.metadata, "controls": known, "sweep_paused_s": paused_s})
        return BenchSpec(
            **{each.name: getattr(shared, each.name) for each in fields(AttemptSpec)},
            bench=trial.bench,
            gateway=str(gateway.control) if dialect is not None and gateway is not None else None,
            source=source,
            n_workers=n_workers,
            allow_unenforced=options.allow_unenforced,
            containment=options.containment,
        )

    def void_row(spec: AnySpec, kind: str, detail: str) -> Mapping[str, object]:
        if not isinstance(spec, BenchSpec):
            raise TypeError(f"{type(spec).__name__} is no attempt of the agent lane")
        return lost_row(spec, kind, detail, results.attempt_dir(spec.key, spec.attempt))

    n_phases = max(len(arm.phases) for arm in inputs.arms)
    limit_s = (n_phases + 2) * options.timeout_s + OWN_TIME_S
    return Lane(
        complete=complete,
        void_row=void_row,
        trial_limit_s=limit_s,
        outage_streak=options.outage_streak,
        hold=never_held if provider is None else provider.hold,
    )


def _dialect(agent: str) -> str | None:
    return cast("type[Agent]", load_plugin("fairtrial.agents", agent).target).dialect


def _metadata(record: Mapping[str, object]) -> dict[str, object]:
    machine = describe_machine()
    options = cast("Mapping[str, object]", record["options"])
    candidate = cast("Mapping[str, object] | None", options.get("candidate"))
    return {
        "bench_id": record["sweep"],
        "timestamp_utc": record["created_utc"],
        "host": machine.hostname,
        "platform": machine.platform,
        "machine": machine.arch,
        "fairtrial": __version__,
        "source": f"fairtrial {__version__}",
        "price_table": str(price_table(utc_now())),
        "metric": options["metric"],
        "trial_order_seed": options["seed"],
        "scripted_model": options["script"] is not None,
        "proposer_model": None if candidate is None else candidate["proposer_model"],
    }
