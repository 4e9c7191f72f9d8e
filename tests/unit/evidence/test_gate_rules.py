"""Each rule of the gate has a case that comes out otherwise when the rule is taken out of the source."""

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fairtrial.evidence import gate
from fairtrial.evidence.bench import MEDIAN_FIELDS, ArmAggregate

Arms = Mapping[str, ArmAggregate]


def arm(
    resolved: int = 3, valid: int = 3, *, cost: float | None = 10.0, excluded: int = 0, **kinds: int
) -> ArmAggregate:
    return ArmAggregate(
        medians=dict.fromkeys(MEDIAN_FIELDS, cost),
        resolved=resolved,
        runs=valid + excluded,
        valid_runs=valid,
        excluded_runs=excluded,
        voided_attempts=kinds.pop("voided", 0),
        transcripts_missing=0,
        task_class=None,
        error_kinds={kind.replace("_", "-"): n for kind, n in kinds.items()},
        spent={},
    )


def pair(old: ArmAggregate, new: ArmAggregate) -> Arms:
    return {"old": old, "new": new}


GOOD = pair(arm(), arm(cost=5.0))
NOBODY = pair(arm(0), arm(0))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule, how to take it out, and a case in which it decides.

    Attributes:
        name: What it demands.
        taken_out: Text of the source, and what replaces it.
        tasks: The case.
        outcome: What the gate says of it, because of the rule.
        model: The benchmarked model.
        as_failures: The case is decided with voids as failures.
    """

    name: str
    taken_out: tuple[str, str]
    tasks: tuple[Arms, ...]
    outcome: str
    model: str | None = "m-1"
    as_failures: bool = False
    seen: Callable[[Any], object] = field(default=lambda decision: str(decision.outcome))


KEEP, PROMOTE, TOO_LITTLE = "keep_incumbent", "promote", "insufficient_evidence"
RULES = [
    Rule(
        name="a model is named",
        taken_out=("if not policy.model:", "if False:"),
        tasks=(GOOD,),
        outcome=TOO_LITTLE,
        model=None,
    ),
    Rule(
        name="both arms ran each task",
        taken_out=("if arm not in arms:", "if False:"),
        tasks=(GOOD, {"old": arm()}),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="enough valid runs",
        taken_out=("if valid < policy.min_runs:", "if False:"),
        tasks=(pair(arm(2, 2), arm(2, 2, cost=5.0)),),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="no void run",
        taken_out=("        if excluded:", "        if False:"),
        tasks=(pair(arm(excluded=1), arm(cost=5.0)),),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="equal numbers of valid runs",
        taken_out=("if t.incumbent_valid_runs != t.candidate_valid_runs:", "if False:"),
        tasks=(pair(arm(4, 4), arm(3, 3, cost=5.0)),),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="the metric was measured",
        taken_out=("if t.incumbent_metric is None or t.candidate_metric is None:", "if False:"),
        tasks=(GOOD, pair(arm(), arm(cost=None))),
        outcome="task t1: cost_usd was not measured in every valid run of both arms.",
        seen=lambda decision: decision.reasons[0],
    ),
    Rule(
        name="the incumbent's metric is not 0",
        taken_out=("elif t.improvement_pct is None:", "elif False:"),
        tasks=(GOOD, pair(arm(cost=0.0), arm(cost=0.0))),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="there is a task",
        taken_out=("    if not tasks:\n        yield", "    if False:\n        yield"),
        tasks=(),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="half of the tasks are gated",
        taken_out=("elif 2 * n_gated < len(tasks):", "elif False:"),
        tasks=(GOOD, NOBODY, NOBODY),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="missing evidence comes before objections",
        taken_out=("    if missing:\n", "    if missing and not against:\n"),
        tasks=(pair(arm(), arm(0, cost=90.0, excluded=1)),),
        outcome=TOO_LITTLE,
    ),
    Rule(
        name="no lower rate of resolution",
        taken_out=(
            "if t.candidate_resolved * t.incumbent_valid_runs < t.incumbent_resolved * t.candidate_valid_runs:",
            "if False:",
        ),
        tasks=(pair(arm(), arm(2, cost=1.0)),),
        outcome="task t0: the candidate resolved 2 of 3, the incumbent 3 of 3.",
        seen=lambda decision: decision.reasons[0],
    ),
    Rule(
        name="the quality floor where the incumbent resolves once",
        taken_out=(
            "quality_floor_enforced=incumbent.resolved > 0 or skill_failure",
            "quality_floor_enforced=skill_failure",
        ),
        tasks=(pair(arm(1), arm(2, cost=1.0)),),
        outcome=KEEP,
    ),
    Rule(
        name="the quality floor where a skill was not invoked",
        taken_out=(
            "quality_floor_enforced=incumbent.resolved > 0 or skill_failure",
            "quality_floor_enforced=incumbent.resolved > 0",
        ),
        tasks=(GOOD, pair(arm(0), arm(2, cost=1.0, skill_not_invoked=1))),
        outcome=KEEP,
    ),
    Rule(
        name="a run of either side that did not invoke a skill keeps its task gated",
        taken_out=("nobody_resolved and not skill_failure)", "nobody_resolved)"),
        tasks=(GOOD, pair(arm(0, skill_not_invoked=1), arm(0))),
        outcome="True",
        seen=lambda decision: str(decision.tasks[1].gated),
    ),
    Rule(
        name="a task that nobody resolves is not gated",
        taken_out=("gated=not (measured_fully and nobody_resolved and not skill_failure)", "gated=True"),
        tasks=(GOOD, pair(arm(0), arm(0, cost=19.0))),
        outcome=PROMOTE,
    ),
    Rule(
        name="only a fully measured task is ungated",
        taken_out=("gated=not (measured_fully and nobody", "gated=not (nobody"),
        tasks=(pair(arm(0, 2), arm(0, 2)),),
        outcome="True",
        seen=lambda decision: str(decision.tasks[0].gated),
    ),
    Rule(
        name="no gated task gets worse by more than the limit",
        taken_out=("if t.improvement_pct is not None and t.improvement_pct < -limit:", "if False:"),
        tasks=(GOOD, GOOD, pair(arm(), arm(cost=12.01))),
        outcome=KEEP,
    ),
    Rule(
        name="exactly the limit passes",
        taken_out=("t.improvement_pct < -limit:", "t.improvement_pct <= -limit:"),
        tasks=(GOOD, GOOD, pair(arm(), arm(cost=12.0))),
        outcome=PROMOTE,
    ),
    Rule(
        name="an ungated task has a limit of its own",
        taken_out=("if t.gated else UNGATED_REGRESSION_LIMIT_PCT", "if t.gated else 20.0"),
        tasks=(GOOD, pair(arm(0), arm(0, cost=20.0))),
        outcome=PROMOTE,
    ),
    Rule(
        name="an ungated task must not get worse by more than its limit",
        taken_out=("if t.gated else UNGATED_REGRESSION_LIMIT_PCT", "if t.gated else 1e9"),
        tasks=(GOOD, pair(arm(0), arm(0, cost=20.01))),
        outcome=KEEP,
    ),
    Rule(
        name="a lead of two runs promotes",
        taken_out=("if margin >= RESOLUTION_MARGIN_TO_PROMOTE:", "if False:"),
        tasks=(pair(arm(1), arm(3, cost=11.0)),),
        outcome=PROMOTE,
    ),
    Rule(
        name="a lead of one run is noise",
        taken_out=("RESOLUTION_MARGIN_TO_PROMOTE: Final = 2", "RESOLUTION_MARGIN_TO_PROMOTE: Final = 1"),
        tasks=(pair(arm(2), arm(3, cost=10.0)),),
        outcome=KEEP,
    ),
    Rule(
        name="the median improvement reaches the minimum",
        taken_out=("improvement >= policy.min_improvement_pct:", "True:"),
        tasks=(pair(arm(), arm(cost=9.51)),),
        outcome=KEEP,
    ),
    Rule(
        name="exactly the minimum is enough",
        taken_out=("improvement >= policy.min_improvement_pct:", "improvement > policy.min_improvement_pct:"),
        tasks=(pair(arm(), arm(cost=9.5)),),
        outcome=PROMOTE,
    ),
    Rule(
        name="ungated tasks are not in the median",
        taken_out=("if t.gated and t.improvement_pct is not None)", "if t.improvement_pct is not None)"),
        tasks=(pair(arm(), arm(cost=9.4)), pair(arm(0), arm(0, cost=15.0))),
        outcome=PROMOTE,
    ),
    Rule(
        name="the median is rounded before it is compared",
        taken_out=("None if improvement is None else round(improvement, 1)", "improvement"),
        tasks=(pair(arm(), arm(cost=9.51)), pair(arm(), arm(cost=9.5))),
        outcome=PROMOTE,
    ),
    Rule(
        name="a void of the candidate counts as a failed run too",
        taken_out=("t.candidate_valid_runs + arms[policy.candidate_arm].voided_attempts", "t.candidate_valid_runs"),
        tasks=(pair(arm(), arm(cost=5.0, voided=1)),),
        outcome=KEEP,
        as_failures=True,
    ),
    Rule(
        name="the quality floor asks a void of the candidate, too",
        taken_out=("t.quality_floor_met and t.candidate_resolved == candidate_runs", "t.quality_floor_met"),
        tasks=(pair(arm(2), arm(cost=5.0, voided=1)),),
        outcome=KEEP,
        as_failures=True,
    ),
]


def decide_with(module: Any, rule: Rule) -> object:  # noqa: ANN401 - a module made at run time
    policy = module.GatePolicy(incumbent_arm="old", candidate_arm="new", model=rule.model)
    aggregates = {f"t{index}": arms for index, arms in enumerate(rule.tasks)}
    decision = module.decide(aggregates, policy)
    if rule.as_failures:
        assert decision.outcome == "promote"
        decision = module.decide_with_voids_as_failures(decision, aggregates, policy)
    return rule.seen(decision)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name.replace(" ", "-"))
def test_the_case_of_a_rule_comes_out_otherwise_without_the_rule(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    assert decide_with(gate, rule) == rule.outcome
    source = Path(gate.__file__).read_text()
    assert source.count(rule.taken_out[0]) == 1, "the source has changed: take the rule out in another way"
    mutant = ModuleType("mutant_of_the_gate")
    monkeypatch.setitem(sys.modules, mutant.__name__, mutant)  # dataclasses look their module up
    exec(compile(source.replace(*rule.taken_out), "mutant", "exec"), vars(mutant))  # noqa: S102 - our own source
    # Without a rule the gate may read what is not there: then it does not decide as before either.
    with contextlib.suppress(TypeError, ZeroDivisionError):
        assert decide_with(mutant, rule) != rule.outcome
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_no_void_leaves_the_decision_as_it_is() -> None:
    policy = gate.GatePolicy(incumbent_arm="old", candidate_arm="new", model="m-1")
    decision = gate.decide({"t": GOOD}, policy)
    assert gate.decide_with_voids_as_failures(decision, {"t": GOOD}, policy) == decision


def test_a_void_of_the_incumbent_does_not_keep_it() -> None:
    policy = gate.GatePolicy(incumbent_arm="old", candidate_arm="new", model="m-1")
    arms = {"t": pair(arm(voided=2), arm(cost=5.0))}
    again = gate.decide_with_voids_as_failures(gate.decide(arms, policy), arms, policy)
    assert again.outcome is gate.Outcome.PROMOTE
    assert again.tasks[0].incumbent_valid_runs == 5


def test_too_little_evidence_stays_too_little() -> None:
    policy = gate.GatePolicy(incumbent_arm="old", candidate_arm="new", model=None)
    decision = gate.decide({"t": GOOD}, policy)
    assert gate.decide_with_voids_as_failures(decision, {"t": GOOD}, policy) is decision
