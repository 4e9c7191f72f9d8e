"""A proposer that only adds noise wins no more often than the gate says it would."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from statistics import NormalDist, fmean

import pytest

from fairtrial.evidence.admit import REQUIRED_LIMITS, Admission, admit
from fairtrial.evidence.bench import BenchFold
from fairtrial.evidence.gate import GatePolicy, Outcome, decide, decide_with_voids_as_failures
from fairtrial.evidence.rows import Row
from fairtrial.evidence.verdict import judge_candidate
from fairtrial.evolve.drive import drive
from fairtrial.evolve.next_step import Bounds, Used
from fairtrial.evolve.record import create_evolution
from fairtrial.evolve.values import (
    OUTCOME_SCHEMA,
    Ending,
    EndKind,
    Step,
    StepKind,
    StepOutcome,
    StepResult,
)

N_GENERATIONS = 200
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
POLICY = GatePolicy(incumbent_arm="workflow", candidate_arm="candidate_workflow", model="m-1")
ADMISSION = Admission(sealed=True, n_uncounted=0, now=NOW)
TASKS = {StepKind.MEASURE: ("a", "b", "c", "d"), StepKind.CONFIRM: ("e", "f", "g", "h")}
"""The learning tasks, and those that are held out for the final gate."""
SIGMA = 0.1
P_FAIL = 0.01
N_PRINTED = 10
"""Verdicts over which a printed rate is averaged: one alone is a rough measure of it."""
SURE = 0.999
"""The bound holds with this probability for a proposer that is promoted exactly as often as the gate prints."""


class Scatter(StrEnum):
    """How runs of one arm on one task differ."""

    EVEN = "even"
    HEAVY_TAILED = "heavy-tailed"
    """Now and then a run costs a multiple of the others."""
    CORRELATED = "correlated"
    """Both arms of a block share most of their luck, so do all blocks of a run, and each task has its own spread."""


def chance(*parts: object) -> float:
    """A number between 0 and 1 from a name: the same in every run of this test."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return (int.from_bytes(digest[:7], "big") + 0.5) / 2**56


def binomial_bound(n: int, p: float) -> int:
    """The smallest number that a binomial count stays at or below with probability `SURE`."""
    below = 0.0
    for k in range(n + 1):
        below += math.comb(n, k) * p**k * (1 - p) ** (n - k)
        if below >= SURE:
            return k
    return n


def row(task: str, arm: str, run: int, cost_usd: float, *, resolved: bool) -> Row:
    return {
        "task": task,
        "arm": arm,
        "run": run,
        "resolved": resolved,
        "error_kind": None if resolved else "oracle-failed",
        "cost_usd": cost_usd,
        "sandboxed": True,
        "sandbox_backend": "bubblewrap",
        "limits_enforced": dict.fromkeys(REQUIRED_LIMITS, "cgroup"),
        "isolation": "shared",
        "controls": "held",
        "usage_source": "wire",
        "usage_is_lower_bound": False,
        "model": "m-1",
        "benchmark_model": "m-1",
        "agent": "bash-agent",
        "agent_version": "1",
        "effort": None,
        "scripted_model": False,
        "integrity_flags": [],
        "source": "fairtrial 1",
        "price_table": "p 1",
        "task_base_sha": task,
        "sanitized_task_sha": task,
        "task_prompt_digest": task,
        "setup_digest": "",
        "verify_digest": task,
        "oracle_digest": task,
        "oracle_command_digest": task,
        "oracle_manifest_digest": task,
        "setup_layer_digest": None,
        "environment_undeclared": {},
        "arm_digest": arm,
        "candidate_overlay_digest": arm,
        "recorded_at": "2026-11-29T11:00:00Z",
    }


def deviation_of(scatter: Scatter, n_runs: int, generation: int, task: str, arm: str, run: int) -> float:
    """How far the logarithm of a run's cost lies from its task's: nothing in it depends on the arm but its luck."""

    def normal(*parts: object) -> float:
        return NormalDist().inv_cdf(chance(scatter, n_runs, generation, *parts))

    match scatter:
        case Scatter.EVEN:
            return SIGMA * normal(task, arm, run, "cost")
        case Scatter.HEAVY_TAILED:
            luck = chance(scatter, n_runs, generation, task, arm, run, "cost")
            # Student's t with two degrees of freedom, whose variance is infinite, by the inverse of its distribution.
            return SIGMA / 2 * (2 * luck - 1) / math.sqrt(2 * luck * (1 - luck))
        case Scatter.CORRELATED:
            shared = 0.6 * normal(run, "day") + 0.5 * normal(task, run, "block")
            return 2 * SIGMA * (0.5 + chance(task, "spread")) * (shared + 0.6 * normal(task, arm, run, "cost"))


def noise(scatter: Scatter, generation: int, n_runs: int, tasks: Sequence[str]) -> Iterator[Row]:
    """Rows of two arms that differ in nothing but their names."""
    for task in tasks:
        for arm in (POLICY.incumbent_arm, POLICY.candidate_arm):
            for run in range(n_runs):
                deviation = deviation_of(scatter, n_runs, generation, task, arm, run)
                resolved = chance(scatter, n_runs, generation, task, arm, run, "fate") >= P_FAIL
                yield row(task, arm, run, 10 ** chance(task, "level") * math.exp(deviation), resolved=resolved)


class NoiseProposer:
    """The steps of an evolution whose candidates are the incumbent under another name; the gate is the real one."""

    def __init__(self, scatter: Scatter, first: int, n_runs: int, printed: dict[StepKind, list[float | None]]) -> None:
        self.scatter = scatter
        self.first = first
        self.n_runs = n_runs
        self.printed = printed
        self.won: dict[StepKind, list[bool]] = {kind: [] for kind in TASKS}

    def used(self) -> Used:
        return Used(spent_usd=0.0, elapsed_s=0.0)

    def run(self, step: Step, before: Sequence[StepOutcome]) -> StepOutcome | Ending:
        assert all(outcome.generation <= step.generation for outcome in before)
        outcome = StepOutcome(
            schema=OUTCOME_SCHEMA,
            evolution="e",
            generation=step.generation,
            step=step.kind,
            result=StepResult.PROPOSED,
            ended_utc="2026-11-29T12:00:00Z",
        )
        if step.kind is StepKind.PROPOSE:
            return outcome
        generation = self.first + step.generation
        rows = list(noise(self.scatter, generation, self.n_runs, TASKS[step.kind]))
        won = is_promotable(rows)
        self.won[step.kind].append(won)
        # Resampling is most of the work, and the mean of some is enough.
        is_due = step.kind is StepKind.CONFIRM or generation % (N_GENERATIONS // N_PRINTED) == 0
        if is_due and len(self.printed[step.kind]) < N_PRINTED:
            verdict = judge_candidate(lambda: rows, POLICY, ADMISSION, seed=generation)
            assert verdict.promotable == won
            self.printed[step.kind].append(verdict.false_promotion.p_promoted)
        return replace(outcome, result=StepResult.PROMOTABLE if won else StepResult.KEPT)


def is_promotable(rows: Sequence[Row]) -> bool:
    """What `judge_candidate` finds, without its resamples."""
    fold = BenchFold()
    for each in rows:
        fold.add(each)
    aggregates = fold.summary().aggregates
    decision = decide(aggregates, POLICY)
    both = {decision.outcome, decide_with_voids_as_failures(decision, aggregates, POLICY).outcome}
    return both == {Outcome.PROMOTE} and not admit(rows, POLICY, ADMISSION)


def evolve_noise(
    scatter: Scatter, n_runs: int, directory: Path, *, has_holdout: bool = False
) -> tuple[dict[StepKind, list[bool]], dict[StepKind, list[float | None]]]:
    """Run evolutions until there were `N_GENERATIONS` generations.

    Returns:
        Which candidates won, and rates that were printed, by the step.
    """
    won: dict[StepKind, list[bool]] = {kind: [] for kind in TASKS}
    printed: dict[StepKind, list[float | None]] = {kind: [] for kind in TASKS}
    last = StepKind.CONFIRM if has_holdout else StepKind.MEASURE
    while (done := len(won[StepKind.MEASURE])) < N_GENERATIONS:
        steps = NoiseProposer(scatter, done, n_runs, printed)
        files = create_evolution(directory / str(done), now=NOW, base=directory)
        bounds = Bounds(generations=min(20, N_GENERATIONS - done), has_holdout=has_holdout)
        ending = drive(files, steps, bounds, evolution="e", now=lambda: NOW)
        # A promotion ends an evolution; nothing else does before its last generation.
        assert ending.exit_code == 0
        assert (ending.kind is EndKind.PROMOTED) == any(steps.won[last])
        assert not any(steps.won[last][:-1])
        for kind, each in steps.won.items():
            won[kind] += each
    return won, printed


def mean_of(printed: Sequence[float | None]) -> float:
    rates = [rate for rate in printed if rate is not None]
    assert len(rates) == len(printed) == N_PRINTED
    return fmean(rates)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("scatter", "n_runs"), [(Scatter.HEAVY_TAILED, 5), (Scatter.CORRELATED, 3)])
def test_over_200_generations_noise_is_promoted_no_more_often_than_a_binomial_bound_on_the_printed_rate(
    scatter: Scatter, n_runs: int, tmp_path: Path
) -> None:
    won, printed = evolve_noise(scatter, n_runs, tmp_path)
    promoted, rate = won[StepKind.MEASURE], mean_of(printed[StepKind.MEASURE])
    assert len(promoted) == N_GENERATIONS
    assert 0.02 < rate < 0.3  # else nothing is shown
    assert 0 < sum(promoted) <= binomial_bound(N_GENERATIONS, rate)


@pytest.mark.timeout(300)
def test_the_final_gate_lets_no_more_of_the_noise_through_than_a_bound_on_the_rate_that_it_prints(
    tmp_path: Path,
) -> None:
    won, printed = evolve_noise(Scatter.EVEN, 3, tmp_path, has_holdout=True)
    rates = {kind: mean_of(printed[kind]) for kind in TASKS}
    measured, confirmed = won[StepKind.MEASURE], won[StepKind.CONFIRM]
    assert len(measured) == N_GENERATIONS
    assert 0 < sum(measured) <= binomial_bound(N_GENERATIONS, rates[StepKind.MEASURE])
    # It is asked about what chance alone brought through, and about nothing else.
    assert len(confirmed) == sum(measured)
    assert sum(confirmed) <= binomial_bound(len(confirmed), rates[StepKind.CONFIRM]) < len(confirmed)
