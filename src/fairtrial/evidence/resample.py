"""How often a policy would promote a candidate that is the incumbent itself.

Both sides of each resample are drawn from the incumbent's own runs, so every promotion among them is a false one. The
draws are a pure function of the seed: whoever has the rows gets the same figure.

They are made twice, because few runs show too little of their spread: once of the runs as they are, and once with each
run's metric moved to a deviation that is drawn from all tasks and corrected for their number of runs. What is told is
the larger share; see decision 0014.
"""

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from fairtrial.evidence.bench import MEDIAN_FIELDS, ArmAggregate, CountedRun
from fairtrial.evidence.gate import GatePolicy, Outcome, decide
from fairtrial.evidence.reviews import aggregate_reviews
from fairtrial.stats.summary import median

__all__ = ["MIN_RESAMPLES", "FalsePromotion", "estimate_false_promotion"]

MIN_RESAMPLES: Final = 2000
DRAW_BYTES: Final = 8
ANY_MODEL: Final = "-"
MOST_LOG: Final = 700.0
"""The logarithm of a figure that a float still holds."""
MIN_RUNS_OF_A_SPREAD: Final = 2
MIN_TASKS_OF_A_SPREAD: Final = 2
"""In simulation the runs of one task alone told 0.7 of the true rate; see decision 0014."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FalsePromotion:
    """What the resamples came to.

    Attributes:
        seed: What the draws were made from.
        n_resamples: Resamples of each kind.
        n_promoted: Those of runs as they are in which the policy promoted.
        n_promoted_spread: Those of runs with a corrected spread in which it did.
        n_insufficient: Those of runs as they are in which it found too little evidence.
        p_promoted: The larger share of the two that was promoted; None when it cannot be told.
        unmeasured_reason: Why not, or None.
    """

    seed: int
    n_resamples: int
    n_promoted: int
    n_promoted_spread: int
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
    drawer = _Drawer(pools, policy.metric, seed=seed)
    outcomes = [_decide_resample(drawer, named, number) for number in range(n_resamples)]
    n_promoted = sum(as_it_is is Outcome.PROMOTE for as_it_is, _ in outcomes)
    n_spread = sum(spread is Outcome.PROMOTE for _, spread in outcomes)
    n_insufficient = sum(as_it_is is Outcome.INSUFFICIENT_EVIDENCE for as_it_is, _ in outcomes)
    unknown = None
    if n_insufficient == n_resamples:
        unknown = "the incumbent's runs are too few, or not measured, for any decision"
    elif sum(len(pool) >= MIN_RUNS_OF_A_SPREAD for pool in pools.values()) < MIN_TASKS_OF_A_SPREAD:
        unknown = "it takes two runs of each of two tasks to show how runs scatter"
    return FalsePromotion(
        seed=seed,
        n_resamples=n_resamples,
        n_promoted=n_promoted,
        n_promoted_spread=n_spread,
        n_insufficient=n_insufficient,
        p_promoted=None if unknown else max(n_promoted, n_spread) / n_resamples,
        unmeasured_reason=unknown,
    )


class _Drawer:
    """Draws runs as they are, and for each a deviation of the metric from its task's centre.

    A deviation is a difference of logarithms: costs scatter by factors, and so those of cheap and dear tasks are alike.
    It comes from any task, since the few runs of one take on few values; n runs lie nearer to their own centre than to
    the true one, on average by the factor sqrt((n - 1) / n), which is undone. Tasks with an unmeasured or a zero figure
    keep their figures, and give none away.
    """

    def __init__(self, pools: Mapping[str, Sequence[CountedRun]], metric: str, *, seed: int) -> None:
        self.tasks = tuple(pools)
        self._pools = pools
        self._metric = metric
        self._seed = seed
        # Few distinct aggregates come of many draws: an aggregate does not know in which order runs came.
        self._known: dict[tuple[str, tuple[int, ...]], ArmAggregate] = {}
        self._known_spread: dict[tuple[str, tuple[int, ...], float | None], ArmAggregate] = {}
        centres: dict[str, float] = {}
        deviations: list[float] = []
        at = MEDIAN_FIELDS.index(metric)
        for task, pool in pools.items():
            logs = [math.log(value) for run in pool if (value := run.values[at]) is not None and value > 0]
            if len(logs) == len(pool):
                centres[task] = centre = fmean(logs)
                if len(pool) >= MIN_RUNS_OF_A_SPREAD:
                    correction = math.sqrt(len(pool) / (len(pool) - 1))
                    deviations += [(each - centre) * correction for each in logs]
        self._figures = {
            task: [math.exp(min(centre + deviation, MOST_LOG)) for deviation in deviations]
            for task, centre in centres.items()
        }

    def draw_side(self, task: str, side: str, number: int) -> tuple[ArmAggregate, ArmAggregate]:
        """What is known of one side of one task in one resample: as the runs are, and with a corrected spread."""
        pool = self._pools[task]
        drawn = tuple(sorted(_draw(len(pool), len(pool), seed=self._seed, number=number, task=task, side=side)))
        if (task, drawn) not in self._known:
            self._known[task, drawn] = _aggregate([pool[index] for index in drawn])
        as_it_is = self._known[task, drawn]
        figures = self._figures.get(task)
        if not figures:
            return as_it_is, as_it_is
        others = _draw(len(figures), len(pool), seed=self._seed, number=number, task=task, side=f"{side} spread")
        figure = median(figures[index] for index in others)
        if (task, drawn, figure) not in self._known_spread:
            spread = replace(as_it_is, medians={**as_it_is.medians, self._metric: figure})
            self._known_spread[task, drawn, figure] = spread
        return as_it_is, self._known_spread[task, drawn, figure]


def _decide_resample(drawer: _Drawer, policy: GatePolicy, number: int) -> tuple[Outcome, Outcome]:
    """What the policy says of one resample: as the runs are, and with a corrected spread."""
    sides = {
        task: (drawer.draw_side(task, "incumbent", number), drawer.draw_side(task, "candidate", number))
        for task in drawer.tasks
    }
    as_it_is, spread = (
        decide(
            {
                task: {policy.incumbent_arm: old[kind], policy.candidate_arm: new[kind]}
                for task, (old, new) in sides.items()
            },
            policy,
        ).outcome
        for kind in range(2)
    )
    return as_it_is, spread


def _draw(n_runs: int, n_draws: int, *, seed: int, number: int, task: str, side: str) -> list[int]:
    """Give `n_draws` indexes below `n_runs`, each equally likely (to 1 in 2**54), from the identity of the draw."""
    name = f"{seed}\0{number}\0{side}\0{task}".encode()
    stream = hashlib.shake_256(name).digest(DRAW_BYTES * n_draws)
    return [drawn % n_runs for drawn in struct.unpack(f">{n_draws}Q", stream)]


def _aggregate(runs: Sequence[CountedRun]) -> ArmAggregate:
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
