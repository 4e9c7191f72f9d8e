"""One sweep of an evolution: begun, or taken up where a killed pass left it, within the evolution's bounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairtrial.bench.arm_plugin import asked_plugins
from fairtrial.bench.arms import arms_named, read_arms
from fairtrial.errors import HostError, NotEnoughEvidenceError
from fairtrial.evidence.bench import BenchFold, BenchSummary
from fairtrial.evidence.endings import EndingKind
from fairtrial.evolve.next_step import Bounds, Used, over_bounds
from fairtrial.evolve.values import Ending, EndKind
from fairtrial.host.files import remove_tree
from fairtrial.promote.promoter import Gate
from fairtrial.store.layout import Results
from fairtrial.store.rows import read_rows
from fairtrial.store.sweep_file import read_sweep
from fairtrial.sweep.bench_plan import BenchOptions
from fairtrial.sweep.bench_sweep import begin_bench, resume_bench
from fairtrial.sweep.execute import Hold
from fairtrial.sweep.loop_sweep import Begun, SweepOptions
from fairtrial.workspace.overlay import incumbent_of

__all__ = ["Finished", "for_pairs", "run_sweep", "summary_of"]

OUR_BUG = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A sweep that is complete and sealed.

    Attributes:
        results: Its directory.
        seal: Digest of its seal.
        summary: What its rows say.
    """

    results: Results
    seal: str
    summary: BenchSummary


def for_pairs(options: BenchOptions, candidates: Sequence[str]) -> BenchOptions:
    """The sweep of some candidate arms and their incumbents, with the plugins that these work with and no other.

    Raises:
        ConfigError: The arms' file is wrong.
    """
    incumbents = [incumbent_of(name) or "" for name in candidates]
    found = arms_named(incumbents, read_arms(None if options.arms_file is None else Path(options.arms_file)))
    asked = asked_plugins(arm.entry.plugin for arm in found)
    return replace(
        options,
        arms=tuple(name for pair in zip(incumbents, candidates, strict=True) for name in pair),
        plugins={name: place for name, place in options.plugins.items() if name in asked},
    )


def run_sweep(
    out: Path,
    options: BenchOptions,
    how: SweepOptions,
    *,
    n_workers: int,
    bound_tasks: Sequence[Mapping[str, object]],
    bound_inputs: Mapping[str, str],
    bounds: Bounds,
    used: Callable[[], Used],
) -> Finished | Ending:
    """Run a sweep to its end, or say why it has none yet; what is recorded of it is kept for a later pass.

    Args:
        out: Its results directory.
        options: What is measured; a sweep that has begun goes by what it recorded.
        how: How it is run.
        n_workers: Trials at the same time.
        bound_tasks: What the evolution bound its tasks to.
        bound_inputs: What it bound its other inputs to; none for a proposal, whose arm is not measured.
        bounds: What the evolution may do; asked before every trial: past one of them none begins any more, and those
            that run end.
        used: Says what the evolution has used up by now.

    Raises:
        UsageError: The request is wrong, or an input has changed.
        HostError: The host is not fit, or failed.
        IntegrityError: A record cannot be believed.
    """
    reached: list[Ending] = []

    def hold(_n_running: int) -> Hold:
        ending = over_bounds(bounds, used())
        if ending is None:
            return Hold.BEGIN
        reached.append(ending)
        return Hold.GIVE_UP

    results, bounded = Results(root=out), replace(how, hold=hold, out=out)
    promoter = None if options.candidate is None else Gate()
    if results.sweep_json.exists():
        begun = resume_bench(results, bounded, n_workers=n_workers, promoter=promoter)
    else:
        _clear(out)
        begun = begin_bench(
            options,
            bounded,
            n_workers=n_workers,
            promoter=promoter,
            bound_tasks=bound_tasks,
            bound_inputs=bound_inputs,
        )
    if begun.scratch is not None:
        how.say(f"workspaces: {begun.scratch}")
    ended = _finish(begun)
    if reached and isinstance(ended, Ending) and ended.exit_code == NotEnoughEvidenceError.exit_code:
        return reached[0]
    return ended


def _clear(out: Path) -> None:
    """Remove what a pass left that was killed before its sweep's first record."""
    try:
        if out.exists():
            remove_tree(out)
    except OSError as problem:
        raise HostError(f"{out}: left by a killed pass, and cannot be removed: {problem}") from problem


def _finish(begun: Begun) -> Finished | Ending:
    where = begun.results.root
    if begun.stopped_by is not None:
        return Ending(
            kind=EndKind.STOPPED, detail=f"stopped by signal {begun.stopped_by}", exit_code=128 + begun.stopped_by
        )
    summary = summary_of(begun.results)
    cells = [cell for arms in summary.aggregates.values() for cell in arms.values()]
    n_valid = sum(cell.valid_runs for cell in cells)
    if any(EndingKind.UNKNOWN in cell.error_kinds for cell in cells):
        detail = f"{where}: our own code raised in a trial; see exception.txt there"
        return Ending(kind=EndKind.UNFINISHED, detail=detail, exit_code=OUR_BUG)
    if begun.tripped or n_valid < begun.n_planned or begun.seal is None:
        detail = f"{where}: {begun.n_planned - n_valid} of {begun.n_planned} trials have no counting attempt"
        return Ending(kind=EndKind.UNFINISHED, detail=detail, exit_code=NotEnoughEvidenceError.exit_code)
    return Finished(results=begun.results, seal=begun.seal, summary=summary)


def summary_of(results: Results) -> BenchSummary:
    """Read what a sweep's rows say.

    Raises:
        IntegrityError: They cannot be read as rows of it.
    """
    sweep = read_sweep(results)
    fold = BenchFold()
    for row in read_rows(results.results_jsonl, sweep_id=sweep.sweep):
        fold.add(row)
    return fold.summary()
