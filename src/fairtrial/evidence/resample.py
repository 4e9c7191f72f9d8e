"""How often a policy would promote a candidate that is the incumbent itself.

Both sides of each resample are drawn from the incumbent's own runs, so every promotion among them is a false one. The
draws are a pure function of the seed: whoever has the rows gets the same figure.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairtrial.evidence.bench import MEDIAN_FIELDS, Aggregates, ArmAggregate, CountedRun
from fairtrial.evidence.gate import GatePolicy, Outcome, decide
from fairtrial.evidence.reviews import aggregate_reviews
from fairtrial.stats.summary import median

__all__ = ["MIN_RESAMPLES", "FalsePromotion", "estimate_false_promotion"]

MIN_RESAMPLES: Final = 2000
DRAW_BYTES: Final = 8
ANY_MODEL: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class FalsePromotion:
    """What the resamples came to.

    Attributes:
        seed: What the draws were made from.
        n_resamples: Resamples.
        n_promoted: Those in which the policy promoted.
        n_insufficient: Those in which it found too little evidence.
        p_promoted: Share that was promoted; None when it cannot be told.
        unmeasured_reason: Why not, or None.
    """

    seed: int
    n_resamples: int
    n_promoted: int
    n_insufficient: int
    p_promoted: float | None
    unmeasured_reason: str | None


def estimate_false_promotion(
    runs: Mapping[str, Sequence[CountedRun]], policy: GatePolicy, *, seed: int, n_resamples: int = MIN_RESAMPLES
) -> FalsePromotion:
    """Draw both sides from the incumbent's runs, with replacement, and count how often the policy promotes.

    A block of the agent lane is one task in one run over all arms; of the incumbent it holds one run, so drawing whole
    blocks is drawing runs, task by task. Each side of a task gets as many as the incumbent has there. Void runs are no
    evidence and are never drawn.

    Args:
        runs: The incumbent's counting attempts by task.
        policy: The policy; its model is not asked for, since both sides are the same.
        seed: Any number; the same one gives the same draws.
        n_resamples: How often to draw, `MIN_RESAMPLES` or more.

    Raises:
        ValueError: Fewer resamples than `MIN_RESAMPLES`: a bug of the caller.
    """
    if n_resamples < MIN_RESAMPLES:
        raise ValueError(f"{n_resamples} resamples are fewer than {MIN_RESAMPLES}")
    pools = {task: valid for task, counted in runs.items() if (valid := tuple(r for r in counted if not r.void))}
    named = replace(policy, model=policy.model or ANY_MODEL)
    known: dict[tuple[str, tuple[int, ...]], ArmAggregate] = {}

    def aggregate(task: str, side: str, number: int) -> ArmAggregate:
        pool = pools[task]
        # Sorted, because an aggregate does not know in which order runs came: few distinct ones are ever computed.
        drawn = tuple(sorted(_draw(len(pool), seed=seed, number=number, task=task, side=side)))
        if (task, drawn) not in known:
            known[task, drawn] = _aggregate(pool[index] for index in drawn)
        return known[task, drawn]

    counts = dict.fromkeys(Outcome, 0)
    for number in range(n_resamples):
        aggregates: Aggregates = {
            task: {
                policy.incumbent_arm: aggregate(task, "incumbent", number),
                policy.candidate_arm: aggregate(task, "candidate", number),
            }
            for task in pools
        }
        counts[decide(aggregates, named).outcome] += 1
    n_promoted, n_insufficient = counts[Outcome.PROMOTE], counts[Outcome.INSUFFICIENT_EVIDENCE]
    unknown = n_insufficient == n_resamples
    return FalsePromotion(
        seed=seed,
        n_resamples=n_resamples,
        n_promoted=n_promoted,
        n_insufficient=n_insufficient,
        p_promoted=None if unknown else n_promoted / n_resamples,
        unmeasured_reason="the incumbent's runs are too few, or not measured, for any decision" if unknown else None,
    )


def _draw(n_runs: int, *, seed: int, number: int, task: str, side: str) -> Iterator[int]:
    """Give as many indexes below `n_runs`, each equally likely (to 1 in 2**61), from the identity of the draw."""
    name = f"{seed}\0{number}\0{side}\0{task}".encode()
    stream = hashlib.shake_256(name).digest(DRAW_BYTES * n_runs)
    for at in range(0, len(stream), DRAW_BYTES):
        yield int.from_bytes(stream[at : at + DRAW_BYTES], "big") % n_runs


def _aggregate(drawn: Iterator[CountedRun]) -> ArmAggregate:
    runs = list(drawn)
    kinds: dict[str, int] = {}
    for run in runs:
        if run.kind is not None:
            kinds[run.kind] = kinds.get(run.kind, 0) + 1
    return ArmAggregate(
        medians={name: median(run.values[i] for run in runs) for i, name in enumerate(MEDIAN_FIELDS)},
        resolved=sum(run.resolved for run in runs),
        runs=len(runs),
        valid_runs=len(runs),
        excluded_runs=0,
        voided_attempts=0,
        transcripts_missing=0,
        task_class=None,
        error_kinds=kinds,
        spent={},
        review=aggregate_reviews(run.review for run in runs),
    )
