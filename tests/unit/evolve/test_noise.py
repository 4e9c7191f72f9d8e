"""A proposer that only adds noise wins no more often than the gate says it would."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
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
TASKS = ("a", "b", "c", "d")
SIGMA = 0.1
P_FAIL = 0.01
PRINTED_EVERY = 20
SURE = 0.999
"""The bound holds with this probability for a proposer that is promoted exactly as often as the gate prints."""


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


def noise(generation: int, n_runs: int) -> Iterator[Row]:
    """Rows of two arms that differ in nothing but their names."""
    for task in TASKS:
        for arm in (POLICY.incumbent_arm, POLICY.candidate_arm):
            for run in range(n_runs):
                name = (n_runs, generation, task, arm, run)
                cost_usd = math.exp(SIGMA * NormalDist().inv_cdf(chance(*name, "cost")))
                yield row(task, arm, run, cost_usd, resolved=chance(*name, "fate") >= P_FAIL)


class NoiseProposer:
    """The steps of an evolution whose candidates are the incumbent under another name; the gate is the real one."""

    def __init__(self, first: int, n_runs: int) -> None:
        self.first = first
        self.n_runs = n_runs
        self.promoted: list[bool] = []
        self.printed: list[float | None] = []

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
        rows = list(noise(generation, self.n_runs))
        self.promoted.append(is_promotable(rows))
        if generation % PRINTED_EVERY == 0:  # resampling is most of the work, and the mean of some is enough
            verdict = judge_candidate(lambda: rows, POLICY, ADMISSION, seed=generation)
            assert verdict.promotable == self.promoted[-1]
            self.printed.append(verdict.false_promotion.p_promoted)
        return replace(outcome, result=StepResult.PROMOTABLE if self.promoted[-1] else StepResult.KEPT)


def is_promotable(rows: Sequence[Row]) -> bool:
    """What `judge_candidate` finds, without its resamples."""
    fold = BenchFold()
    for each in rows:
        fold.add(each)
    aggregates = fold.summary().aggregates
    decision = decide(aggregates, POLICY)
    both = {decision.outcome, decide_with_voids_as_failures(decision, aggregates, POLICY).outcome}
    return both == {Outcome.PROMOTE} and not admit(rows, POLICY, ADMISSION)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("n_runs", [3, 5])
def test_over_200_generations_noise_is_promoted_no_more_often_than_a_binomial_bound_on_the_printed_rate(
    n_runs: int, tmp_path: Path
) -> None:
    promoted: list[bool] = []
    printed: list[float | None] = []
    while len(promoted) < N_GENERATIONS:
        steps = NoiseProposer(len(promoted), n_runs)
        files = create_evolution(tmp_path / str(len(promoted)), now=NOW, base=tmp_path)
        bounds = Bounds(generations=min(20, N_GENERATIONS - len(promoted)))
        ending = drive(files, steps, bounds, evolution="e", now=lambda: NOW)
        # A promotion ends an evolution; nothing else does before its last generation.
        assert ending.exit_code == 0
        assert (ending.kind is EndKind.PROMOTED) == steps.promoted[-1]
        assert not any(steps.promoted[:-1])
        promoted += steps.promoted
        printed += steps.printed
    assert len(promoted) == N_GENERATIONS
    assert len(printed) == N_GENERATIONS // PRINTED_EVERY
    rates = [rate for rate in printed if rate is not None]
    assert len(rates) == len(printed)
    assert 0.02 < fmean(rates) < 0.3  # else nothing is shown
    assert 0 < sum(promoted) <= binomial_bound(N_GENERATIONS, fmean(rates))
