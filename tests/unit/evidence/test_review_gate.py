"""The gate's rules for arms that review, each with a case that comes out otherwise when the rule is taken out."""

import contextlib
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from fairtrial.evidence import gate, review_gate
from fairtrial.evidence.bench import BenchFold, BenchSummary
from fairtrial.evidence.gate import Decision, GatePolicy, Outcome, decide, decide_with_voids_as_failures
from fairtrial.evidence.resample import estimate_false_promotion
from fairtrial.evidence.review_gate import ReviewGateTask
from fairtrial.evidence.reviews import aggregate_reviews, counted_review

POLICY: Final = GatePolicy(incumbent_arm="review", candidate_arm="candidate_review", model="m")
Row = dict[str, Any]


def defect(f1: float | None = 0.8, *, blockers: float | None = 1.0, right: bool = True, **more: object) -> Row:
    """The score of a review of a change with defects."""
    return {
        "clean_control": False,
        "weighted_f1": f1,
        "weighted_precision": 1.0,
        "weighted_recall": f1,
        "blocker_recall": blockers,
        "false_positives": 0,
        "false_negatives": 1,
        "verdict_correct": right,
        "clean_pass": None,
        **more,
    }


def clean(*, false: int = 0, passes: bool = True, right: bool | None = None) -> Row:
    """The score of a review of a change without defects."""
    return {
        "clean_control": True,
        "weighted_f1": None,
        "weighted_precision": None,
        "weighted_recall": None,
        "blocker_recall": None,
        "false_positives": false,
        "false_negatives": 0,
        "verdict_correct": passes if right is None else right,
        "clean_pass": passes,
    }


def row(score: Row | None, **more: object) -> Row:
    return {"ok": True, "review_evidence_valid": True, "cost_usd": 1.0, "review": score, **more}


def summary(**tasks: tuple[list[Row], list[Row]]) -> BenchSummary:
    fold = BenchFold()
    for task, sides in tasks.items():
        for arm, rows in zip(("review", "candidate_review"), sides, strict=True):
            for run, each in enumerate(rows):
                fold.add({"task": task, "arm": arm, "run": run, **each})
    return fold.summary()


def decided(**tasks: tuple[list[Row], list[Row]]) -> Decision:
    return decide(summary(**tasks).aggregates, POLICY)


def three(score: Row | None, **more: object) -> list[Row]:
    return [row(score, **more)] * 3


def test_a_candidate_that_finds_more_and_loses_nothing_is_promoted_whatever_it_costs() -> None:
    said = decided(
        a=(three(defect(0.8)), three(defect(0.81), cost_usd=9.0)), b=(three(clean()), three(clean(), cost_usd=None))
    )

    assert said.outcome is Outcome.PROMOTE
    assert said.reasons == ("the largest gain in weighted F1 is 0.01, at least 0.01.",)


def test_a_gain_below_a_hundredth_is_none() -> None:
    said = decided(a=(three(defect(0.8)), three(defect(0.809999))))

    assert said.outcome is Outcome.KEEP_INCUMBENT
    assert said.reasons == ("the largest gain in weighted F1 is 0.009999, less than 0.01.",)


def test_a_lead_in_resolved_runs_does_not_promote_by_itself() -> None:
    said = decided(a=(three(defect(1.0)), three(defect(1.0), resolved=True)))

    assert said.resolution_margin == 3
    assert said.outcome is Outcome.KEEP_INCUMBENT


def test_no_floor_is_asked_of_reviews() -> None:
    (task,) = decided(a=(three(defect(1.0), resolved=True), three(defect(1.0)))).tasks
    assert (task.incumbent_resolved, task.quality_floor_enforced) == (3, False)


def test_clean_controls_alone_promote_nobody() -> None:
    said = decided(a=(three(clean(false=1, passes=False)), three(clean())))

    assert said.reasons == ("no task has a defect in which a review could find more.",)
    assert said.outcome is Outcome.KEEP_INCUMBENT


BETTER: Final = {"better": (three(defect(0.5)), three(defect(0.9)))}


@pytest.mark.parametrize(
    ("incumbent", "candidate", "reason"),
    [
        (
            three(defect()),
            [*three(defect())[:2], row(defect(right=False))],
            "the candidate's verdict was right in 2 of 3 runs, not in every one.",
        ),
        (
            three(defect()),
            [*three(defect())[:2], row(defect(), ok=False, error_kind="skill-not-invoked")],
            "the candidate's verdict was right in 2 of 3 runs, not in every one.",
        ),
        (
            three(defect()),
            [*three(defect())[:2], row(defect(), review_evidence_valid=False)],
            "the candidate's verdict was right in 2 of 3 runs, not in every one.",
        ),
        (
            three(defect()),
            [*three(defect())[:2], row(defect(blockers=0.5))],
            "blocker recall dropped from 1.0 to 0.5.",
        ),
        (three(defect(0.8)), three(defect(0.79)), "weighted F1 dropped from 0.8 to 0.79."),
        (
            three(clean(false=1, passes=False)),
            three(clean(false=2, passes=False, right=True)),
            "false positives on a clean control rose from 1 to 2.",
        ),
        (
            three(clean()),
            [*three(clean())[:2], row(clean(passes=False, right=True))],
            "the incumbent passes this clean control in every run, the candidate does not.",
        ),
    ],
)
def test_what_is_lost_in_one_task_is_not_made_good_in_another(
    incumbent: list[Row], candidate: list[Row], reason: str
) -> None:
    said = decided(a=(incumbent, candidate), **BETTER)

    assert said.outcome is Outcome.KEEP_INCUMBENT
    assert said.reasons == (f"task a: {reason}",)


def test_what_is_equal_to_six_decimals_is_no_loss() -> None:
    said = decided(a=(three(defect(0.8)), three(defect(0.8 - 1e-12))), **BETTER)

    assert said.outcome is Outcome.PROMOTE


@pytest.mark.parametrize(
    ("incumbent", "candidate", "reason"),
    [
        (three(defect())[:2], three(defect())[:2], "has 2 valid runs of the 3 that are needed."),
        (three(defect()), [*three(defect()), row(defect())], "unequal numbers of valid runs, 3 and 4."),
        (
            three(defect()),
            [*three(defect()), row(None, error_kind="session-error", ok=False)],
            "candidate_review has 1 void runs; resume the sweep.",
        ),
        (
            three(defect()),
            [*three(defect())[:2], row(None)],
            "not every valid run of both arms has a review that was scored.",
        ),
        (three(defect()), three(None), "not every valid run of both arms has a review that was scored."),
        (three(defect()), three(clean()), "it is a clean control for one arm only."),
        (three(defect()), three(defect(blockers=None)), "blocker recall was measured for one arm only."),
        (three(defect()), three(defect(None)), "weighted F1 was not measured in every run."),
        (three(clean()), three(clean() | {"false_positives": None}), "false positives were not counted in every run."),
    ],
)
def test_what_was_not_measured_is_not_enough_evidence(incumbent: list[Row], candidate: list[Row], reason: str) -> None:
    said = decided(a=(incumbent, candidate), **BETTER)

    assert said.outcome is Outcome.INSUFFICIENT_EVIDENCE
    assert any(each.startswith("task a: ") and each.endswith(reason) for each in said.reasons), said.reasons


def test_a_void_that_was_superseded_counts_as_a_wrong_verdict_of_the_candidate() -> None:
    rows = [row(defect(0.9), key=f"k{n}", attempt=2) for n in range(3)]
    void = row(None, key="k0", attempt=1, ok=False, error_kind="session-error")
    found = summary(a=(three(defect(0.5)), [void, *rows])).aggregates
    said = decide(found, POLICY)

    assert said.outcome is Outcome.PROMOTE
    as_failures = decide_with_voids_as_failures(said, found, POLICY)
    assert as_failures.outcome is Outcome.KEEP_INCUMBENT
    assert as_failures.reasons == ("task a: the candidate's verdict was right in 3 of 4 runs, not in every one.",)


def test_an_equal_candidate_is_promoted_as_often_as_the_incumbents_own_reviews_scatter() -> None:
    steady, unsteady = BenchFold(), BenchFold()
    for task, run in itertools.product("ab", range(4)):
        steady.add({"task": task, "arm": "review", "run": run, **row(defect(0.8))})
        unsteady.add({"task": task, "arm": "review", "run": run, **row(defect(0.5 + 0.1 * run))})

    assert estimate_false_promotion(steady.counted_runs("review"), POLICY, seed=1).p_promoted == 0.0
    p_promoted = estimate_false_promotion(unsteady.counted_runs("review"), POLICY, seed=1).p_promoted
    assert p_promoted is not None
    assert 0.2 < p_promoted < 0.6


def test_reviews_are_put_together_by_medians_the_lowest_blocker_recall_and_right_verdicts() -> None:
    scores = [defect(0.2, blockers=0.5), defect(0.9), defect(0.6, right=False)]
    found = aggregate_reviews(counted_review(row(score)) for score in scores)

    assert found is not None
    assert (found.weighted_f1, found.blocker_recall, found.right_verdicts, found.scored_runs) == (0.6, 0.5, 2, 3)
    assert found.clean_passes is None
    passed = aggregate_reviews([counted_review(row(clean())), counted_review(row(clean(passes=False)))])
    assert passed is not None
    assert (passed.clean_passes, passed.weighted_f1, passed.clean_control) == (1, None, True)


@pytest.mark.parametrize("review", [None, 1, [], {}, {"clean_control": 0}, {"clean_control": "no"}])
def test_a_row_without_a_score_has_none(review: object) -> None:
    assert counted_review({"ok": True, "review": review}) is None


def test_a_figure_that_is_no_measurement_is_unmeasured() -> None:
    found = counted_review(row(defect(blockers=None, weighted_f1="much", false_positives=True)))

    assert found is not None
    assert (found.weighted_f1, found.false_positives, found.blocker_recall) == (None, None, None)


def test_a_side_that_was_not_scored_has_gained_nothing_that_can_be_told() -> None:
    scored = aggregate_reviews([counted_review(row(defect()))])

    assert ReviewGateTask(incumbent=None, candidate=scored).f1_gain is None
    assert ReviewGateTask(incumbent=scored, candidate=None).f1_gain is None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule, how to take it out, and a case in which it decides.

    Attributes:
        name: What it demands.
        taken_out: Text of the source, and what replaces it.
        case: The reviews of both arms on a task; another one, on which the candidate is better, stands beside it.
        outcome: What the gate says of both, because of the rule.
        module: Where the rule stands.
        alone: There is no other task.
    """

    name: str
    taken_out: tuple[str, str]
    case: tuple[list[Row], list[Row]]
    outcome: Outcome
    module: ModuleType = review_gate
    alone: bool = False


KEEP, PROMOTE, TOO_LITTLE = Outcome.KEEP_INCUMBENT, Outcome.PROMOTE, Outcome.INSUFFICIENT_EVIDENCE
FAILS: Final = three(clean(passes=False, right=True))
RULES: Final = [
    Rule(
        name="both arms reviewed",
        taken_out=("before is None or after is None or (before.scored", "before and after and (before.scored"),
        case=(three(defect()), three(None)),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="every run has a score",
        taken_out=(" or (before.scored_runs, after.scored_runs) != (incumbent_runs, candidate_runs):", ":"),
        case=([*three(defect())[:2], row(None)], three(defect())),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="a clean control is one for both arms",
        taken_out=("if before.clean_control != after.clean_control:", "if False:"),
        case=(three(clean()), three(defect(blockers=None))),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="blocker recall was measured for both arms or for none",
        taken_out=("if (before.blocker_recall is None) != (after.blocker_recall is None):", "if False:"),
        case=(three(defect()), three(defect(blockers=None))),
        outcome=TOO_LITTLE,
    ),
    *(
        Rule(
            name=f"the {side}'s false positives were counted in every run",
            taken_out=("(before.false_positives is None or after.false_positives is None)", f"{other} is None"),
            case=case,
            outcome=TOO_LITTLE,
        )
        for side, other, case in (
            ("incumbent", "after.false_positives", (three(clean() | {"false_positives": None}), three(clean()))),
            ("candidate", "before.false_positives", (three(clean()), three(clean() | {"false_positives": None}))),
        )
    ),
    Rule(
        name="weighted F1 was measured",
        taken_out=("if not before.clean_control and task.f1_gain is None:", "if False:"),
        case=(three(defect()), three(defect(None))),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="the verdict is right in every run",
        taken_out=("if after.right_verdicts < candidate_runs:", "if not after.right_verdicts:"),
        case=(three(defect()), [*three(defect())[:2], row(defect(right=False))]),
        outcome=KEEP,
    ),
    Rule(
        name="no drop in blocker recall",
        taken_out=("if _dropped(before.blocker_recall, after.blocker_recall):", "if False:"),
        case=(three(defect()), three(defect(blockers=0.5))),
        outcome=KEEP,
    ),
    Rule(
        name="no more false positives on a clean control",
        taken_out=("if _dropped(after.false_positives, before.false_positives):", "if False:"),
        case=(three(clean()), three(clean(false=1))),
        outcome=KEEP,
    ),
    Rule(
        name="more false positives beside defects are weighed by the score alone",
        taken_out=("    if before.clean_control:\n", "    if True:\n"),
        case=(three(defect()), three(defect(false_positives=1))),
        outcome=PROMOTE,
    ),
    Rule(
        name="no clean control is lost",
        taken_out=("if _passes_all(before) and not _passes_all(after):", "if False:"),
        case=(three(clean()), FAILS),
        outcome=KEEP,
    ),
    Rule(
        name="a clean control that the incumbent does not pass is not lost",
        taken_out=("if _passes_all(before) and not _passes_all(after):", "if not _passes_all(after):"),
        case=(FAILS, FAILS),
        outcome=PROMOTE,
    ),
    Rule(
        name="a clean control is passed in every run",
        taken_out=("return side.clean_passes == side.scored_runs", "return bool(side.clean_passes)"),
        case=(three(clean()), [*three(clean())[:2], FAILS[0]]),
        outcome=KEEP,
    ),
    Rule(
        name="no drop in weighted F1",
        taken_out=("elif _dropped(before.weighted_f1, after.weighted_f1):", "elif False:"),
        case=(three(defect(0.8)), three(defect(0.79))),
        outcome=KEEP,
    ),
    Rule(
        name="what is equal but for rounding is no drop",
        taken_out=("after < before - TOLERANCE", "after < before"),
        case=(three(defect(0.8)), three(defect(0.8 - 1e-12))),
        outcome=PROMOTE,
    ),
    Rule(
        name="the best gain counts",
        taken_out=("return max((gain", "return min((gain"),
        case=(three(defect()), three(defect())),
        outcome=PROMOTE,
    ),
    Rule(
        name="a gain of a hundredth",
        taken_out=("if gain >= MIN_F1_GAIN - TOLERANCE:", "if True:"),
        case=(three(defect(0.8)), three(defect(0.809999))),
        outcome=KEEP,
        module=gate,
        alone=True,
    ),
    Rule(
        name="exactly a hundredth is enough",
        taken_out=("if gain >= MIN_F1_GAIN - TOLERANCE:", "if gain >= MIN_F1_GAIN:"),
        case=(three(defect(0.07)), three(defect(0.08))),  # floats whose difference is a little less
        outcome=PROMOTE,
        module=gate,
        alone=True,
    ),
    Rule(
        name="some task has a defect to find",
        taken_out=("if gain is None:", "if False:"),
        case=(FAILS, three(clean())),
        outcome=KEEP,
        module=gate,
        alone=True,
    ),
    Rule(
        name="a lead in perfect reviews promotes nobody",
        taken_out=("elif reviews := [t.review for t in tasks if t.review is not None]:", "elif False:"),
        case=(three(defect()), three(defect(), resolved=True)),
        outcome=KEEP,
        module=gate,
        alone=True,
    ),
    Rule(
        name="a review is judged by nothing but its score",
        taken_out=("            continue\n", ""),
        case=(three(defect(), resolved=True), three(defect(), cost_usd=9.0)),
        outcome=PROMOTE,
        module=gate,
    ),
    Rule(
        name="what a review costs need not be known",
        taken_out=("elif t.incumbent_metric is None", "if t.incumbent_metric is None"),
        case=(three(defect()), three(defect(), cost_usd=None)),
        outcome=PROMOTE,
        module=gate,
    ),
]


def outcome_with(module: ModuleType, rule: Rule) -> str:
    tasks = {"a": rule.case, **({} if rule.alone else BETTER)}
    outcome: str = vars(module)["decide"](summary(**tasks).aggregates, POLICY).outcome
    return outcome


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name.replace(" ", "-"))
def test_the_case_of_a_rule_comes_out_otherwise_without_the_rule(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome_with(gate, rule) == rule.outcome
    source = Path(str(rule.module.__file__)).read_text()
    assert source.count(rule.taken_out[0]) == 1, "the source has changed: take the rule out in another way"
    mutant = ModuleType("mutant_of_a_gate")
    monkeypatch.setitem(sys.modules, mutant.__name__, mutant)  # dataclasses look their module up
    exec(compile(source.replace(*rule.taken_out), "mutant", "exec"), vars(mutant))  # noqa: S102 - our own source
    deciding = mutant
    if rule.module is review_gate:
        deciding = gate
        for name in review_gate.__all__:
            monkeypatch.setattr(gate, name, vars(mutant)[name])
    # Without a rule the gate may read what is not there: then it does not decide as before either.
    with contextlib.suppress(AttributeError, TypeError):
        assert outcome_with(deciding, rule) != rule.outcome
