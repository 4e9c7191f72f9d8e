"""`fairtrial gate`: does the candidate replace the incumbent, and may the answer be used?"""

from pathlib import Path

import click

from fairtrial.cli.gating import admission_of, gate_exit_code, open_evidence, policy_options, require_arms
from fairtrial.cli.options import DEFAULT_SEED, expect_option, require_digest
from fairtrial.cli.output import print_json, result_console
from fairtrial.evidence.gate import GatePolicy
from fairtrial.evidence.resample import MIN_RESAMPLES
from fairtrial.evidence.verdict import judge_candidate
from fairtrial.host.clock import utc_now
from fairtrial.report.gate import gate_json, print_gate

__all__ = ["command"]


@click.command("gate")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--incumbent", required=True, help="The arm in use.")
@click.option("--candidate", required=True, help="The arm that would replace it.")
@click.option("--model", help="The benchmarked model; without it nothing is ever promoted.")
@policy_options
@click.option("--seed", type=int, default=DEFAULT_SEED, show_default=True, help="Seed of the resamples.")
@click.option(
    "--resamples",
    type=click.IntRange(min=MIN_RESAMPLES, max=1_000_000),
    default=MIN_RESAMPLES,
    show_default=True,
    help="Resamples for the rate of false promotion.",
)
@expect_option
@click.option("--rehearsal", is_flag=True, help="Judge as if a model had written what a script did; says so.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    *,
    path: Path,
    incumbent: str,
    candidate: str,
    model: str | None,
    metric: str,
    min_runs: int,
    min_improvement_pct: float,
    max_task_regression_pct: float,
    seed: int,
    resamples: int,
    expect: str | None,
    rehearsal: bool,
    as_json: bool,
) -> int:
    """Decide whether --candidate replaces --incumbent, from PATH: a results directory, or a bare JSONL of rows.

    Exit code 0: promote, and the rows may be used for it; 1: keep the incumbent, or the rows may not be used; 4: the
    directory is not what was written; 5: not enough evidence. A bare file is never promotable: nobody sealed it.
    """
    require_digest(expect)
    policy = GatePolicy(
        incumbent_arm=incumbent,
        candidate_arm=candidate,
        model=model,
        metric=metric,
        min_runs=min_runs,
        min_improvement_pct=min_improvement_pct,
        max_task_regression_pct=max_task_regression_pct,
    )
    read, results, n_uncounted = open_evidence(path, expect=expect)
    require_arms(path, read, incumbent=incumbent, candidate=candidate)
    admission = admission_of(results, n_uncounted, policy, now=utc_now(), rehearsal=rehearsal)
    report = judge_candidate(read, policy, admission, seed=seed, n_resamples=resamples)
    if as_json:
        print_json(gate_json(report))
    else:
        print_gate(report, result_console())
    return gate_exit_code(report, n_uncounted=n_uncounted)
