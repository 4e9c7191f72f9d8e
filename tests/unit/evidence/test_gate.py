import json
from dataclasses import replace

import pytest

from fairtrial.errors import UsageError
from fairtrial.evidence.bench import MEDIAN_FIELDS, SPENT_FIELDS, ArmAggregate
from fairtrial.evidence.gate import Decision, GatePolicy, Outcome, decide, decision_fields

POLICY = GatePolicy(incumbent_arm="old", candidate_arm="new", model="m-1")


def arm(
    resolved: int = 3, valid: int = 3, *, cost: float | None = 10.0, excluded: int = 0, skill: bool = False
) -> ArmAggregate:
    return ArmAggregate(
        medians=dict.fromkeys(MEDIAN_FIELDS, cost),
        resolved=resolved,
        runs=valid + excluded,
        valid_runs=valid,
        excluded_runs=excluded,
        voided_attempts=0,
        transcripts_missing=0,
        task_class="c",
        error_kinds={"skill-not-invoked": 1} if skill else {},
        spent=dict.fromkeys(SPENT_FIELDS, cost),
    )


def pair(old: ArmAggregate, new: ArmAggregate) -> dict[str, ArmAggregate]:
    return {"old": old, "new": new}


GOOD = pair(arm(), arm(cost=5.0))


def judge(*tasks: dict[str, ArmAggregate], policy: GatePolicy = POLICY) -> Decision:
    return decide({f"t{index}": arms for index, arms in enumerate(tasks)}, policy)


def test_a_median_improvement_of_exactly_the_minimum_promotes() -> None:
    assert judge(pair(arm(), arm(cost=9.5))).outcome is Outcome.PROMOTE


def test_a_median_improvement_below_the_minimum_keeps_the_incumbent() -> None:
    decision = judge(pair(arm(), arm(cost=9.51)))
    assert decision.outcome is Outcome.KEEP_INCUMBENT
    assert decision.reasons == ("the median improvement of cost_usd is 4.9 %, less than the 5.0 % that are asked for.",)


def test_the_median_over_tasks_is_rounded_to_one_decimal() -> None:
    decision = judge(pair(arm(), arm(cost=9.49)), pair(arm(), arm(cost=9.5)))
    assert decision.median_improvement_pct == round((5.1 + 5.0) / 2, 1)


@pytest.mark.parametrize("model", [None, ""])
def test_without_a_named_model_nothing_is_decided(model: str | None) -> None:
    decision = judge(GOOD, policy=replace(POLICY, model=model))
    assert decision.outcome is Outcome.INSUFFICIENT_EVIDENCE
    assert decision.reasons == ("no model is named: figures of unnamed models cannot be compared.",)


@pytest.mark.parametrize(("present", "absent"), [("old", "new"), ("new", "old")])
def test_a_task_that_one_arm_did_not_run_is_named_and_gets_no_row(present: str, absent: str) -> None:
    decision = judge(GOOD, {present: arm()})
    assert decision.outcome is Outcome.INSUFFICIENT_EVIDENCE
    assert decision.reasons == (f"task t1: {absent} did not run.",)
    assert [task.task for task in decision.tasks] == ["t0"]


def test_no_task_at_all_is_no_evidence() -> None:
    decision = judge()
    assert decision.outcome is Outcome.INSUFFICIENT_EVIDENCE
    assert decision.reasons == ("no task was run by both old and new.",)
    assert decision.median_improvement_pct is None


def test_too_few_runs_on_both_sides() -> None:
    decision = judge(pair(arm(2, 2), arm(2, 2, cost=5.0)))
    assert decision.outcome is Outcome.INSUFFICIENT_EVIDENCE
    assert decision.reasons == (
        "task t0: old has 2 valid runs of the 3 that are needed.",
        "task t0: new has 2 valid runs of the 3 that are needed.",
    )


@pytest.mark.parametrize(("old_excluded", "new_excluded", "who"), [(1, 0, "old"), (0, 1, "new")])
def test_one_void_on_either_side_is_not_enough_evidence(old_excluded: int, new_excluded: int, who: str) -> None:
    decision = judge(pair(arm(excluded=old_excluded), arm(cost=5.0, excluded=new_excluded)))
    assert decision.outcome is Outcome.INSUFFICIENT_EVIDENCE
    assert decision.reasons == (f"task t0: {who} has 1 void runs; resume the sweep.",)


@pytest.mark.parametrize(("old_valid", "new_valid"), [(3, 4), (4, 3)])
def test_unequal_numbers_of_valid_runs_are_not_compared(old_valid: int, new_valid: int) -> None:
    decision = judge(pair(arm(old_valid, old_valid), arm(new_valid, new_valid, cost=5.0)))
    assert decision.outcome is Outcome.INSUFFICIENT_EVIDENCE
    assert decision.reasons == (f"task t0: the arms have unequal numbers of valid runs, {old_valid} and {new_valid}.",)


@pytest.mark.parametrize(("old_cost", "new_cost"), [(None, 5.0), (10.0, None)])
def test_an_unmeasured_metric_on_either_side_is_not_enough_evidence(
    old_cost: float | None, new_cost: float | None
) -> None:
    decision = judge(GOOD, pair(arm(cost=old_cost), arm(cost=new_cost)))
    assert decision.outcome is Outcome.INSUFFICIENT_EVIDENCE
    assert decision.reasons == ("task t1: cost_usd was not measured in every valid run of both arms.",)
    assert decision.median_improvement_pct == 50.0


def test_an_incumbent_that_costs_nothing_cannot_be_improved_on() -> None:
    decision = judge(pair(arm(cost=0.0), arm(cost=0.0)))
    assert decision.outcome is Outcome.INSUFFICIENT_EVIDENCE
    assert decision.reasons == ("task t0: the incumbent's cost_usd is too near 0 to be improved by a percentage.",)


def test_a_task_that_nobody_resolves_is_reported_but_not_gated() -> None:
    decision = judge(GOOD, pair(arm(0), arm(0, cost=19.0)))
    assert decision.outcome is Outcome.PROMOTE
    assert decision.ungated_tasks == ("t1",)
    assert decision.median_improvement_pct == 50.0
    assert [task.gated for task in decision.tasks] == [True, False]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (arm(1), arm(0)),
        (arm(0), arm(1)),
        (arm(0, skill=True), arm(0)),
        (arm(0), arm(0, skill=True)),
        (arm(0, cost=None), arm(0)),
        (arm(0), arm(0, cost=None)),
        (arm(0, 2), arm(0, 2)),
        (arm(0, 3), arm(0, 4)),
        (arm(0, excluded=1), arm(0)),
        (arm(0), arm(0, excluded=1)),
        (arm(0, excluded=1), arm(0, excluded=1)),
    ],
)
def test_a_task_stays_gated_unless_both_measured_it_fully_and_nobody_resolved_it(
    old: ArmAggregate, new: ArmAggregate
) -> None:
    assert judge(pair(old, new)).tasks[0].gated


def test_half_of_the_tasks_must_stay_gated() -> None:
    nobody = pair(arm(0), arm(0))
    assert judge(GOOD, nobody).outcome is Outcome.PROMOTE
    decision = judge(GOOD, nobody, nobody)
    assert decision.outcome is Outcome.INSUFFICIENT_EVIDENCE
    assert decision.reasons == ("only 1 of 3 tasks can be gated: neither arm ever resolved the others.",)


def test_no_gated_task_has_no_median() -> None:
    decision = judge(pair(arm(0), arm(0, cost=5.0)))
    assert decision.outcome is Outcome.INSUFFICIENT_EVIDENCE
    assert decision.median_improvement_pct is None


def test_a_gated_task_may_get_worse_by_exactly_the_limit() -> None:
    assert judge(GOOD, GOOD, pair(arm(), arm(cost=12.0))).outcome is Outcome.PROMOTE
    decision = judge(GOOD, GOOD, pair(arm(), arm(cost=12.01)))
    assert decision.outcome is Outcome.KEEP_INCUMBENT
    assert decision.reasons == ("task t2: cost_usd got worse by 20.1 %, more than 20.0 %.",)


def test_an_ungated_task_may_double_its_cost_but_no_more() -> None:
    assert judge(GOOD, pair(arm(0), arm(0, cost=20.0))).outcome is Outcome.PROMOTE
    decision = judge(GOOD, pair(arm(0), arm(0, cost=20.01)))
    assert decision.outcome is Outcome.KEEP_INCUMBENT
    assert decision.reasons == ("task t1: cost_usd got worse by 100.1 %, more than 100.0 %.",)


def test_a_lower_resolution_rate_keeps_the_incumbent() -> None:
    decision = judge(pair(arm(), arm(2, cost=1.0)))
    assert decision.outcome is Outcome.KEEP_INCUMBENT
    assert "task t0: the candidate resolved 2 of 3, the incumbent 3 of 3." in decision.reasons
    assert decision.resolution_margin == -1


def test_the_quality_floor_holds_where_the_incumbent_resolves_once() -> None:
    decision = judge(pair(arm(1), arm(2, cost=1.0)))
    assert decision.outcome is Outcome.KEEP_INCUMBENT
    assert decision.reasons == ("task t0: quality floor: every valid run of the candidate must resolve, 2 of 3 did.",)


@pytest.mark.parametrize(("old_skill", "new_skill"), [(True, False), (False, True)])
def test_the_quality_floor_holds_where_a_skill_never_loaded(*, old_skill: bool, new_skill: bool) -> None:
    decision = judge(GOOD, pair(arm(0, skill=old_skill), arm(2, cost=1.0, skill=new_skill)))
    assert decision.outcome is Outcome.KEEP_INCUMBENT
    assert decision.tasks[1].skill_attributable_failure
    assert decision.tasks[1].quality_floor_enforced
    assert not decision.tasks[1].quality_floor_met


def test_no_quality_floor_where_the_incumbent_never_resolves() -> None:
    decision = judge(pair(arm(0), arm(2)))
    assert decision.outcome is Outcome.PROMOTE
    assert decision.reasons == ("the candidate resolved 2 runs more than the incumbent.",)


def test_no_valid_run_meets_no_floor() -> None:
    assert not judge(pair(arm(), arm(0, 0))).tasks[0].quality_floor_met


def test_a_lead_of_two_runs_promotes_a_dearer_candidate_and_a_lead_of_one_is_noise() -> None:
    assert judge(pair(arm(1), arm(3, cost=11.0))).outcome is Outcome.PROMOTE
    assert judge(pair(arm(2), arm(3, cost=10.0))).outcome is Outcome.KEEP_INCUMBENT


def test_the_lead_is_counted_over_all_tasks() -> None:
    decision = judge(pair(arm(2), arm(3)), pair(arm(2), arm(3)))
    assert decision.resolution_margin == 2
    assert decision.outcome is Outcome.PROMOTE


def test_missing_evidence_is_told_before_objections() -> None:
    decision = judge(pair(arm(), arm(0, cost=90.0, excluded=1)))
    assert decision.outcome is Outcome.INSUFFICIENT_EVIDENCE


def test_tasks_stand_in_id_order() -> None:
    decision = decide({"b": GOOD, "a": GOOD}, POLICY)
    assert [task.task for task in decision.tasks] == ["a", "b"]


@pytest.mark.parametrize(("metric", "warned"), [("cost_usd", False), ("output_tokens", True), ("num_turns", True)])
def test_a_metric_that_leaves_something_out_carries_a_warning(metric: str, *, warned: bool) -> None:
    decision = judge(GOOD, policy=replace(POLICY, metric=metric))
    assert (decision.metric_warning is not None) == warned


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": "diff_files"}, "unknown metric 'diff_files'"),
        ({"candidate_arm": "old"}, "'old' is the incumbent itself"),
        ({"min_runs": 0}, "0 is less than one run"),
        ({"min_improvement_pct": float("nan")}, "--min-improvement-pct: nan"),
        ({"max_task_regression_pct": float("inf")}, "--max-task-regression-pct: inf"),
    ],
)
def test_a_policy_under_which_nothing_would_mean_anything_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        replace(POLICY, **change)


def test_the_fields_of_a_decision_are_plain_json() -> None:
    fields = decision_fields(judge(GOOD, pair(arm(0), arm(0))))
    assert fields == json.loads(json.dumps(fields))
    assert next(iter(fields)) == "decision"
    assert fields["decision"] == "promote"
    assert fields["ungated_tasks"] == ["t1"]
    tasks = fields["tasks"]
    assert isinstance(tasks, list)
    assert tasks[0]["class"] == "c"
    assert (tasks[0]["incumbent_metric"], tasks[0]["candidate_metric"]) == (10.0, 5.0)
    assert (tasks[0]["incumbent_excluded_runs"], tasks[0]["candidate_excluded_runs"]) == (0, 0)
