"""`fairtrial evolve`: let a model improve a skill, generation after generation, under the gate."""

import math
from pathlib import Path

import click

from fairtrial.bench.task_file import check_model_name
from fairtrial.cli.evolved import finish_evolution, print_plan
from fairtrial.cli.gating import policy_options
from fairtrial.cli.options import (
    Seconds,
    WordsCommand,
    existing,
    pass_options,
    path_option,
    plan_options,
    plugin_places,
    require_provider,
    session_options,
    skill_directories,
    split_names,
    treatment_options,
)
from fairtrial.cli.progress import Progress
from fairtrial.cli.reports import write_reports
from fairtrial.config.names import require_known
from fairtrial.errors import UsageError
from fairtrial.evidence.gate import METRICS
from fairtrial.evolve.evolution import begin_evolution, plan_evolution
from fairtrial.evolve.values import EvolveOptions
from fairtrial.model.sandbox import Limit
from fairtrial.store.layout import require_free
from fairtrial.sweep.bench_plan import BenchOptions, CandidateOptions
from fairtrial.sweep.loop_sweep import SweepOptions
from fairtrial.sweep.scratch import scratch_base
from fairtrial.workspace.skill_layout import DEFAULT_LAYOUT, read_layout

__all__ = ["command"]


@click.command("evolve", cls=WordsCommand)
@path_option("--tasks", "The task file; tasks marked `holdout` are for the final gate alone.", required=True)
@click.option("--only", help="Ids of the learning tasks [default: all that are not held out].")
@click.option("--arms", default="workflow,workflow_direct", show_default=True, help="Names of the arms in use.")
@treatment_options
@click.option("--proposer-model", metavar="MODEL", help="The model that writes candidates [default: --model].")
@click.option("--proposer-agent", metavar="AGENT", help="The agent that writes candidates [default: --agent].")
@click.option("--proposer-budget-usd", type=float, help="US dollars that one proposal may cost [default: no bound].")
@click.option(
    "--generations", type=click.IntRange(1, 1000), default=1, show_default=True, help="Candidates to try at most."
)
@click.option(
    "--budget-usd",
    type=float,
    help="US dollars, over all passes, after which no trial begins; those that run end [default: no bound].",
)
@click.option(
    "--wall-time",
    type=Seconds(0, open_below=True),
    help="Seconds of a pass after which no trial begins; those that run end [default: no bound].",
)
@path_option("--seed-results", "Results directory whose runs are the first evidence.")
@path_option("--initial-overlay", "Directory of the first candidate, written by a person.")
@path_option("--learnings", "JSON lines of what was learnt about the skills.")
@click.option("--apply", "is_applied", is_flag=True, help="Put a promoted candidate into --project.")
@policy_options
@click.option(
    "--skill-layout",
    default=DEFAULT_LAYOUT,
    show_default=True,
    help="Where the project keeps skills: a shipped layout, or a YAML file.",
)
@path_option("--project", "Top of the project whose skills are improved [default: the current directory].")
@click.option("--rehearsal", is_flag=True, help="Let a --script play the model: promotions then are rehearsals.")
@session_options
@click.option("--include-expensive", is_flag=True, help="Use tasks that are marked expensive too.")
@path_option("--out", "The directory to make [default: results/evolve-<UTC>].")
@pass_options
@plan_options
def command(
    *,
    tasks: Path,
    only: str | None,
    arms: str,
    arms_file: Path | None,
    skills: tuple[str, ...],
    plugins: tuple[str, ...],
    runs: int,
    model: str,
    agent: str,
    effort: str | None,
    context: str | None,
    proposer_model: str | None,
    proposer_agent: str | None,
    proposer_budget_usd: float | None,
    generations: int,
    budget_usd: float | None,
    wall_time: float | None,
    seed_results: Path | None,
    initial_overlay: Path | None,
    learnings: Path | None,
    is_applied: bool,
    metric: str,
    min_runs: int,
    min_improvement_pct: float,
    max_task_regression_pct: float,
    skill_layout: str,
    project: Path | None,
    rehearsal: bool,
    timeout: float,
    engine: str,
    seed: int,
    outage_streak: int,
    allow_unenforced: tuple[str, ...],
    script: Path | None,
    record: bool,
    base_url: str | None,
    key_env: str | None,
    key_file: Path | None,
    include_expensive: bool,
    out: Path | None,
    workers: int,
    scratch: Path | None,
    lock_wait: float,
    provider_wait: float,
    keep_workspaces: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Let a model improve the skills of --project: propose, freeze, measure, decide, again.

    A proposer sees the skills and what was measured on the learning tasks, in a sandbox, and nothing that it is judged
    by. Each candidate is measured as `bench --candidate-overlay` does; the first that is promoted ends it. Tasks that
    are held out are asked only about a candidate which the learning tasks promote, and each such use is counted.

    Exit code 0: a candidate is promoted, or all generations ran; 1: a proposal or the incumbent was of no use, or
    tasks or skills changed meanwhile; 5: the budget or the time is over, or trials are missing (`fairtrial resume`).
    """
    require_provider(script=script, base_url=base_url, key_env=key_env, key_file=key_file)
    _require_bound(budget_usd, "--budget-usd", "US dollars")
    _require_bound(proposer_budget_usd, "--proposer-budget-usd", "US dollars")
    if rehearsal and script is None:
        raise UsageError("--rehearsal is for a scripted model: give --script, or measure in earnest without it")
    named_model = _model(model, "--model")
    limits = [each.value for each in Limit]
    options = EvolveOptions(
        bench=BenchOptions(
            tasks=str(tasks.absolute()),
            only=() if only is None else split_names(only, "--only"),
            include_expensive=include_expensive,
            arms=split_names(arms, "--arms"),
            arms_file=existing(arms_file),
            skills=skill_directories(skills),
            plugins=plugin_places(plugins),
            runs=runs,
            model=named_model,
            agent=agent,
            effort=effort,
            context=context,
            metric=require_known(metric, METRICS, what="metric", where="--metric"),
            timeout_s=timeout,
            seed=seed,
            outage_streak=outage_streak,
            allow_unenforced=tuple(
                require_known(each, limits, what="limit", where="--allow-unenforced") for each in allow_unenforced
            ),
            script=existing(script),
            record=record,
            base_url=base_url,
            key_env=key_env,
            key_file=existing(key_file),
            engine=engine,
        ),
        candidate=CandidateOptions(
            overlay="",
            layout=read_layout(skill_layout),
            project=str((project or Path()).absolute()),
            min_runs=min_runs,
            min_improvement_pct=min_improvement_pct,
            max_task_regression_pct=max_task_regression_pct,
            proposer_model=None,
            rehearsal=rehearsal,
        ),
        proposer_agent=proposer_agent or agent,
        proposer_model=named_model if proposer_model is None else _model(proposer_model, "--proposer-model"),
        proposer_budget_usd=proposer_budget_usd,
        generations=generations,
        budget_usd=budget_usd,
        wall_time_s=wall_time,
        seed_results=existing(seed_results),
        initial_overlay=existing(initial_overlay),
        learnings=existing(learnings),
        apply=is_applied,
    )
    if dry_run:
        require_free(out)
        return print_plan(plan_evolution(options, scratch_base(scratch)), as_json=as_json)
    with Progress() as progress:
        how = SweepOptions(
            out=out,
            scratch=scratch,
            keep_workspaces=keep_workspaces,
            lock_wait_s=lock_wait,
            report=write_reports,
            say=progress.say,
            watch=progress.watch,
            provider_wait_s=provider_wait,
        )
        evolved = begin_evolution(options, how, n_workers=workers)
    return finish_evolution(evolved, as_json=as_json)


def _require_bound(value: float | None, option: str, unit: str) -> None:
    if value is not None and (not math.isfinite(value) or value <= 0):
        raise UsageError(f"{option}: {value} is no number of {unit} above 0")


def _model(name: str, option: str) -> str:
    try:
        return check_model_name(name)
    except ValueError as problem:
        raise UsageError(f"{option}: {problem}") from problem
