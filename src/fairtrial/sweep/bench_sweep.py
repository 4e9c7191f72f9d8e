"""A sweep of the agent lane: begin one, or take up one that was broken off."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from pydantic import TypeAdapter

from fairtrial import __version__
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.controls import exit_not_tried
from fairtrial.bench.node import BLOBS
from fairtrial.bench.rows import lost_row
from fairtrial.bench.tasks import task_binding
from fairtrial.errors import HostError, UsageError
from fairtrial.evidence.bench import Streaks
from fairtrial.gateway.client import GatewayProcess, ask_status, release_directory
from fairtrial.gateway.control import Status
from fairtrial.gateway.price import price_table
from fairtrial.gateway.settings import GatewaySettings, UpstreamSettings
from fairtrial.host.clock import rfc3339, stamp, utc_now
from fairtrial.host.files import remove_tree
from fairtrial.host.limits import probe_limits
from fairtrial.host.lock import HOST_LOCK_PATH, StoppedWaitingError, acquire_lock
from fairtrial.host.machine import describe_machine
from fairtrial.host.preflight import require_sandboxes
from fairtrial.host.secret import hide_variable
from fairtrial.host.signals import stop_requests
from fairtrial.host.slot import open_slot
from fairtrial.model.bench import Arm
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
from fairtrial.sweep.bench_inputs import (
    OPTIONS,
    BenchInputs,
    commits_of,
    open_inputs,
    pin_changes,
    plan_entry,
    private_blobs,
    recorded_commits,
    recorded_options,
    require_unchanged,
    task_changes,
)
from fairtrial.sweep.bench_plan import BenchOptions, PlannedBench, longest_trial_s
from fairtrial.sweep.candidate import FROZEN, PROMOTION, read_frozen
from fairtrial.sweep.execute import Hold, Lane, Pass, drive, due_attempts
from fairtrial.sweep.loop_sweep import (
    Begun,
    SweepOptions,
    final_rows,
    pass_number,
    recover,
    say_waiting,
    stopped_waiting,
)
from fairtrial.sweep.pause import ProviderWatch
from fairtrial.sweep.promoter import Promoter
from fairtrial.sweep.scratch import SCRATCH_MODE, end_earlier, open_scratch, scratch_base, scratch_of
from fairtrial.workspace.overlay import freeze_overlay

__all__ = ["begin_bench", "require_fit", "resume_bench"]

PROVIDERS: Final = {
    "anthropic-messages": ("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "openai-chat": ("https://api.openai.com", "OPENAI_API_KEY"),
    "openai-responses": ("https://api.openai.com", "OPENAI_API_KEY"),
    "gemini": ("https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
}


def begin_bench(
    options: BenchOptions,
    how: SweepOptions,
    *,
    n_workers: int,
    promoter: Promoter | None = None,
    bound_tasks: Sequence[Mapping[str, object]] = (),
    bound_inputs: Mapping[str, str] = MappingProxyType({}),
) -> Begun:
    """Plan and run a new sweep.

    Args:
        options: What was asked.
        how: How it is run.
        n_workers: Trials at the same time.
        promoter: Who decides on a candidate; needed with one.
        bound_tasks: Tasks as an earlier sweep bound them: they must still be the same, at the same commits.
        bound_inputs: Other inputs as they were bound (`pins_of`): those of them that this sweep has must be the same.

    Raises:
        UsageError: The request is wrong, or a task or another input is not what was bound.
        HostError: The host is not fit.
    """
    _require_room(options, n_workers)
    base = scratch_base(how.scratch)
    with private_blobs(base) as blobs:
        inputs = open_inputs(options, blobs, commits=commits_of(bound_tasks))
        if bound_tasks and (changed := task_changes(bound_tasks, inputs.tasks)):
            raise UsageError(f"{options.tasks}: tasks have changed since they were bound: {'; '.join(changed)}")
        if moved := pin_changes(bound_inputs, inputs):
            raise UsageError(f"inputs have changed since they were bound: {'; '.join(moved)}")
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
        "exit_not_tried": exit_not_tried(inputs.tasks, inputs.exits),
        "controls": {name: str(state) for name, state in inputs.controls.items()},
        "arms": [_describe_arm(arm) for arm in inputs.arms],
        "environments": {name: list(seen) for name, seen in inputs.environments.items()},
        "inputs": dict(inputs.pinned),
        "machine": asdict(describe_machine()),
        "scratch": str(scratch_of(base, sweep, results.root)),
        "plan": [plan_entry(trial) for trial in inputs.plan],
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


def _upstreams(inputs: BenchInputs) -> tuple[UpstreamSettings, ...]:
    """The providers that the arms need; none with a script.

    Raises:
        UsageError: A key is not set.
    """
    options = inputs.options
    if options.script is not None:
        return ()
    if options.key_file is not None:
        return tuple(
            UpstreamSettings(name=dialect, url=options.base_url or PROVIDERS[dialect][0], key_file=options.key_file)
            for dialect in inputs.dialects
        )
    found: list[UpstreamSettings] = []
    for dialect in inputs.dialects:
        url, variable = PROVIDERS[dialect]
        key = options.key_env or (variable if options.base_url is None else None)
        if key is not None and not os.environ.get(key):
            raise UsageError(
                f"variable {key} is not set: it must hold the provider's key; set it, name another with --key-env or a"
                " file with --key-file, or give a scripted model with --script"
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
    scratch = scratch_of(scratch_base(how.scratch), sweep.sweep, results.root)
    end_earlier(sweep.sweep, Path(str(sweep.document["scratch"])), now=scratch)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_requests())
        prepare_reserve(results)
        mode = SCRATCH_MODE if os.geteuid() == 0 else 0o700
        stack.enter_context(open_scratch(scratch, sweep.sweep, keep=how.keep_workspaces, mode=mode))
        frozen = None if options.candidate is None else read_frozen(results, options.candidate)
        inputs = open_inputs(options, BlobStore(scratch / BLOBS), commits=recorded_commits(sweep), frozen=frozen)
        require_unchanged(results, sweep, inputs)
        if inputs.candidate is not None and frozen is None:
            freeze_overlay(inputs.candidate.overlay, results.root / FROZEN)
        plan = inputs.plan
        journal = stack.enter_context(Journal.open(results, sweep))
        if (repair := journal.repair) is not None:
            torn = f"a torn tail of {repair.n_bytes} bytes ({repair.what})"
            how.say(f"{results.results_jsonl}: {torn} is kept as {repair.kept}")
        waited_ms = None
        if options.metric == "duration_s":
            try:
                lock = acquire_lock(HOST_LOCK_PATH, wait_s=how.lock_wait_s, on_wait=say_waiting(how), stop=stop)
            except StoppedWaitingError:
                return stopped_waiting(results, len(plan), stop)
            waited_ms = stack.enter_context(lock).waited_ms
        gateway = _start_gateway(stack, inputs, scratch)
        provider = None if gateway is None else _watch_provider(gateway, results, how)
        this_pass = Pass(
            lane=_lane(results, inputs, how, gateway, provider, n_workers),
            results=results,
            journal=journal,
            sweep=sweep.sweep,
            number=pass_number(results, sweep),
            scratch=scratch,
            metadata=_metadata(sweep.document, waited_ms),
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
    how: SweepOptions,
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
        directory = results.attempt_dir(spec.key, spec.attempt)
        if gateway is not None and not gateway.has_ended:  # it may still be opening or closing the dead worker's trial
            release_directory(gateway.control, directory)
        return lost_row(spec, kind, detail, directory)

    def hold_trial(n_running: int) -> Hold:
        asked = how.hold(n_running)
        return asked if asked is not Hold.BEGIN or provider is None else provider.hold(n_running)

    return Lane(
        complete=complete,
        void_row=void_row,
        trial_limit_s=longest_trial_s(inputs.arms, timeout_s=options.timeout_s),
        outage_streak=options.outage_streak,
        hold=hold_trial,
    )


def _dialect(agent: str) -> str | None:
    return cast("type[Agent]", load_plugin("fairtrial.agents", agent).target).dialect


def _metadata(record: Mapping[str, object], waited_ms: float | None) -> dict[str, object]:
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
        "measurement_lock_wait_ms": None if waited_ms is None else round(waited_ms, 3),
        "trial_order_seed": options["seed"],
        "scripted_model": options["script"] is not None,
        "proposer_model": None if candidate is None else candidate["proposer_model"],
    }
