"""The promotion gate: one pure decision over two arms' aggregates.

The order of doubts is the rule: what is not enough evidence is told before what speaks against the candidate, and
only then is the candidate's gain looked at. Whether rows may be used at all (sealed, contained, of one model) is a
different question, asked elsewhere; this module only decides what the numbers say.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Final

from fairtrial.errors import UsageError
from fairtrial.evidence.bench import Aggregates, ArmAggregate
from fairtrial.evidence.review_gate import (
    MIN_F1_GAIN,
    TOLERANCE,
    ReviewGateTask,
    best_gain,
    compare_reviews,
    missing_in_reviews,
    objections_to_review,
)
from fairtrial.stats.summary import median, percent_saved

__all__ = [
    "METRICS",
    "METRIC_WARNINGS",
    "Decision",
    "GatePolicy",
    "GateTask",
    "Outcome",
    "decide",
    "decide_with_voids_as_failures",
    "decision_fields",
]

METRICS: Final = ("cost_usd", "output_tokens", "duration_s", "num_turns")
UNGATED_REGRESSION_LIMIT_PCT: Final = 100.0
RESOLUTION_MARGIN_TO_PROMOTE: Final = 2
SKILL_NOT_INVOKED: Final = "skill-not-invoked"
METRIC_WARNINGS: Final = {
    "output_tokens": "output tokens leave out what the model read: a cheaper answer may have cost more in all",
    "num_turns": "turns differ in length: fewer turns may have cost more in all",
}


class Outcome(StrEnum):
    """What the gate can say."""

    PROMOTE = "promote"
    KEEP_INCUMBENT = "keep_incumbent"
    INSUFFICIENT_EVIDENCE = "insufficient_evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """What is asked, and how much is enough.

    Attributes:
        incumbent_arm: The arm in use.
        candidate_arm: The arm that would replace it.
        model: The benchmarked model; None when it was not named, which is never enough evidence.
        metric: The field that is to improve, one of `METRICS`; less is better.
        min_runs: Valid runs that each side of each task needs.
        min_improvement_pct: Median improvement over gated tasks from which a candidate is promoted.
        max_task_regression_pct: A gated task may get worse by exactly this much.
    """

    incumbent_arm: str
    candidate_arm: str
    model: str | None
    metric: str = "cost_usd"
    min_runs: int = 3
    min_improvement_pct: float = 5.0
    max_task_regression_pct: float = 20.0

    def __post_init__(self) -> None:
        """Refuse a policy under which no comparison would mean anything.

        Raises:
            UsageError: Unknown metric, equal arms, less than one run, or a percentage that is no finite number.
        """
        if self.metric not in METRICS:
            message = f"--metric: unknown metric {self.metric!r}; use one of {', '.join(METRICS)}"
            raise UsageError(message)
        if self.incumbent_arm == self.candidate_arm:
            message = f"--candidate: {self.candidate_arm!r} is the incumbent itself; name two different arms"
            raise UsageError(message)
        if self.min_runs < 1:
            message = f"--min-runs: {self.min_runs} is less than one run; use 1 or more"
            raise UsageError(message)
        for option, percent in (
            ("--min-improvement-pct", self.min_improvement_pct),
            ("--max-task-regression-pct", self.max_task_regression_pct),
        ):
            if not math.isfinite(percent):
                message = f"{option}: {percent} is no finite number; use a percentage such as 5.0"
                raise UsageError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTask:
    """One task that both arms ran.

    Attributes:
        task: The task's id.
        task_class: Its class, or None.
        gated: Its improvement counts in the median; False when both arms measured it fully and neither ever resolved
            it.
        quality_floor_enforced: Every valid run of the candidate must resolve.
        quality_floor_met: Every valid run of the candidate resolved, and there was one.
        skill_attributable_failure: A run of either side ended skill-not-invoked.
        improvement_pct: Percent by which the candidate's metric lies below the incumbent's; None when it cannot be
            told.
        incumbent_metric: The incumbent's median, or None.
        candidate_metric: The candidate's median, or None.
        incumbent_resolved: Resolved runs of the incumbent.
        candidate_resolved: Resolved runs of the candidate.
        incumbent_valid_runs: The incumbent's runs that are no void.
        candidate_valid_runs: The candidate's runs that are no void.
        incumbent_excluded_runs: The incumbent's void runs.
        candidate_excluded_runs: The candidate's void runs.
        review: What the reviews of both arms are worth, by which they are then decided; None for other arms.
    """

    task: str
    task_class: str | None
    gated: bool
    quality_floor_enforced: bool
    quality_floor_met: bool
    skill_attributable_failure: bool
    improvement_pct: float | None
    incumbent_metric: float | None
    candidate_metric: float | None
    incumbent_resolved: int
    candidate_resolved: int
    incumbent_valid_runs: int
    candidate_valid_runs: int
    incumbent_excluded_runs: int
    candidate_excluded_runs: int
    review: ReviewGateTask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the numbers say, and why.

    Attributes:
        outcome: Promote, keep, or not enough evidence.
        median_improvement_pct: Median over gated tasks with a known improvement, to one decimal; None without one.
        ungated_tasks: Tasks that are reported but not in the median.
        resolution_margin: Runs that the candidate resolved beyond the incumbent's, over all paired tasks.
        reasons: Why, as sentences, in task order; never empty.
        metric_warning: What the metric leaves out, or None.
        tasks: Every task that both arms ran, in id order.
    """

    outcome: Outcome
    median_improvement_pct: float | None
    ungated_tasks: tuple[str, ...]
    resolution_margin: int
    reasons: tuple[str, ...]
    metric_warning: str | None
    tasks: tuple[GateTask, ...]


def decide(aggregates: Aggregates, policy: GatePolicy) -> Decision:
    """Decide whether the candidate replaces the incumbent.

    Not enough evidence comes first; then anything that forbids the change; then a clear lead in resolved runs, which
    promotes by itself; then the median improvement. A lead of one run is noise and does not promote.
    """
    tasks = tuple(
        _gate_task(task, arms[policy.incumbent_arm], arms[policy.candidate_arm], policy)
        for task, arms in sorted(aggregates.items())
        if policy.incumbent_arm in arms and policy.candidate_arm in arms
    )
    improvement = median(t.improvement_pct for t in tasks if t.gated and t.improvement_pct is not None)
    improvement = None if improvement is None else round(improvement, 1)
    margin = sum(t.candidate_resolved - t.incumbent_resolved for t in tasks)
    missing = tuple(_missing_evidence(aggregates, tasks, policy))
    against = tuple(_objections(tasks, policy))
    if missing:
        outcome, reasons = Outcome.INSUFFICIENT_EVIDENCE, missing
    elif against:
        outcome, reasons = Outcome.KEEP_INCUMBENT, against
    elif reviews := [t.review for t in tasks if t.review is not None]:
        outcome, reasons = _weigh_reviews(reviews)
    else:
        outcome, reasons = _weigh(margin, improvement, policy)
    return Decision(
        outcome=outcome,
        median_improvement_pct=improvement,
        ungated_tasks=tuple(t.task for t in tasks if not t.gated),
        resolution_margin=margin,
        reasons=reasons,
        metric_warning=METRIC_WARNINGS.get(policy.metric),
        tasks=tasks,
    )


def decide_with_voids_as_failures(decision: Decision, aggregates: Aggregates, policy: GatePolicy) -> Decision:
    """Decide again as if each superseded void were a failed run of its arm; a promotion must hold both ways.

    A void is superseded by a new attempt of the same trial. The numbers of runs may then differ between the arms, which
    is no lack of evidence here; what is lacking at first sight is lacking still.
    """
    if decision.outcome is Outcome.INSUFFICIENT_EVIDENCE:
        return decision
    tasks: list[GateTask] = []
    for t in decision.tasks:
        arms = aggregates[t.task]
        candidate_runs = t.candidate_valid_runs + arms[policy.candidate_arm].voided_attempts
        incumbent_runs = t.incumbent_valid_runs + arms[policy.incumbent_arm].voided_attempts
        tasks.append(
            replace(
                t,
                quality_floor_met=t.quality_floor_met and t.candidate_resolved == candidate_runs,
                incumbent_valid_runs=incumbent_runs,
                candidate_valid_runs=candidate_runs,
            )
        )
    against = tuple(_objections(tuple(tasks), policy))
    outcome, reasons = decision.outcome, decision.reasons
    if against:
        outcome, reasons = Outcome.KEEP_INCUMBENT, against
    return replace(decision, outcome=outcome, reasons=reasons, tasks=tuple(tasks))


def decision_fields(decision: Decision) -> dict[str, object]:
    """Give the decision as JSON fields: `decision` and the rest by their own names."""
    fields: dict[str, object] = asdict(decision)
    return {
        "decision": fields.pop("outcome"),
        **fields,
        "ungated_tasks": list(decision.ungated_tasks),
        "reasons": list(decision.reasons),
        "tasks": [
            {("class" if k == "task_class" else k): v for k, v in asdict(task).items()} for task in decision.tasks
        ],
    }


def _gate_task(task: str, incumbent: ArmAggregate, candidate: ArmAggregate, policy: GatePolicy) -> GateTask:
    """Say of one task whether it is gated and whether the quality floor holds there."""
    improvement = percent_saved(incumbent.medians[policy.metric], candidate.medians[policy.metric])
    skill_failure = SKILL_NOT_INVOKED in incumbent.error_kinds or SKILL_NOT_INVOKED in candidate.error_kinds
    measured_fully = (
        improvement is not None
        and incumbent.valid_runs == candidate.valid_runs >= policy.min_runs
        and incumbent.excluded_runs == candidate.excluded_runs == 0
    )
    nobody_resolved = incumbent.resolved == candidate.resolved == 0
    review = compare_reviews(incumbent.review, candidate.review)
    gate_task = GateTask(
        task=task,
        task_class=incumbent.task_class,
        gated=not (measured_fully and nobody_resolved and not skill_failure),
        quality_floor_enforced=incumbent.resolved > 0 or skill_failure,
        quality_floor_met=candidate.resolved == candidate.valid_runs > 0,
        skill_attributable_failure=skill_failure,
        improvement_pct=improvement,
        incumbent_metric=incumbent.medians[policy.metric],
        candidate_metric=candidate.medians[policy.metric],
        incumbent_resolved=incumbent.resolved,
        candidate_resolved=candidate.resolved,
        incumbent_valid_runs=incumbent.valid_runs,
        candidate_valid_runs=candidate.valid_runs,
        incumbent_excluded_runs=incumbent.excluded_runs,
        candidate_excluded_runs=candidate.excluded_runs,
        review=review,
    )
    # A perfect review is rare: neither is it demanded, nor is a task left out because nobody wrote one.
    return gate_task if review is None else replace(gate_task, gated=True, quality_floor_enforced=False)


def _missing_evidence(aggregates: Aggregates, tasks: tuple[GateTask, ...], policy: GatePolicy) -> Iterator[str]:
    """Name everything that would have to be measured, or named, before anything can be decided."""
    if not policy.model:
        yield "no model is named: figures of unnamed models cannot be compared."
    for task, arms in sorted(aggregates.items()):
        for arm in (policy.incumbent_arm, policy.candidate_arm):
            if arm not in arms:
                yield f"task {task}: {arm} did not run."
    for t in tasks:
        yield from _missing_in_task(t, policy)
    n_gated = sum(t.gated for t in tasks)
    if not tasks:
        yield f"no task was run by both {policy.incumbent_arm} and {policy.candidate_arm}."
    elif 2 * n_gated < len(tasks):
        yield f"only {n_gated} of {len(tasks)} tasks can be gated: neither arm ever resolved the others."


def _missing_in_task(t: GateTask, policy: GatePolicy) -> Iterator[str]:
    """Name what is missing in one task."""
    for arm, valid, excluded in (
        (policy.incumbent_arm, t.incumbent_valid_runs, t.incumbent_excluded_runs),
        (policy.candidate_arm, t.candidate_valid_runs, t.candidate_excluded_runs),
    ):
        if valid < policy.min_runs:
            yield f"task {t.task}: {arm} has {valid} valid runs of the {policy.min_runs} that are needed."
        if excluded:
            yield f"task {t.task}: {arm} has {excluded} void runs; resume the sweep."
    if t.incumbent_valid_runs != t.candidate_valid_runs:
        yield (
            f"task {t.task}: the arms have unequal numbers of valid runs,"
            f" {t.incumbent_valid_runs} and {t.candidate_valid_runs}."
        )
    if t.review is not None:
        runs = {"incumbent_runs": t.incumbent_valid_runs, "candidate_runs": t.candidate_valid_runs}
        yield from (f"task {t.task}: {lack}" for lack in missing_in_reviews(t.review, **runs))
    elif t.incumbent_metric is None or t.candidate_metric is None:
        yield f"task {t.task}: {policy.metric} was not measured in every valid run of both arms."
    elif t.improvement_pct is None:
        yield f"task {t.task}: the incumbent's {policy.metric} is too near 0 to be improved by a percentage."


def _objections(tasks: tuple[GateTask, ...], policy: GatePolicy) -> Iterator[str]:
    """Name everything that forbids the change, whatever the gain elsewhere."""
    for t in tasks:
        if t.review is not None:
            said = objections_to_review(t.review, candidate_runs=t.candidate_valid_runs)
            yield from (f"task {t.task}: {objection}" for objection in said)
            continue
        if t.candidate_resolved * t.incumbent_valid_runs < t.incumbent_resolved * t.candidate_valid_runs:
            yield (
                f"task {t.task}: the candidate resolved {t.candidate_resolved} of {t.candidate_valid_runs},"
                f" the incumbent {t.incumbent_resolved} of {t.incumbent_valid_runs}."
            )
        if t.quality_floor_enforced and not t.quality_floor_met:
            yield (
                f"task {t.task}: quality floor: every valid run of the candidate must resolve,"
                f" {t.candidate_resolved} of {t.candidate_valid_runs} did."
            )
        limit = policy.max_task_regression_pct if t.gated else UNGATED_REGRESSION_LIMIT_PCT
        if t.improvement_pct is not None and t.improvement_pct < -limit:
            yield f"task {t.task}: {policy.metric} got worse by {-t.improvement_pct} %, more than {limit} %."


def _weigh(margin: int, improvement: float | None, policy: GatePolicy) -> tuple[Outcome, tuple[str, ...]]:
    """Decide on complete evidence against which nothing speaks."""
    if margin >= RESOLUTION_MARGIN_TO_PROMOTE:
        return Outcome.PROMOTE, (f"the candidate resolved {margin} runs more than the incumbent.",)
    gain = f"the median improvement of {policy.metric} is {improvement} %"
    if improvement is not None and improvement >= policy.min_improvement_pct:
        return Outcome.PROMOTE, (f"{gain}, at least the {policy.min_improvement_pct} % that are asked for.",)
    return Outcome.KEEP_INCUMBENT, (f"{gain}, less than the {policy.min_improvement_pct} % that are asked for.",)


def _weigh_reviews(tasks: Sequence[ReviewGateTask]) -> tuple[Outcome, tuple[str, ...]]:
    """Decide on complete evidence against which nothing speaks, of arms that review."""
    gain = best_gain(tasks)
    if gain is None:
        return Outcome.KEEP_INCUMBENT, ("no task has a defect in which a review could find more.",)
    said = f"the largest gain in weighted F1 is {round(gain, 6)}"
    if gain >= MIN_F1_GAIN - TOLERANCE:
        return Outcome.PROMOTE, (f"{said}, at least {MIN_F1_GAIN}.",)
    return Outcome.KEEP_INCUMBENT, (f"{said}, less than {MIN_F1_GAIN}.",)
