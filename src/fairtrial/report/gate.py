"""What the gate says, for programs and for people. Nothing is computed here."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from rich.console import Console

from fairtrial.evidence.gate import GateTask, Outcome, decision_fields
from fairtrial.evidence.resample import FalsePromotion
from fairtrial.evidence.verdict import Verdict
from fairtrial.report.document import Document, Table, print_document
from fairtrial.report.reviews import REVIEW_HEADERS, review_cells
from fairtrial.report.text import figure, signed_figure, yes_no

__all__ = ["false_promotion_note", "gate_json", "print_gate"]

SCHEMA: Final = "gate/1"
HEADLINES: Final = {
    Outcome.PROMOTE: "The candidate wins",
    Outcome.KEEP_INCUMBENT: "Keep the incumbent",
    Outcome.INSUFFICIENT_EVIDENCE: "Not enough evidence",
}


def gate_json(report: Verdict) -> dict[str, object]:
    """Give the report as one JSON object of schema `gate/1`."""
    fields = decision_fields(report.decision)
    return {
        "schema": SCHEMA,
        "decision": fields.pop("decision"),
        "promotable": report.promotable,
        "rehearsal": report.rehearsal,
        "sealed": report.sealed,
        **fields,
        "inadmissible": [{"kind": str(reason.kind), "detail": reason.detail} for reason in report.inadmissible],
        "as_failures": {"decision": str(report.as_failures.outcome), "reasons": list(report.as_failures.reasons)},
        "false_promotion": asdict(report.false_promotion),
        "policy": asdict(report.policy),
    }


def print_gate(report: Verdict, console: Console) -> None:
    """Print the report for a person."""
    print_document(_document(report), console)


def _document(report: Verdict) -> Document:
    policy, decision = report.policy, report.decision
    verdict = "may be promoted" if report.promotable else "is not to be promoted"
    rehearsal = ["A rehearsal: a script may have played the model, so this says nothing of any model."]
    notes = [
        *(rehearsal if report.rehearsal else ()),
        f"{policy.candidate_arm} {verdict} over {policy.incumbent_arm}.",
        *decision.reasons,
    ]
    if report.as_failures.outcome is not decision.outcome:
        notes.append(f"With voids as failures: {' '.join(report.as_failures.reasons)}")
    notes += [f"Not usable ({reason.kind}): {reason.detail}" for reason in report.inadmissible]
    if decision.metric_warning is not None:
        notes.append(f"{policy.metric}: {decision.metric_warning}.")
    notes.append(false_promotion_note(report.false_promotion))
    return Document(title=f"{HEADLINES[decision.outcome]}.", notes=notes, tables=[_tasks(report), *_reviews(report)])


def false_promotion_note(found: FalsePromotion) -> str:
    """Say how often the policy promotes a candidate equal to the incumbent, and what that is a share of."""
    drawn = f"{found.n_resamples} resamples of the incumbent's own runs, seed {found.seed}"
    if found.p_promoted is None:
        return f"How often this policy promotes an equal candidate cannot be told: {found.unmeasured_reason} ({drawn})."
    as_they_are, spread = (100 * n / found.n_resamples for n in (found.n_promoted, found.n_promoted_spread))
    return (
        f"About {100 * found.p_promoted:.1f} % of candidates equal to the incumbent are promoted by this policy: the"
        f" larger of {as_they_are:.1f} % of {drawn}, and {spread:.1f} % of as many that are given the spread that few"
        " runs hide."
    )


def _tasks(report: Verdict) -> Table:
    return Table(
        title="Tasks",
        headers=(
            "task",
            "class",
            "gated",
            "incumbent resolved / valid",
            "candidate resolved / valid",
            "void",
            f"incumbent {report.policy.metric}",
            f"candidate {report.policy.metric}",
            "improvement %",
        ),
        rows=[_cells(task) for task in report.decision.tasks],
        note=(
            "Median improvement over gated tasks:"
            f" {signed_figure(report.decision.median_improvement_pct)} %;"
            f" lead in resolved runs: {report.decision.resolution_margin}."
        ),
    )


def _reviews(report: Verdict) -> Iterator[Table]:
    """What arms that review were decided by."""
    reviewed = [(task.task, task.review) for task in report.decision.tasks if task.review is not None]
    arms = (report.policy.incumbent_arm, report.policy.candidate_arm)
    if reviewed:
        yield Table(
            title="Reviews",
            headers=("task", "arm", *REVIEW_HEADERS),
            rows=[
                (task, arm, *review_cells(side))
                for task, both in reviewed
                for arm, side in zip(arms, (both.incumbent, both.candidate), strict=True)
            ],
            note="Arms that review are decided by these figures; cost is only shown.",
        )


def _cells(task: GateTask) -> Sequence[str]:
    return (
        task.task,
        task.task_class or "",
        yes_no(task.gated),
        f"{task.incumbent_resolved} / {task.incumbent_valid_runs}",
        f"{task.candidate_resolved} / {task.candidate_valid_runs}",
        f"{task.incumbent_excluded_runs} + {task.candidate_excluded_runs}",
        figure(task.incumbent_metric, 4),
        figure(task.candidate_metric, 4),
        signed_figure(task.improvement_pct),
    )
