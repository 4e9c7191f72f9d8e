"""How `evolve`, and `resume` of an evolution, end: what each generation came to, where it lies, and the exit code."""

import logging
from typing import Final

import click

from fairtrial.cli.output import own_command, print_json
from fairtrial.evolve.evolution import Evolved, PlannedEvolution
from fairtrial.evolve.values import EndKind, StepKind, StepOutcome, StepResult

__all__ = ["evolved_json", "finish_evolution", "print_plan"]

LOG: Final = logging.getLogger("fairtrial")
GOES_ON: Final = frozenset({EndKind.STOPPED, EndKind.UNFINISHED, EndKind.WALL_TIME})
"""Endings after which another pass can go on."""


def finish_evolution(evolved: Evolved, *, as_json: bool) -> int:
    """Print what a pass came to; returns the exit code."""
    ending, where = evolved.ending, str(evolved.files.root)
    if as_json:
        print_json(evolved_json(evolved))
        return ending.exit_code
    for outcome in evolved.outcomes:
        click.echo(_line(outcome))
    click.echo(f"{ending.kind}: {ending.detail}")
    if evolved.spent_usd is not None:
        click.echo(f"spent: {evolved.spent_usd:.2f} US dollars")
    click.echo(f"evolution: {where}")
    promoted = _promoted(evolved)
    if promoted is not None and promoted.results is not None and promoted.step is not StepKind.APPLY:
        bound = evolved.bound.options.candidate
        words = ["apply", str(evolved.files.root / promoted.results), "--project", bound.project]
        click.echo(
            f"put it into the project with: {own_command(*words, *(['--rehearsal'] if bound.rehearsal else []))}"
        )
    if ending.kind in GOES_ON:
        LOG.warning("go on with: %s", own_command("resume", where))
    return ending.exit_code


def print_plan(plan: PlannedEvolution, *, as_json: bool) -> int:
    """Print what an evolution would do; returns the exit code."""
    bound = plan.bound
    if as_json:
        print_json(
            {
                "schema": "evolve-plan/1",
                "generations": bound.options.generations,
                "learning_tasks": list(bound.learning_ids),
                "holdout_tasks": list(bound.holdout_ids),
                "skills": {arm: list(names) for arm, names in bound.skills.items()},
                "measure_trials": plan.n_measure,
                "confirm_trials": plan.n_confirm,
            }
        )
        return 0
    click.echo(f"generations: {bound.options.generations} at most")
    for arm, names in bound.skills.items():
        click.echo(f"arm {arm}: its candidates may change {', '.join(names)}")
    for step, tasks, n_trials in (
        ("measure", bound.learning_ids, plan.n_measure),
        ("confirm", bound.holdout_ids, plan.n_confirm),
    ):
        if tasks:
            click.echo(f"{step}: {n_trials} trials at most, on {', '.join(tasks)}")
    return 0


def evolved_json(evolved: Evolved) -> dict[str, object]:
    """What a pass came to, for programs."""
    ending, promoted = evolved.ending, _promoted(evolved)
    return {
        "schema": "evolve/1",
        "evolution": evolved.evolution,
        "directory": str(evolved.files.root),
        "ended": str(ending.kind),
        "detail": ending.detail,
        "exit_code": ending.exit_code,
        "spent_usd": evolved.spent_usd,
        "learning_tasks": list(evolved.bound.learning_ids),
        "holdout_tasks": list(evolved.bound.holdout_ids),
        "rehearsal": evolved.bound.options.candidate.rehearsal,
        "promoted": None if promoted is None else promoted.results,
        "steps": [_step_json(outcome) for outcome in evolved.outcomes],
    }


def _step_json(outcome: StepOutcome) -> dict[str, object]:
    return {
        "generation": outcome.generation,
        "step": str(outcome.step),
        "result": str(outcome.result),
        "reasons": list(outcome.reasons),
        "candidate_overlay_digest": outcome.candidate_overlay_digest,
        "results": outcome.results,
        "seal": outcome.seal,
        "p_false_promotion": outcome.p_false_promotion,
        "holdout_uses": dict(outcome.holdout_uses),
    }


def _promoted(evolved: Evolved) -> StepOutcome | None:
    """The step by which a candidate is promoted, if one is."""
    if evolved.ending.kind is not EndKind.PROMOTED:
        return None
    return evolved.outcomes[-1]


def _line(outcome: StepOutcome) -> str:
    parts = [f"generation {outcome.generation}: {outcome.step}: {outcome.result}"]
    if outcome.holdout_uses:
        parts.append("uses of holdout tasks: " + ", ".join(f"{task} {n}" for task, n in outcome.holdout_uses.items()))
    if outcome.step in (StepKind.MEASURE, StepKind.CONFIRM):
        rate = outcome.p_false_promotion
        told = "how often cannot be told" if rate is None else f"in about {100 * rate:.1f} %"
        parts.append(f"a candidate equal to the incumbent: promoted, {told}")
    if outcome.result not in (StepResult.PROPOSED, StepResult.APPLIED):
        parts += outcome.reasons
    return "; ".join(part.rstrip(".") for part in parts)
