"""What an evolution does next: a pure function of what it has done, what it may do and what it has spent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from fairtrial.errors import NotEnoughEvidenceError
from fairtrial.evolve.values import Ending, EndKind, Step, StepKind, StepOutcome, StepResult

__all__ = ["Bounds", "Used", "next_step", "over_bounds"]

THE_ANSWER_IS_NO: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What an evolution may do.

    Attributes:
        generations: Candidates that may be measured.
        budget_usd: US dollars; None for no bound.
        wall_time_s: Seconds of one pass; None for no bound.
        has_holdout: Some tasks are held out for the final gate.
        apply: A promoted candidate is put into the project.
    """

    generations: int
    budget_usd: float | None = None
    wall_time_s: float | None = None
    has_holdout: bool = False
    apply: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What has been used up.

    Attributes:
        spent_usd: US dollars, over all passes; None when some of it cannot be told.
        elapsed_s: Seconds of this pass.
    """

    spent_usd: float | None
    elapsed_s: float


def next_step(outcomes: Sequence[StepOutcome], bounds: Bounds, used: Used) -> Step | Ending:
    """Say what is next.

    Args:
        outcomes: What the steps so far came to, in order.
        bounds: What may be done.
        used: What has been used up; it ends nothing that has no step left.
    """
    step = _by_outcomes(outcomes, bounds)
    if isinstance(step, Ending) or step.kind is StepKind.APPLY:  # it spends nothing, and its candidate is paid for
        return step
    return over_bounds(bounds, used) or step


def over_bounds(bounds: Bounds, used: Used) -> Ending | None:
    """Say which bound is reached; None while there is room."""
    code = NotEnoughEvidenceError.exit_code
    if bounds.budget_usd is not None and used.spent_usd is None:
        detail = "what was spent cannot be told, so the budget cannot be kept; see the rows without a cost"
        return Ending(kind=EndKind.BUDGET, detail=detail, exit_code=code)
    if bounds.budget_usd is not None and used.spent_usd is not None and used.spent_usd >= bounds.budget_usd:
        detail = f"{used.spent_usd:.2f} of {bounds.budget_usd:.2f} US dollars are spent"
        return Ending(kind=EndKind.BUDGET, detail=detail, exit_code=code)
    if bounds.wall_time_s is not None and used.elapsed_s >= bounds.wall_time_s:
        detail = f"the {bounds.wall_time_s:g} s of this pass are over; `fairtrial resume` begins another"
        return Ending(kind=EndKind.WALL_TIME, detail=detail, exit_code=code)
    return None


def _by_outcomes(outcomes: Sequence[StepOutcome], bounds: Bounds) -> Step | Ending:
    if not outcomes:
        return _generation(0, bounds)
    last = outcomes[-1]
    match last.result:
        case StepResult.PROPOSED:
            return Step(generation=last.generation, kind=StepKind.MEASURE)
        case StepResult.PROMOTABLE if last.step is StepKind.MEASURE and bounds.has_holdout:
            return Step(generation=last.generation, kind=StepKind.CONFIRM)
        case StepResult.PROMOTABLE if bounds.apply:
            return Step(generation=last.generation, kind=StepKind.APPLY)
        case StepResult.PROMOTABLE | StepResult.APPLIED:
            return Ending(kind=EndKind.PROMOTED, detail=f"generation {last.generation} is promoted", exit_code=0)
        case StepResult.KEPT:
            return _generation(last.generation + 1, bounds)
        case StepResult.REFUSED:
            return Ending(kind=EndKind.REFUSED, detail=" ".join(last.reasons), exit_code=THE_ANSWER_IS_NO)
        case _ as unreachable:
            assert_never(unreachable)


def _generation(number: int, bounds: Bounds) -> Step | Ending:
    if number < bounds.generations:
        return Step(generation=number, kind=StepKind.PROPOSE)
    detail = f"{number} generations ran, and none is promoted"
    return Ending(kind=EndKind.ALL_RAN, detail=detail, exit_code=0)
