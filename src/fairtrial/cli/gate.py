"""`fairtrial gate`: may the candidate replace the incumbent?"""

from collections.abc import Iterable
from pathlib import Path

import click

from fairtrial.cli.output import print_json
from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evidence.admit import Admission
from fairtrial.evidence.bench import BenchFold
from fairtrial.evidence.endings import VOID_MEMBERS, is_void
from fairtrial.evidence.gate import Decision, GatePolicy, Outcome, decide, decision_fields
from fairtrial.host.clock import utc_now
from fairtrial.model.loop import JsonObject
from fairtrial.report.text import figure
from fairtrial.store.audit import audit
from fairtrial.store.layout import open_results
from fairtrial.store.rows import read_rows
from fairtrial.store.sweep_file import read_sweep

__all__ = ["command"]

EXIT_CODES = {Outcome.PROMOTE: 0, Outcome.KEEP_INCUMBENT: 1, Outcome.INSUFFICIENT_EVIDENCE: 5}


@click.command("gate")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--incumbent", required=True, help="The arm in use.")
@click.option("--candidate", required=True, help="The arm that would replace it.")
@click.option("--model", help="The benchmarked model; without it there is never enough evidence.")
@click.option("--metric", default="cost_usd", show_default=True, help="What is to improve; less is better.")
@click.option("--min-runs", type=int, default=3, show_default=True, help="Valid runs that each side of a task needs.")
@click.option("--min-improvement-pct", type=float, default=5.0, show_default=True, help="Median improvement asked for.")
@click.option(
    "--max-task-regression-pct", type=float, default=20.0, show_default=True, help="How much one task may get worse."
)
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
    as_json: bool,
) -> int:
    """Decide on PATH, a results directory or a bare JSONL file of rows, and say why.

    Exit codes: 0 promote, and the rows may be used; 1 keep the incumbent, or the rows may not be used; 5 not enough
    evidence.
    """
    policy = GatePolicy(
        incumbent_arm=incumbent,
        candidate_arm=candidate,
        model=model,
        metric=metric,
        min_runs=min_runs,
        min_improvement_pct=min_improvement_pct,
        max_task_regression_pct=max_task_regression_pct,
    )
    rows, sealed = _rows(path)
    fold = BenchFold()
    admission = Admission(arms=(incumbent, candidate), model=model, now=utc_now(), sealed=sealed)
    for row in rows:
        try:
            fold.add(row)
        except (UsageError, IntegrityError) as problem:
            raise type(problem)(f"{path}: {problem}") from problem
        admission.add(row)
    decision = decide(fold.summary().aggregates, policy)
    objections = admission.reasons()
    promotable = decision.outcome is Outcome.PROMOTE and not objections
    code = EXIT_CODES[decision.outcome] if promotable or decision.outcome is not Outcome.PROMOTE else 1
    if as_json:
        answer = decision_fields(decision) | {"promotable": promotable, "not_promotable_because": list(objections)}
        print_json({"schema": "gate/1", "sealed": sealed, **answer, "exit_code": code})
        return code
    _tell(decision, objections, promotable=promotable)
    return code


def _rows(path: Path) -> tuple[Iterable[JsonObject], bool]:
    """The rows, and whether they are sealed and intact.

    Raises:
        UsageError: There are none, or they are of the tool lane.
    """
    if not path.is_dir():
        return read_rows(path), False
    results = open_results(path)
    sweep = read_sweep(results)
    if sweep.lane != "bench":
        raise UsageError(f"{path}: a sweep of lane {sweep.lane}; the gate compares arms of the agent lane")
    found = audit(results, expect=None, is_void=is_void, final_members=VOID_MEMBERS)
    return read_rows(results.results_jsonl, sweep_id=sweep.sweep), found.sealed and found.is_intact


def _tell(decision: Decision, objections: tuple[str, ...], *, promotable: bool) -> None:
    click.echo(f"decision: {decision.outcome}")
    click.echo(f"median improvement: {figure(decision.median_improvement_pct, 1)} %")
    for reason in decision.reasons:
        click.echo(f"  {reason}")
    if decision.metric_warning is not None:
        click.echo(f"  note: {decision.metric_warning}.")
    click.echo(f"promotable: {'yes' if promotable else 'no'}")
    for reason in objections:
        click.echo(f"  {reason}")
