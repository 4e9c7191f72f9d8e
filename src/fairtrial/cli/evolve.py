"""`fairtrial evolve`: let a model improve a skill, generation after generation, under the gate."""

import math
from pathlib import Path

import click

from fairtrial.bench.task_file import check_model_name
from fairtrial.cli.evolved import finish_evolution
from fairtrial.cli.gating import policy_options
from fairtrial.cli.options import WordsCommand, existing, path_option, skill_directories, split_names
from fairtrial.cli.progress import Progress
from fairtrial.cli.reports import write_reports
from fairtrial.config.names import require_known
from fairtrial.errors import UsageError
from fairtrial.evidence.gate import METRICS
from fairtrial.evolve.evolution import begin_evolution
from fairtrial.evolve.values import EvolveOptions
from fairtrial.model.sandbox import Limit
from fairtrial.sweep.bench_plan import BenchOptions, CandidateOptions
from fairtrial.sweep.loop_sweep import SweepOptions
from fairtrial.workspace.skill_layout import DEFAULT_LAYOUT, read_layout

__all__ = ["command"]

SEED = 20260908


@click.command("evolve", cls=WordsCommand)
@path_option("--tasks", "The task file; tasks marked `holdout` are for the final gate alone.", required=True)
@click.option("--only", help="Ids of the learning tasks [default: all that are not held out].")
@click.option("--arms", default="workflow,workflow_direct", show_default=True, help="Names of the arms in use.")
@path_option("--arms-file", "YAML file with arms of your own.")
@click.option(
    "--skill", "skills", multiple=True, metavar="ROLE=DIR", help="Directory of a skill that an arm calls ROLE."
)
@click.option("--runs", type=click.IntRange(1, 10_000), default=3, show_default=True, help="Runs of each cell.")
@click.option("--model", required=True, help="The model, by a name that always means the same.")
@click.option("--agent", default="claude-code", show_default=True, help="The agent (see `fairtrial plugins`).")
@click.option("--effort", help="How hard the model shall think, in the agent's word.")
@click.option("--proposer-model", metavar="MODEL", help="The model that writes candidates [default: --model].")
@click.option("--proposer-agent", metavar="AGENT", help="The agent that writes candidates [default: --agent].")
@click.option(
    "--generations", type=click.IntRange(1, 1000), default=1, show_default=True, help="Candidates to try at most."
)
@click.option("--budget-usd", type=float, help="US dollars to spend at most, over all passes [default: no bound].")
@click.option("--wall-time", type=float, help="Seconds that one pass may take [default: no bound].")
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
@click.option("--timeout", type=float, default=3600.0, show_default=True, help="Seconds of a session, check or oracle.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Trials at the same time.")
@path_option("--out", "The directory to make [default: results/evolve-<UTC>].")
@path_option("--scratch", "Where to work [default: $TMPDIR, else /var/tmp].")
@click.option("--seed", type=int, default=SEED, show_default=True, help="Seed of the order inside blocks.")
@click.option("--include-expensive", is_flag=True, help="Use tasks that are marked expensive too.")
@click.option(
    "--outage-streak",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Stop after so many endings in a row that an outage causes; 0 = never.",
)
@click.option("--allow-unenforced", multiple=True, metavar="LIMIT", help="Go on where this limit cannot be enforced.")
@path_option("--script", "A scripted model that stands for the provider.")
@click.option("--base-url", metavar="URL", help="Address of the provider [default: the dialect's own].")
@click.option("--key-env", metavar="NAME", help="Variable that holds the provider's key [default: the dialect's own].")
@click.option(
    "--lock-wait",
    type=click.FloatRange(0),
    default=3600.0,
    show_default=True,
    help="Seconds to wait for another measurement.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    *,
    tasks: Path,
    only: str | None,
    arms: str,
    arms_file: Path | None,
    skills: tuple[str, ...],
    runs: int,
    model: str,
    agent: str,
    effort: str | None,
    proposer_model: str | None,
    proposer_agent: str | None,
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
    workers: int,
    out: Path | None,
    scratch: Path | None,
    seed: int,
    include_expensive: bool,
    outage_streak: int,
    allow_unenforced: tuple[str, ...],
    script: Path | None,
    base_url: str | None,
    key_env: str | None,
    lock_wait: float,
    as_json: bool,
) -> int:
    """Let a model improve the skills of --project: propose, freeze, measure, decide, again.

    A proposer sees the skills and what was measured on the learning tasks, in a sandbox, and nothing that it is judged
    by. Each candidate is measured as `bench --candidate-overlay` does; the first that is promoted ends it. Tasks that
    are held out are asked only about a candidate which the learning tasks promote, and each such use is counted.

    Exit code 0: a candidate is promoted, or all generations ran; 1: a proposal or the incumbent was of no use, or
    tasks or skills changed meanwhile; 5: the budget or the time is over, or trials are missing (`fairtrial resume`).
    """
    _require_bound(timeout, "--timeout", "seconds")
    _require_bound(budget_usd, "--budget-usd", "US dollars")
    _require_bound(wall_time, "--wall-time", "seconds")
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
            runs=runs,
            model=named_model,
            agent=agent,
            effort=effort,
            metric=require_known(metric, METRICS, what="metric", where="--metric"),
            timeout_s=timeout,
            seed=seed,
            outage_streak=outage_streak,
            allow_unenforced=tuple(
                require_known(each, limits, what="limit", where="--allow-unenforced") for each in allow_unenforced
            ),
            script=existing(script),
            base_url=base_url,
            key_env=key_env,
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
        generations=generations,
        budget_usd=budget_usd,
        wall_time_s=wall_time,
        seed_results=existing(seed_results),
        initial_overlay=existing(initial_overlay),
        learnings=existing(learnings),
        apply=is_applied,
    )
    with Progress() as progress:
        how = SweepOptions(
            out=out,
            scratch=scratch,
            keep_workspaces=False,
            lock_wait_s=lock_wait,
            report=write_reports,
            say=progress.say,
            watch=progress.watch,
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
