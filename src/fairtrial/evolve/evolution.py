"""An evolution as a whole: begin one, or take up one that was broken off."""

import os
from dataclasses import dataclass
from pathlib import Path

from fairtrial import __version__
from fairtrial.errors import HostError, UsageError
from fairtrial.evolve.bound import Bound, bind_evolution, parse_bound
from fairtrial.evolve.drive import drive
from fairtrial.evolve.learnings import read_learnings
from fairtrial.evolve.material import read_evidence_rows
from fairtrial.evolve.next_step import Bounds
from fairtrial.evolve.record import (
    EVOLUTION_SCHEMA,
    EvolutionFiles,
    create_evolution,
    read_evolution,
    read_outcomes,
    write_evolution,
)
from fairtrial.evolve.spending import spent_usd
from fairtrial.evolve.values import Ending, EvolveOptions, StepOutcome
from fairtrial.evolve.work import Work
from fairtrial.host.clock import monotonic_s, rfc3339, stamp, utc_now
from fairtrial.plugins import load_plugin
from fairtrial.protocols import Agent
from fairtrial.store.layout import Results, hold
from fairtrial.store.strict_json import take
from fairtrial.sweep.bench_sweep import require_fit
from fairtrial.sweep.loop_sweep import SweepOptions
from fairtrial.sweep.scratch import scratch_base
from fairtrial.workspace.overlay import read_overlay

__all__ = ["Evolved", "PlannedEvolution", "begin_evolution", "plan_evolution", "resume_evolution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolved:
    """What a pass over an evolution came to.

    Attributes:
        files: Where it lies.
        evolution: Its id.
        bound: What it fixed.
        ending: Why it does not go on.
        outcomes: What its steps came to, in order.
        spent_usd: US dollars, over all passes; None when some of it cannot be told.
    """

    files: EvolutionFiles
    evolution: str
    bound: Bound
    ending: Ending
    outcomes: tuple[StepOutcome, ...]
    spent_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvolution:
    """What an evolution would do, with nothing done.

    Attributes:
        bound: What it would fix.
        n_measure: Trials of a measurement when a candidate changes every skill that it may.
        n_confirm: Trials of the final gate, likewise; 0 without holdout tasks.
    """

    bound: Bound
    n_measure: int
    n_confirm: int


def plan_evolution(options: EvolveOptions, scratch: Path) -> PlannedEvolution:
    """Resolve everything as `begin_evolution` does, and make nothing.

    Raises:
        UsageError: The request is wrong.
        HostError: An agent cannot be used here.
        IntegrityError: The results that are to be learnt from are not what was written.
    """
    bound = _open(options, scratch)
    n_trials = 2 * len(bound.skills) * options.bench.runs
    return PlannedEvolution(
        bound=bound,
        n_measure=n_trials * len(bound.learning),
        n_confirm=n_trials * len(bound.holdout),
    )


def begin_evolution(options: EvolveOptions, how: SweepOptions, *, n_workers: int) -> Evolved:
    """Fix everything, then propose, measure and decide until an end is reached.

    Raises:
        UsageError: The request is wrong; nothing is spent or made yet.
        HostError: The host is not fit.
        IntegrityError: The results that are to be learnt from are not what was written.
    """
    scratch = scratch_base(how.scratch)
    bound = _open(options, scratch)
    require_fit(scratch, options.bench)
    begun = utc_now()
    files = create_evolution(how.out, now=begun, base=Path("results"))
    evolution = f"evolve-{stamp(begun)}-{os.urandom(3).hex()}"
    document: dict[str, object] = {
        "schema": EVOLUTION_SCHEMA,
        "evolution": evolution,
        "created_utc": rfc3339(begun),
        "fairtrial": __version__,
        "bound": bound.as_json(),
    }
    with hold(Results(root=files.root)):
        write_evolution(files, document)
        return _pass(files, evolution, bound, how, n_workers)


def resume_evolution(files: EvolutionFiles, how: SweepOptions, *, n_workers: int) -> Evolved:
    """Go on where a pass was broken off, at whatever moment.

    Raises:
        UsageError: An input has changed since the evolution began, or it is still running.
        IntegrityError: What is recorded is not what was written.
    """
    with hold(Results(root=files.root)):
        document = read_evolution(files)
        return _pass(files, take(document, "evolution", str), parse_bound(document), how, n_workers)


def _pass(files: EvolutionFiles, evolution: str, bound: Bound, how: SweepOptions, n_workers: int) -> Evolved:
    options = bound.options
    bounds = Bounds(
        generations=options.generations,
        budget_usd=options.budget_usd,
        wall_time_s=options.wall_time_s,
        has_holdout=bool(bound.holdout),
        apply=options.apply,
    )
    work = Work(
        files=files,
        evolution=evolution,
        bound=bound,
        bounds=bounds,
        how=how,
        n_workers=n_workers,
        started_s=monotonic_s(),
    )
    ending = drive(files, work, bounds, evolution=evolution, now=utc_now)
    return Evolved(
        files=files,
        evolution=evolution,
        bound=bound,
        ending=ending,
        outcomes=read_outcomes(files, evolution=evolution),
        spent_usd=spent_usd(files),
    )


def _open(options: EvolveOptions, scratch: Path) -> Bound:
    """Fix everything, and refuse what could not end well."""
    bound, _ = bind_evolution(options, scratch)
    _require_readable(bound)
    _require_agent(options.proposer_agent)
    return bound


def _require_readable(bound: Bound) -> None:
    """Read everything once that later steps read: what is wrong with it is found before anything is spent."""
    options = bound.options
    if options.learnings is not None:
        read_learnings(Path(options.learnings), skills=bound.layout.skills or (), hidden_tasks=bound.held_out)
    if options.seed_results is not None:
        read_evidence_rows(Path(options.seed_results), bound.learning_ids)
    if options.initial_overlay is not None:
        overlay = read_overlay(Path(options.initial_overlay), bound.layout)
        if added := [file.path for file in overlay.files if file.path not in bound.base_digests]:
            raise UsageError(f"--initial-overlay: {added[0]}: a candidate changes files, it adds none")


def _require_agent(name: str) -> None:
    plugin = load_plugin("fairtrial.agents", name)
    agent: Agent = plugin.target()
    if agent.dialect is None:
        raise UsageError(f"--proposer-agent: {name} speaks to no model, so it can propose nothing; name another")
    missing = agent.probe().missing
    if missing is not None:
        raise HostError(f"agent {name}: {missing}")
