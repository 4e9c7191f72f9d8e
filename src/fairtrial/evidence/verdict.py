"""Everything that the gate finds about one candidate: what the numbers say, and whether they may be used."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fairtrial.evidence.admit import Admission, Reason, admit
from fairtrial.evidence.bench import Aggregates, BenchFold
from fairtrial.evidence.gate import Decision, GatePolicy, Outcome, decide, decide_with_voids_as_failures
from fairtrial.evidence.resample import MIN_RESAMPLES, FalsePromotion, estimate_false_promotion
from fairtrial.evidence.rows import Row

__all__ = ["Verdict", "judge_candidate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Everything that the gate found.

    Attributes:
        policy: What was asked.
        aggregates: What is known of both arms, by task.
        decision: What the numbers say.
        as_failures: What they say when each superseded void counts as a failed run.
        inadmissible: Reasons why the rows may not be used.
        false_promotion: How often this policy promotes the incumbent itself.
        sealed: The rows come from a directory that an audit found intact and sealed.
        rehearsal: A script may have played the model.
    """

    policy: GatePolicy
    aggregates: Aggregates
    decision: Decision
    as_failures: Decision
    inadmissible: tuple[Reason, ...]
    false_promotion: FalsePromotion
    sealed: bool
    rehearsal: bool

    @property
    def promotable(self) -> bool:
        """The candidate wins both ways, and nothing forbids using the rows."""
        outcomes = {self.decision.outcome, self.as_failures.outcome}
        return outcomes == {Outcome.PROMOTE} and not self.inadmissible


def judge_candidate(
    read: Callable[[], Iterable[Row]],
    policy: GatePolicy,
    admission: Admission,
    *,
    seed: int,
    n_resamples: int = MIN_RESAMPLES,
) -> Verdict:
    """Decide, and say whether the decision may be used.

    Args:
        read: Gives the rows; called twice, so that none need be held.
        policy: What is asked.
        admission: What is known beside the rows.
        seed: Of the resamples.
        n_resamples: How many.

    Raises:
        UsageError: The rows are not of the agent lane.
        IntegrityError: An attempt occurs twice.
    """
    fold = BenchFold()
    for row in read():
        fold.add(row)
    arms = (policy.incumbent_arm, policy.candidate_arm)
    aggregates = {
        task: kept
        for task, found in fold.summary().aggregates.items()
        if (kept := {arm: found[arm] for arm in arms if arm in found})
    }
    decision = decide(aggregates, policy)
    runs = fold.counted_runs(policy.incumbent_arm)
    return Verdict(
        policy=policy,
        aggregates=aggregates,
        decision=decision,
        as_failures=decide_with_voids_as_failures(decision, aggregates, policy),
        inadmissible=admit(read(), policy, admission),
        false_promotion=estimate_false_promotion(runs, policy, seed=seed, n_resamples=n_resamples),
        sealed=admission.sealed,
        rehearsal=admission.rehearsal,
    )
