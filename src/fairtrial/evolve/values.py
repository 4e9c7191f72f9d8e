"""The vocabulary of an evolution: what was asked, its steps, what each came to, and how it can end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fairtrial.sweep.bench_plan import BenchOptions, CandidateOptions

__all__ = [
    "OUTCOME_SCHEMA",
    "EndKind",
    "Ending",
    "EvolveOptions",
    "Step",
    "StepKind",
    "StepOutcome",
    "StepResult",
]

OUTCOME_SCHEMA: Final = "evolve-outcome/1"


class StepKind(StrEnum):
    """What an evolution can do next."""

    PROPOSE = "propose"
    """An agent writes a candidate, from evidence on the learning tasks."""
    MEASURE = "measure"
    """The candidate is measured against its incumbent on the learning tasks."""
    CONFIRM = "confirm"
    """The final gate: the same on the holdout tasks, which nothing before has used."""
    APPLY = "apply"
    """The promoted candidate is put into the project."""


class StepResult(StrEnum):
    """What a step came to."""

    PROPOSED = "proposed"
    PROMOTABLE = "promotable"
    KEPT = "kept"
    """The gate does not promote the candidate: the next generation begins with this evidence."""
    APPLIED = "applied"
    REFUSED = "refused"
    """What came of it is of no use: no further generation can help."""


class EndKind(StrEnum):
    """Why an evolution does not go on."""

    PROMOTED = "promoted"
    ALL_RAN = "all-generations-ran"
    REFUSED = "refused"
    BUDGET = "budget"
    WALL_TIME = "wall-time"
    UNFINISHED = "unfinished"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolveOptions:
    """What the user asked, as `evolve.json` holds it; paths are absolute.

    Attributes:
        bench: How candidates are measured: `arms` are the incumbents, `only` the learning tasks that were named.
        candidate: How candidates are judged; its overlay is another in each generation.
        proposer_agent: The agent that writes candidates.
        proposer_model: The model that it runs with.
        proposer_budget_usd: US dollars that one proposal may cost; None for what is left of the budget.
        generations: Candidates that may be measured.
        budget_usd: US dollars that proposals and measurements may cost together; None for no bound.
        wall_time_s: Seconds that one pass may take; None for no bound.
        seed_results: Results directory whose rows are the first evidence, or None.
        initial_overlay: The first generation's candidate, or None for a proposed one.
        learnings: JSON lines of what was learnt before, or None.
        apply: Put a promoted candidate into the project.
    """

    bench: BenchOptions
    candidate: CandidateOptions
    proposer_agent: str
    proposer_model: str
    proposer_budget_usd: float | None = None
    generations: int = 1
    budget_usd: float | None = None
    wall_time_s: float | None = None
    seed_results: str | None = None
    initial_overlay: str | None = None
    learnings: str | None = None
    apply: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of one generation.

    Attributes:
        generation: 0-based.
        kind: What is done.
    """

    generation: int
    kind: StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What a step came to, as its record holds it.

    Attributes:
        schema: `evolve-outcome/1`.
        evolution: Whose step it is.
        generation: 0-based.
        step: What was done.
        result: What it came to.
        ended_utc: When.
        reasons: Why, as sentences for people.
        candidate_overlay_digest: The candidate; None where there is none.
        results: Results directory that it stands on, below the evolution's; None where there is none.
        seal: Digest of that directory's seal, or None.
        p_false_promotion: How often the policy promotes the incumbent itself, the largest over its arms; None when it
            cannot be told.
        holdout_uses: How often each holdout task has been used by now, this time included.
    """

    schema: str
    evolution: str
    generation: int
    step: StepKind
    result: StepResult
    ended_utc: str
    reasons: tuple[str, ...] = ()
    candidate_overlay_digest: str | None = None
    results: str | None = None
    seal: str | None = None
    p_false_promotion: float | None = None
    holdout_uses: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why an evolution does not go on.

    Attributes:
        kind: The reason.
        detail: One line for people: what happened, and what can be done.
        exit_code: The exit code that the command ends with.
    """

    kind: EndKind
    detail: str
    exit_code: int
