"""`fairtrial bench`: a sweep of the agent lane."""

import logging
from pathlib import Path

import click

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.task_file import check_model_name
from fairtrial.bench.tasks import read_task_file
from fairtrial.cli.finish import finish_bench
from fairtrial.cli.gating import policy_options
from fairtrial.cli.options import (
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
from fairtrial.cli.output import print_json
from fairtrial.cli.progress import Progress
from fairtrial.cli.reports import write_reports
from fairtrial.config.names import require_known
from fairtrial.errors import UsageError
from fairtrial.evidence.gate import METRICS
from fairtrial.model.sandbox import Containment, Limit
from fairtrial.promote.promoter import Gate
from fairtrial.store.layout import require_free
from fairtrial.sweep.bench_inputs import open_inputs, private_blobs
from fairtrial.sweep.bench_plan import BenchOptions, CandidateOptions
from fairtrial.sweep.bench_sweep import begin_bench
from fairtrial.sweep.loop_sweep import SweepOptions
from fairtrial.sweep.scratch import scratch_base
from fairtrial.workspace.skill_layout import DEFAULT_LAYOUT, read_layout

__all__ = ["command"]

LOG = logging.getLogger(__name__)


@click.command("bench", cls=WordsCommand)
@path_option("--tasks", "The task file.", required=True)
@click.option("--only", help="Ids of the tasks to run [default: all].")
@click.option("--arms", default="workflow,workflow_direct,baseline", show_default=True, help="Names of the arms.")
@treatment_options
@policy_options
@path_option("--candidate-overlay", "Directory of a candidate's skills; --arms then names pairs of arms.")
@click.option(
    "--skill-layout",
    default=DEFAULT_LAYOUT,
    show_default=True,
    help="Where the project keeps skills: a shipped layout, or a YAML file.",
)
@path_option("--project", "Top of the project whose skills the candidate changes [default: the current directory].")
@click.option("--proposer-model", metavar="MODEL", help="The model that wrote the candidate [default: a person did].")
@click.option("--rehearsal", is_flag=True, help="Let a --script play the model: the promotion then is a rehearsal.")
@session_options
@click.option("--include-expensive", is_flag=True, help="Run tasks that are marked expensive too.")
@click.option(
    "--unsafe-no-sandbox",
    is_flag=True,
    help="For a look where no sandbox can be made: the model's commands run as YOU, on your files and network.",
)
@path_option("--out", "The results directory to make [default: results/bench-<UTC>].")
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
    metric: str,
    min_runs: int,
    min_improvement_pct: float,
    max_task_regression_pct: float,
    candidate_overlay: Path | None,
    skill_layout: str,
    project: Path | None,
    proposer_model: str | None,
    rehearsal: bool,
    timeout: float,
    workers: int,
    engine: str,
    out: Path | None,
    scratch: Path | None,
    seed: int,
    include_expensive: bool,
    outage_streak: int,
    provider_wait: float,
    allow_unenforced: tuple[str, ...],
    unsafe_no_sandbox: bool,
    script: Path | None,
    record: bool,
    base_url: str | None,
    key_env: str | None,
    key_file: Path | None,
    lock_wait: float,
    keep_workspaces: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Let coding agents work on tasks of a repository, arm against arm, judged by hidden oracles.

    Every arm of a block works on the same task in a contained, history-free tree; what it changed is judged on a tree
    that we build.

    With --candidate-overlay each arm runs beside its candidate form (`--arms workflow candidate_workflow`), and
    promotion.json says whether the candidate is to replace what the project holds; `fairtrial apply` does it.
    """
    require_provider(script=script, base_url=base_url, key_env=key_env, key_file=key_file)
    try:
        named_model = check_model_name(model)
    except ValueError as problem:
        raise UsageError(f"--model: {problem}") from problem
    limits = [each.value for each in Limit]
    candidate = None
    if candidate_overlay is not None:
        candidate = CandidateOptions(
            overlay=str(candidate_overlay.absolute()),
            layout=read_layout(skill_layout),
            project=str((project or Path()).absolute()),
            min_runs=min_runs,
            min_improvement_pct=min_improvement_pct,
            max_task_regression_pct=max_task_regression_pct,
            proposer_model=proposer_model,
            rehearsal=rehearsal,
        )
    elif project is not None or proposer_model is not None or rehearsal or skill_layout != DEFAULT_LAYOUT:
        raise UsageError(
            "--skill-layout, --project, --proposer-model and --rehearsal are about a candidate: name one by"
            " --candidate-overlay"
        )
    if rehearsal and script is None:
        raise UsageError("--rehearsal is for a scripted model: give --script, or measure in earnest without it")
    options = BenchOptions(
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
        containment=Containment.NONE if unsafe_no_sandbox else Containment.BUBBLEWRAP,
        script=existing(script),
        record=record,
        base_url=base_url,
        key_env=key_env,
        key_file=existing(key_file),
        engine=engine,
        candidate=candidate,
    )
    if options.only:
        _require_none_held_out(options)
    if unsafe_no_sandbox:
        LOG.warning("NO SANDBOX: commands of the model run on this host as its user; these rows never promote")
    if dry_run:
        require_free(out)
        return _print_plan(options, scratch, as_json=as_json)
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
        begun = begin_bench(options, how, n_workers=workers, promoter=Gate())
    return finish_bench(begun, as_json=as_json)


def _require_none_held_out(options: BenchOptions) -> None:
    """Leave tasks that are held out to the final gate, where each use of them is noted."""
    held_out = {task.id for task in read_task_file(Path(options.tasks))[1].tasks if task.holdout}
    if named := [name for name in options.only if name in held_out]:
        raise UsageError(
            f"--only: {named[0]!r} is held out for the final gate of `fairtrial evolve`, which notes each use; name"
            " other tasks, or take its `holdout` mark away: then it is no clean test any more"
        )


def _print_plan(options: BenchOptions, scratch: Path | None, *, as_json: bool) -> int:
    with private_blobs(scratch_base(scratch)) as blobs:
        inputs = open_inputs(options, BlobStore(blobs.root), commits={})
        if inputs.candidate is not None:
            Gate().bind(inputs)
        plan = inputs.plan
    if as_json:
        entries = [{"plan_index": trial.plan_index, "key": trial.key, "block": trial.block} for trial in plan]
        print_json({"schema": "plan/1", "plan": entries})
        return 0
    for trial in plan:
        click.echo(f"{trial.plan_index:4d}  {trial.key}")
    return 0
