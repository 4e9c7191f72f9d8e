"""Rows to a decision: shared by the commands that ask the gate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar, cast

import click

from fairtrial.cli.options import Finite
from fairtrial.config.names import require_known
from fairtrial.errors import IntegrityError, NotEnoughEvidenceError, UsageError
from fairtrial.evidence.admit import Admission
from fairtrial.evidence.endings import VOID_MEMBERS, is_void
from fairtrial.evidence.gate import METRICS, GatePolicy, Outcome
from fairtrial.evidence.verdict import Verdict
from fairtrial.promote.binding import BoundPolicy
from fairtrial.promote.promotion import read_binding
from fairtrial.store.audit import audit
from fairtrial.store.layout import Results, open_results
from fairtrial.store.rows import read_rows
from fairtrial.store.sweep_file import read_sweep

__all__ = ["admission_of", "gate_exit_code", "open_evidence", "policy_options", "require_arms"]

THE_ANSWER_IS_NO: Final = 1
ReadRows = Callable[[], Iterator[Mapping[str, object]]]
_Command = TypeVar("_Command", bound=Callable[..., object])


def policy_options(command: _Command) -> _Command:
    """Give a command the options of the gate's policy."""
    for option in (
        click.option(
            "--max-task-regression-pct",
            type=Finite(),
            default=20.0,
            show_default=True,
            help="How much worse the metric of a task may get.",
        ),
        click.option(
            "--min-improvement-pct",
            type=Finite(),
            default=5.0,
            show_default=True,
            help="Median improvement from which a candidate is promoted.",
        ),
        click.option("--min-runs", type=int, default=3, show_default=True, help="Valid runs that a side needs."),
        click.option(
            "--metric", default="cost_usd", show_default=True, help=f"What is to get less: {', '.join(METRICS)}."
        ),
    ):
        command = option(command)
    return command


def open_evidence(path: Path, *, expect: str | None = None) -> tuple[ReadRows, Results | None, int | None]:
    """Open a results directory, audited, or a bare file of rows.

    Args:
        path: The directory or file.
        expect: Digest of its seal, in hex, as it was kept elsewhere; None for taking the one that lies there.

    Returns:
        How to read the rows; the directory, when it is intact and sealed; planned trials without a counting attempt.

    Raises:
        IntegrityError: Something in the directory is not what was written.
        UsageError: It is neither, or of the other lane; or a seal is expected of a bare file.
    """
    if not path.is_dir():
        if expect is not None:
            raise UsageError(f"--expect: {path} is a bare file, which has no seal; name a results directory")
        return (lambda: read_rows(path)), None, None
    results = open_results(path)
    found = audit(results, is_void=is_void, final_members=VOID_MEMBERS, expect=expect)
    if not found.is_intact:
        problem = found.problems[0].as_line()
        raise IntegrityError(f"{path}: {problem}; see `fairtrial audit {path}`, and believe nothing derived from it")
    sweep = read_sweep(results)
    if sweep.lane != "bench":
        raise UsageError(f"{path}: holds a sweep of the {sweep.lane} lane; the gate is for the agent lane")
    n_uncounted = (found.n_planned or 0) - (found.n_counting or 0)
    journal, name = results.results_jsonl, sweep.sweep
    return (lambda: read_rows(journal, sweep_id=name)), results if found.sealed else None, n_uncounted


def require_arms(results: Path, read: ReadRows, *, incumbent: str, candidate: str) -> None:
    """Check that both arms were planned: of one that never will, no more trials can be asked for.

    Args:
        results: The directory or file that was opened; a bare file has no plan to look at.
        read: Gives its rows; called when the plan does not name both.
        incumbent: The arm in use.
        candidate: The arm that would replace it.

    Raises:
        UsageError: One occurs neither in the plan nor in a row; the message has the near miss and the valid names.
    """
    if not results.is_dir():
        return
    plan = cast("Sequence[Mapping[str, object]]", read_sweep(Results(root=results)).document["plan"])
    arms = {arm for trial in plan if isinstance(arm := trial.get("arm"), str)}
    if not {incumbent, candidate} <= arms:
        arms |= {arm for row in read() if isinstance(arm := row.get("arm"), str)}
    for option, arm in (("--incumbent", incumbent), ("--candidate", candidate)) if arms else ():
        require_known(arm, arms, what="arm", where=option)


def admission_of(
    results: Results | None, n_uncounted: int | None, policy: GatePolicy, *, now: datetime, rehearsal: bool
) -> Admission:
    """What `admit` must know beside the rows.

    Raises:
        IntegrityError: What the sweep fixed about a candidate cannot be read.
    """
    binding = None if results is None else read_binding(read_sweep(results))
    bound = None if binding is None else binding.policy
    return Admission(
        sealed=results is not None,
        n_uncounted=n_uncounted,
        now=now,
        rehearsal=rehearsal,
        other_policy=() if bound is None else tuple(_others(bound, policy)),
        provisional=bound is not None and bound.provisional,
    )


def _others(bound: BoundPolicy, asked: GatePolicy) -> Iterator[str]:
    """What was fixed and is asked otherwise: by the fixed one `apply` judges, whatever is asked here."""
    for option, fixed, given in (
        ("--metric", bound.metric, asked.metric),
        ("--min-runs", bound.min_runs, asked.min_runs),
        ("--min-improvement-pct", bound.min_improvement_pct, asked.min_improvement_pct),
        ("--max-task-regression-pct", bound.max_task_regression_pct, asked.max_task_regression_pct),
    ):
        if fixed != given:
            yield f"{option} {fixed}, not {given}"


def gate_exit_code(report: Verdict, *, n_uncounted: int | None) -> int:
    """0 promotable; 5 when more trials are needed; 1 when the answer is no."""
    if report.promotable:
        return 0
    if report.decision.outcome is Outcome.INSUFFICIENT_EVIDENCE or n_uncounted:
        return NotEnoughEvidenceError.exit_code
    return THE_ANSWER_IS_NO
