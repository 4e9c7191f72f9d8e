"""A sweep of the tool lane: begin one, or take up one that was broken off."""

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final, cast

from pydantic import TypeAdapter, ValidationError

from fairtrial import __version__
from fairtrial.errors import HostError, IntegrityError, UsageError
from fairtrial.host.clock import rfc3339, stamp, utc_now
from fairtrial.host.lock import HOST_LOCK_PATH, StoppedWaitingError, acquire_lock
from fairtrial.host.machine import describe_machine
from fairtrial.host.namespace import probe_isolation
from fairtrial.host.signals import StopRequest, stop_requests
from fairtrial.loop.rows import RowBuilder
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.model.loop import JsonObject, Variant
from fairtrial.model.trial import AnySpec, AttemptSpec, LoopTask, TrialSpec
from fairtrial.plugins import load_plugin
from fairtrial.protocols import Engine
from fairtrial.store.attempts import scan_attempts
from fairtrial.store.journal import Journal
from fairtrial.store.layout import Results, create_results, hold
from fairtrial.store.reserve import prepare_reserve, release_reserve
from fairtrial.store.rows import read_rows
from fairtrial.store.seal import read_seal, set_aside_seal, write_seal
from fairtrial.store.sweep_file import SweepFile, read_sweep, write_sweep
from fairtrial.sweep.execute import Due, Event, Hold, Lane, Pass, PlannedT, drive, due_attempts, never_held
from fairtrial.sweep.plan import LoopOptions, PlannedTrial, SubjectFound, move_programs, plan_loop
from fairtrial.sweep.resolve import changed_inputs, find_subjects, pin_inputs
from fairtrial.sweep.scratch import end_earlier, open_scratch, scratch_base, scratch_of

__all__ = [
    "SWEEP_KILLED",
    "Begun",
    "SweepOptions",
    "begin_loop",
    "final_rows",
    "pass_number",
    "plan_dry",
    "plan_of",
    "recover",
    "resume_loop",
    "say_waiting",
    "stopped_waiting",
]

ENVIRONMENT_VERSION: Final = "env/1"
SWEEP_KILLED: Final = "the sweep was killed while this attempt ran"
OPTIONS: Final[TypeAdapter[LoopOptions]] = TypeAdapter(LoopOptions)
VARIANTS: Final[TypeAdapter[tuple[Variant, ...]]] = TypeAdapter(tuple[Variant, ...])
TASK: Final[TypeAdapter[LoopTask]] = TypeAdapter(LoopTask)
WORDS: Final = TypeAdapter(dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """How a sweep is run, as against what it measures: none of it is part of a trial's identity.

    Attributes:
        out: The results directory to make, or None for one under `results/`.
        scratch: Where to work, or None for the default.
        keep_workspaces: Leave the scratch directory behind.
        lock_wait_s: Seconds to wait for another measurement on this host.
        report: Writes the reports of a directory whose last row is written.
        say: Takes one line for the user's log.
        watch: Takes progress.
        provider_wait_s: Seconds of one pause for a provider in trouble after which the sweep ends (agent lane).
        hold: Asked before each trial with the number of those that run, as `Lane.hold` is (agent lane).
    """

    out: Path | None
    scratch: Path | None
    keep_workspaces: bool
    lock_wait_s: float
    report: Callable[[Results], None]
    say: Callable[[str], None]
    watch: Callable[[Event], None]
    provider_wait_s: float = 3600.0
    hold: Callable[[int], Hold] = never_held


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a pass left.

    Attributes:
        results: The results directory.
        n_planned: Trials of the plan.
        stopped_by: The signal that stopped it, or None.
        seal: The seal's digest; None when the sweep was stopped.
        scratch: The scratch directory when it was kept, else None.
        tripped: So many endings in a row looked like an outage, a provider was down for so long, or its caller held it
            back, that it stopped.
    """

    results: Results
    n_planned: int
    stopped_by: int | None
    seal: str | None
    scratch: Path | None
    tripped: bool = False


def plan_dry(options: LoopOptions, variants: Sequence[Variant]) -> tuple[PlannedTrial, ...]:
    """The plan of a sweep without beginning it."""
    return plan_loop(options, SCENARIOS, _usable(find_subjects(variants)), _unset(options))


def begin_loop(options: LoopOptions, variants: Sequence[Variant], how: SweepOptions) -> Begun:
    """Plan and run a new sweep.

    Raises:
        UsageError: The request is wrong.
        HostError: No subject can run here, or the host is not fit.
    """
    subjects = _usable(find_subjects(variants))
    base = scratch_base(how.scratch)
    plan = plan_loop(options, SCENARIOS, subjects, _unset(options))
    begun = utc_now()
    results = create_results(how.out, lane="loop", now=begun, base=Path("results"))
    sweep = f"loop-{stamp(begun)}-{os.urandom(3).hex()}"
    record: dict[str, object] = {
        "schema": "sweep/1",
        "sweep": sweep,
        "lane": "loop",
        "created_utc": rfc3339(begun),
        "fairtrial": __version__,
        "options": OPTIONS.dump_python(options, mode="json"),
        "variants": VARIANTS.dump_python(tuple(variants), mode="json"),
        "inputs": pin_inputs(options, subjects),
        "machine": asdict(describe_machine()),
        "scratch": str(scratch_of(base, sweep, results.root)),
        "plan": [
            {"plan_index": t.plan_index, "key": t.key, "loop": TASK.dump_python(t.loop, mode="json")} for t in plan
        ],
    }
    with hold(results):
        return _run(results, write_sweep(results, record), subjects, plan, how)


def resume_loop(results: Results, how: SweepOptions) -> Begun:
    """Finish a sweep: adopt what is on disk, name what was interrupted, run what has no counting attempt.

    Raises:
        UsageError: An input has changed since the sweep began, or the sweep is still running.
        IntegrityError: What is recorded is not what was written.
    """
    with hold(results):
        sweep = read_sweep(results)
        options, variants, plan = plan_of(results, sweep.document)
        subjects = find_subjects(variants)
        changed = changed_inputs(cast("Mapping[str, str]", sweep.document["inputs"]), pin_inputs(options, subjects))
        if changed:
            what = "; ".join(changed)
            raise UsageError(f"{results.root}: inputs have changed ({what}), so it cannot go on; begin a new sweep")
        return _run(results, sweep, subjects, move_programs(plan, subjects), how)


def plan_of(
    results: Results, record: Mapping[str, object]
) -> tuple[LoopOptions, tuple[Variant, ...], tuple[PlannedTrial, ...]]:
    """Options, variants and plan as `sweep.json` holds them.

    Raises:
        IntegrityError: They do not have the form that this version writes.
    """
    try:
        entries = cast("Sequence[Mapping[str, object]]", record["plan"])
        plan = tuple(
            PlannedTrial(
                plan_index=cast("int", entry["plan_index"]),
                key=str(entry["key"]),
                loop=TASK.validate_python(entry["loop"]),
            )
            for entry in entries
        )
        options, variants = OPTIONS.validate_python(record["options"]), VARIANTS.validate_python(record["variants"])
        WORDS.validate_python({name: record[name] for name in ("created_utc", "scratch")})
        WORDS.validate_python(record["inputs"])
    except (ValidationError, KeyError, TypeError) as problem:
        raise IntegrityError(f"{results.sweep_json}: not a plan that this version understands: {problem}") from problem
    if unknown := {*options.scenarios, *(trial.loop.scenario for trial in plan)} - set(SCENARIOS):
        named = ", ".join(sorted(unknown))
        raise IntegrityError(f"{results.sweep_json}: not a plan that this version understands: scenarios {named}")
    return options, variants, plan


def _unset(options: LoopOptions) -> list[str]:
    return [name for name in options.credential_env if name not in os.environ]


def _usable(subjects: tuple[SubjectFound, ...]) -> tuple[SubjectFound, ...]:
    reasons = [subject.probe.missing for subject in subjects if subject.probe.missing is not None]
    if len(reasons) == len(subjects):
        raise HostError(f"nothing can be measured: {'; '.join(reasons)}")
    return subjects


def _run(
    results: Results,
    sweep: SweepFile,
    subjects: Sequence[SubjectFound],
    plan: Sequence[PlannedTrial],
    how: SweepOptions,
) -> Begun:
    scratch = scratch_of(scratch_base(how.scratch), sweep.sweep, results.root)
    end_earlier(sweep.sweep, Path(str(sweep.document["scratch"])), now=scratch)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_requests())
        prepare_reserve(results)
        stack.enter_context(open_scratch(scratch, sweep.sweep, keep=how.keep_workspaces))
        journal = stack.enter_context(Journal.open(results, sweep))
        if (repair := journal.repair) is not None:
            torn = f"a torn tail of {repair.n_bytes} bytes ({repair.what})"
            how.say(f"{results.results_jsonl}: {torn} is kept as {repair.kept}")
        try:
            lock = acquire_lock(HOST_LOCK_PATH, wait_s=how.lock_wait_s, on_wait=say_waiting(how), stop=stop)
        except StoppedWaitingError:
            return stopped_waiting(results, len(plan), stop)
        stack.enter_context(lock)
        this_pass = Pass(
            lane=LANE,
            results=results,
            journal=journal,
            sweep=sweep.sweep,
            number=pass_number(results, sweep),
            scratch=scratch,
            metadata=_metadata(sweep.document, subjects, lock.waited_ms),
            engine=cast("type[Engine]", load_plugin("fairtrial.engines", "local").target)(),
            n_workers=1,  # latency is measured: one at a time
            passed_env=tuple(dict.fromkeys(name for trial in plan for name in trial.loop.credential_env)),
            watch=how.watch,
            stop=stop,
        )
        recover(this_pass, sweep, plan, how.say)
        this_pass.n_done = 0
        due = due_attempts(plan, tuple(final_rows(results, sweep)))
        seal = read_seal(results)
        if due and seal is not None:
            set_aside_seal(results)
            seal = None
        drive(this_pass, due)
        digest = seal.digest if seal is not None else None
        if digest is None:
            how.report(results)
            release_reserve(results)
            digest = write_seal(results, journal) if stop.signal_number is None else None
    return Begun(
        results=results,
        n_planned=len(plan),
        stopped_by=stop.signal_number,
        seal=digest,
        scratch=scratch if how.keep_workspaces else None,
    )


def stopped_waiting(results: Results, n_planned: int, stop: StopRequest) -> Begun:
    """What a pass left that was stopped before it could measure."""
    release_reserve(results)
    return Begun(results=results, n_planned=n_planned, stopped_by=stop.signal_number, seal=None, scratch=None)


def say_waiting(how: SweepOptions) -> Callable[[str], None]:
    """What tells the user for whom a sweep waits."""
    return lambda holder: how.say(f"waiting up to {how.lock_wait_s:g} s for another measurement on this host: {holder}")


def recover(this_pass: Pass[PlannedT], sweep: SweepFile, plan: Sequence[PlannedT], say: Callable[[str], None]) -> None:
    """Record every attempt that began before this pass: adopt its outcome, or name it interrupted."""
    for each in scan_attempts(this_pass.results, sweep, recorded=this_pass.journal.recorded):
        if each.problem is not None:
            say(each.problem)
        due = Due(trial=plan[each.plan_index], attempt=each.attempt)
        this_pass.close_attempt(due, "interrupted", SWEEP_KILLED)


def final_rows(results: Results, sweep: SweepFile) -> Iterator[JsonObject]:
    """The last row of every recorded attempt."""
    return (row for row in read_rows(results.results_jsonl, sweep_id=sweep.sweep) if row["final"])


def pass_number(results: Results, sweep: SweepFile) -> int:
    """The number of the pass that begins now: one more than any attempt was begun in."""
    numbers = [each.intent["sweep_pass"] for each in scan_attempts(results, sweep) if each.intent is not None]
    return 1 + max((number for number in numbers if isinstance(number, int)), default=-1)


def _complete(shared: AttemptSpec, trial: PlannedTrial) -> TrialSpec:
    return TrialSpec(**{each.name: getattr(shared, each.name) for each in fields(AttemptSpec)}, loop=trial.loop)


def _void_row(spec: AnySpec, kind: str, detail: str) -> Mapping[str, object]:
    if not isinstance(spec, TrialSpec):
        raise TypeError(f"{type(spec).__name__} is no attempt of the tool lane")
    scenario = SCENARIOS[spec.loop.scenario]
    return RowBuilder.of(spec, scenario).void(scenario.stem, kind, detail)


LANE: Final[Lane[PlannedTrial]] = Lane(complete=_complete, void_row=_void_row, trial_limit_s=3600.0)


def _metadata(record: Mapping[str, object], subjects: Sequence[SubjectFound], waited_ms: float) -> dict[str, object]:
    machine = describe_machine()
    options = cast("Mapping[str, object]", record["options"])
    return {
        "bench_id": record["sweep"],
        "timestamp_utc": record["created_utc"],
        "host": machine.hostname,
        "platform": machine.platform,
        "machine": machine.arch,
        "python": platform.python_version(),
        "env_isolation_version": ENVIRONMENT_VERSION,
        "worker_isolation": probe_isolation().isolation.value,
        "source": f"fairtrial {__version__}",
        "subject_versions": {subject.variant.name: subject.probe.version for subject in subjects},
        "subject_details": {
            subject.variant.name: {"binary": subject.probe.binary, **subject.probe.details} for subject in subjects
        },
        "trial_order_randomized": True,
        "trial_order_seed": options["seed"],
        "measurement_lock": "held",
        "measurement_lock_wait_ms": round(waited_ms, 3),
    }
