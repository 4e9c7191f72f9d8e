"""What an evolution does next, by what it has done."""

from dataclasses import replace

import pytest

from fairtrial.evolve.next_step import Bounds, Used, next_step
from fairtrial.evolve.values import OUTCOME_SCHEMA, Ending, EndKind, Step, StepKind, StepOutcome, StepResult

NOTHING = Used(spent_usd=0.0, elapsed_s=0.0)
TWO = Bounds(generations=2)


def outcome(generation: int, step: StepKind, result: StepResult) -> StepOutcome:
    return StepOutcome(
        schema=OUTCOME_SCHEMA,
        evolution="e",
        generation=generation,
        step=step,
        result=result,
        ended_utc="2026-11-29T13:01:00Z",
        reasons=("why.",),
    )


PROPOSED = outcome(0, StepKind.PROPOSE, StepResult.PROPOSED)
PROMOTABLE = outcome(0, StepKind.MEASURE, StepResult.PROMOTABLE)
KEPT = outcome(0, StepKind.MEASURE, StepResult.KEPT)
CONFIRMED = outcome(0, StepKind.CONFIRM, StepResult.PROMOTABLE)
NOT_CONFIRMED = outcome(0, StepKind.CONFIRM, StepResult.KEPT)
APPLIED = outcome(0, StepKind.APPLY, StepResult.APPLIED)


def ends(*before: StepOutcome, bounds: Bounds = TWO, used: Used = NOTHING) -> EndKind:
    ending = next_step(before, bounds, used)
    assert isinstance(ending, Ending)
    return ending.kind


def test_it_begins_with_a_proposal() -> None:
    assert next_step((), TWO, NOTHING) == Step(generation=0, kind=StepKind.PROPOSE)


def test_what_was_proposed_is_measured() -> None:
    assert next_step((PROPOSED,), TWO, NOTHING) == Step(generation=0, kind=StepKind.MEASURE)


def test_what_was_kept_begins_the_next_generation() -> None:
    assert next_step((PROPOSED, KEPT), TWO, NOTHING) == Step(generation=1, kind=StepKind.PROPOSE)


def test_a_promotion_without_holdout_tasks_ends_it_well() -> None:
    ending = next_step((PROPOSED, PROMOTABLE), TWO, NOTHING)
    assert isinstance(ending, Ending)
    assert (ending.kind, ending.exit_code) == (EndKind.PROMOTED, 0)


def test_with_holdout_tasks_a_promotion_is_confirmed_first() -> None:
    bounds = replace(TWO, has_holdout=True)
    assert next_step((PROPOSED, PROMOTABLE), bounds, NOTHING) == Step(generation=0, kind=StepKind.CONFIRM)
    assert ends(PROPOSED, PROMOTABLE, CONFIRMED, bounds=bounds) is EndKind.PROMOTED


def test_the_final_gate_is_not_asked_about_a_candidate_that_learning_tasks_refuse() -> None:
    step = next_step((PROPOSED, KEPT), replace(TWO, has_holdout=True), NOTHING)
    assert step == Step(generation=1, kind=StepKind.PROPOSE)


def test_what_the_final_gate_refuses_begins_the_next_generation() -> None:
    step = next_step((PROPOSED, PROMOTABLE, NOT_CONFIRMED), replace(TWO, has_holdout=True), NOTHING)
    assert step == Step(generation=1, kind=StepKind.PROPOSE)


def test_when_all_generations_ran_the_exit_code_is_0() -> None:
    ending = next_step((PROPOSED, KEPT), replace(TWO, generations=1), NOTHING)
    assert isinstance(ending, Ending)
    assert (ending.kind, ending.exit_code) == (EndKind.ALL_RAN, 0)


def test_a_promoted_candidate_is_applied_once_if_that_is_asked_for() -> None:
    bounds = replace(TWO, apply=True)
    assert next_step((PROPOSED, PROMOTABLE), bounds, NOTHING) == Step(generation=0, kind=StepKind.APPLY)
    assert ends(PROPOSED, PROMOTABLE, APPLIED, bounds=bounds) is EndKind.PROMOTED


@pytest.mark.parametrize("step", [StepKind.PROPOSE, StepKind.MEASURE])
def test_what_is_of_no_use_ends_it_with_exit_code_1(step: StepKind) -> None:
    ending = next_step((outcome(0, step, StepResult.REFUSED),), TWO, NOTHING)
    assert isinstance(ending, Ending)
    assert (ending.kind, ending.exit_code, ending.detail) == (EndKind.REFUSED, 1, "why.")


def test_a_spent_budget_ends_it_before_the_next_step() -> None:
    bounds = replace(TWO, budget_usd=1.0)
    assert ends(bounds=bounds, used=replace(NOTHING, spent_usd=1.0)) is EndKind.BUDGET
    assert isinstance(next_step((), bounds, replace(NOTHING, spent_usd=0.99)), Step)


def test_a_budget_is_not_kept_by_guessing() -> None:
    assert ends(bounds=replace(TWO, budget_usd=1.0), used=replace(NOTHING, spent_usd=None)) is EndKind.BUDGET
    assert isinstance(next_step((), TWO, replace(NOTHING, spent_usd=None)), Step)


def test_the_wall_time_of_a_pass_ends_it_with_not_enough_evidence() -> None:
    ending = next_step((PROPOSED,), replace(TWO, wall_time_s=60.0), replace(NOTHING, elapsed_s=60.0))
    assert isinstance(ending, Ending)
    assert (ending.kind, ending.exit_code) == (EndKind.WALL_TIME, 5)


def test_what_is_promoted_stays_so_however_much_was_spent() -> None:
    spent = Used(spent_usd=9.0, elapsed_s=9.0)
    bounds = Bounds(generations=1, budget_usd=1.0, wall_time_s=1.0)
    assert ends(PROPOSED, PROMOTABLE, bounds=bounds, used=spent) is EndKind.PROMOTED
    step = next_step((PROPOSED, PROMOTABLE), replace(bounds, apply=True), spent)
    assert step == Step(generation=0, kind=StepKind.APPLY)
