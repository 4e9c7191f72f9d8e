"""Aggregates of agent-lane rows: medians, counts, savings, broken incumbents, outage streaks.

`BenchFold` is fed row by row and keeps a dozen numbers of each, so a file of any size is read once and never held.
Everything it gives is computed from counting attempts, except `voided_attempts` and `spent`, which cover what was
superseded as well.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final, TypeAlias

from fairtrial.evidence.attempts import Attempt, Choice, attempt_of, choose
from fairtrial.evidence.bench_remarks import RemarkFold, Remarks
from fairtrial.evidence.endings import EndingKind, is_systemic, is_void, kind_of
from fairtrial.evidence.reviews import CountedReview, ReviewAggregate, aggregate_reviews, counted_review
from fairtrial.evidence.rows import Row, flag, measured, required_text, text
from fairtrial.stats.summary import median, percent_saved, total

__all__ = [
    "BASELINE",
    "INCUMBENTS",
    "MEDIAN_FIELDS",
    "SAVINGS_FIELDS",
    "SPENT_FIELDS",
    "TOKEN_FIELDS",
    "Aggregates",
    "ArmAggregate",
    "BenchFold",
    "BenchSummary",
    "CountedRun",
    "Savings",
    "Streaks",
    "broken_incumbents",
    "first_trip_index",
    "savings",
    "with_plan",
]

BASELINE: Final = "baseline"
INCUMBENTS: Final = ("workflow", "workflow_direct")
TOKEN_FIELDS: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
)
MEDIAN_FIELDS: Final = (
    *TOKEN_FIELDS,
    "duration_s",
    "num_turns",
    "diff_files",
    "diff_insertions",
    "diff_deletions",
    "cost_usd",
)
SAVINGS_FIELDS: Final = (*TOKEN_FIELDS, "cost_usd", "duration_s")
SPENT_FIELDS: Final = SAVINGS_FIELDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAggregate:
    """What is known of one arm on one task.

    Attributes:
        medians: Medians over valid runs by field (`MEDIAN_FIELDS`); None without valid runs or with an unmeasured one.
        resolved: Runs that ended without an error kind and whose row says resolved.
        runs: Counting attempts.
        valid_runs: Those that are no void.
        excluded_runs: Those that are void.
        voided_attempts: Void attempts that a later one superseded.
        runs_as_failures: `runs + voided_attempts`: the number of runs when each void counts as a failed one.
        transcripts_missing: Runs whose transcript was lost.
        task_class: The task's class, as the first row that names one says; None when no row does.
        error_kinds: How often each error kind occurred.
        spent: Sums over every attempt, superseded ones included, by field (`SPENT_FIELDS`); None with an unmeasured
            one.
        review: What its reviews are worth, over its valid runs; None for an arm that does not review.
        lower_bound_runs: Valid runs whose tokens and cost are lower bounds, so that their medians are, too.
        spent_is_lower_bound: Such an attempt is among those of `spent`.
    """

    medians: Mapping[str, float | None]
    resolved: int
    runs: int
    valid_runs: int
    excluded_runs: int
    voided_attempts: int
    transcripts_missing: int
    task_class: str | None
    error_kinds: Mapping[str, int]
    spent: Mapping[str, float | None]
    review: ReviewAggregate | None = None
    lower_bound_runs: int = 0
    spent_is_lower_bound: bool = False

    @property
    def runs_as_failures(self) -> int:
        """Runs when each void, superseded or not, counts as a failed run."""
        return self.runs + self.voided_attempts


Aggregates: TypeAlias = Mapping[str, Mapping[str, ArmAggregate]]
"""By task, then by arm."""

Savings: TypeAlias = Mapping[str, Mapping[str, Mapping[str, float | None]]]
"""By task, arm and field: percent below the baseline."""


@dataclass(slots=True)
class Streaks:
    """Consecutive rows whose ending an outage causes; any other row ends the streak.

    Attributes:
        final: Length of the streak that the last row stands in.
        longest: Length of the longest.
    """

    final: int = 0
    longest: int = 0

    def add(self, row: Row) -> None:
        """Count one more row, in the order in which rows were written."""
        self.final = self.final + 1 if is_systemic(row) else 0
        self.longest = max(self.longest, self.final)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSummary:
    """What a file of agent-lane rows says.

    Attributes:
        aggregates: Per task and arm, both in name order.
        final_streak: Length of the outage streak at the end.
        max_streak: Length of the longest outage streak.
        remarks: What must be known beside the figures.
        planned: Trials of the plan by task and arm; None for bare rows, which have no plan.
        skipped_tasks: Tasks that the plan leaves out because they are expensive.
        exit_not_tried: Tasks of which no control ends its process when it is loaded, for want of a language that can.
    """

    aggregates: Aggregates
    final_streak: int
    max_streak: int
    remarks: Remarks = field(default_factory=Remarks)
    planned: Mapping[str, Mapping[str, int]] | None = None
    skipped_tasks: tuple[str, ...] = ()
    exit_not_tried: tuple[str, ...] = ()

    @property
    def uncounted(self) -> Mapping[str, Mapping[str, int]]:
        """Planned trials without a counting attempt, by task and arm; only where there are any."""
        lacking: dict[str, dict[str, int]] = {}
        for task, arms in (self.planned or {}).items():
            for arm, n_planned in arms.items():
                aggregate = self.aggregates.get(task, {}).get(arm)
                n_valid = 0 if aggregate is None else aggregate.valid_runs
                if n_valid < n_planned:
                    lacking.setdefault(task, {})[arm] = n_planned - n_valid
        return lacking


@dataclass(frozen=True, slots=True)
class CountedRun:
    """The numbers kept of one counting attempt.

    Attributes:
        number: Its attempt's number; 0 for a bare row.
        void: It is no evidence.
        kind: Its error kind, or None.
        resolved: It ended without an error kind and its row says resolved.
        transcript_missing: Its transcript was lost.
        values: What was measured, in the order of `MEDIAN_FIELDS`.
        review: What its review is worth; None where none was judged.
        lower_bound: Its tokens and cost are lower bounds: replies broke off.
    """

    number: int
    void: bool
    kind: str | None
    resolved: bool
    transcript_missing: bool
    values: tuple[float | None, ...]
    review: CountedReview | None = None
    lower_bound: bool = False


@dataclass(slots=True)
class _Cell:
    """One arm on one task while rows still come in."""

    bare: list[CountedRun] = field(default_factory=list["CountedRun"])
    by_key: dict[str, CountedRun] = field(default_factory=dict[str, "CountedRun"])
    voided_attempts: int = 0
    task_class: str | None = None
    spent: list[list[float | None]] = field(default_factory=lambda: [[] for _ in SPENT_FIELDS])
    spent_is_lower_bound: bool = False

    def add(self, run: CountedRun, attempt: Attempt | None) -> None:
        for values, name in zip(self.spent, SPENT_FIELDS, strict=True):
            values.append(run.values[MEDIAN_FIELDS.index(name)])
        self.spent_is_lower_bound |= run.lower_bound
        held = None if attempt is None else self.by_key.get(attempt.key)
        if attempt is None:
            self.bare.append(run)
        elif held is None:
            self.by_key[attempt.key] = run
        else:
            choice = choose(held_number=held.number, held_void=held.void, new=attempt, new_void=run.void)
            counting, superseded = (run, held) if choice is Choice.NEW else (held, run)
            self.by_key[attempt.key] = counting
            self.voided_attempts += superseded.void

    def aggregate(self) -> ArmAggregate:
        runs = [*self.bare, *self.by_key.values()]
        valid = [run for run in runs if not run.void]
        return ArmAggregate(
            medians={name: median(run.values[i] for run in valid) for i, name in enumerate(MEDIAN_FIELDS)},
            resolved=sum(run.resolved for run in runs),
            runs=len(runs),
            valid_runs=len(valid),
            excluded_runs=len(runs) - len(valid),
            voided_attempts=self.voided_attempts,
            transcripts_missing=sum(run.transcript_missing for run in runs),
            task_class=self.task_class,
            error_kinds=dict(sorted(Counter(run.kind for run in runs if run.kind is not None).items())),
            spent={name: total(values) for name, values in zip(SPENT_FIELDS, self.spent, strict=True)},
            review=aggregate_reviews(run.review for run in valid),
            lower_bound_runs=sum(run.lower_bound for run in valid),
            spent_is_lower_bound=self.spent_is_lower_bound,
        )


class BenchFold:
    """Reads agent-lane rows one by one and keeps only the numbers that a report needs."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[str, _Cell]] = {}
        self._streaks = Streaks()
        self._remarks = RemarkFold()
        self._n_rows = 0

    def add(self, row: Row) -> None:
        """Take one row, in the order in which rows were written.

        Raises:
            UsageError: The row names no task or arm, or its key has no attempt beside it.
            IntegrityError: An attempt of a key occurs twice.
        """
        task = required_text(row, "task", index=self._n_rows)
        arm = required_text(row, "arm", index=self._n_rows)
        attempt = attempt_of(row, index=self._n_rows)
        self._n_rows += 1
        self._streaks.add(row)
        self._remarks.add(row, task=task, arm=arm)
        cell = self._cells.setdefault(task, {}).setdefault(arm, _Cell())
        if cell.task_class is None:
            cell.task_class = text(row.get("class"))
        kind = kind_of(row)
        run = CountedRun(
            number=0 if attempt is None else attempt.number,
            void=is_void(row),
            kind=kind,
            resolved=row.get("resolved") is True and kind is None,
            transcript_missing=row.get("transcript_missing") is True,
            values=tuple(measured(row.get(name)) for name in MEDIAN_FIELDS),
            review=counted_review(row),
            lower_bound=flag(row.get("usage_is_lower_bound")) is True,
        )
        cell.add(run, attempt)

    def counted_runs(self, arm: str) -> dict[str, tuple[CountedRun, ...]]:
        """Give an arm's counting attempts by task: bare rows as they came, then the others by their keys."""
        return {
            task: (*cell.bare, *(run for _, run in sorted(cell.by_key.items(), key=itemgetter(0))))
            for task, arms in sorted(self._cells.items())
            if (cell := arms.get(arm)) is not None
        }

    def summary(self) -> BenchSummary:
        """Give what the rows so far say."""
        return BenchSummary(
            aggregates={
                task: {arm: arms[arm].aggregate() for arm in sorted(arms)} for task, arms in sorted(self._cells.items())
            },
            final_streak=self._streaks.final,
            max_streak=self._streaks.longest,
            remarks=self._remarks.remarks(),
        )


def with_plan(
    summary: BenchSummary,
    trials: Iterable[tuple[str, str]],
    skipped: Iterable[str],
    exit_not_tried: Iterable[str] = (),
) -> BenchSummary:
    """The same summary with its plan: an arm that never began has a line too, of no runs. Pure.

    Args:
        summary: What the rows say.
        trials: Task and arm of each planned trial.
        skipped: Tasks that were left out.
        exit_not_tried: Tasks without the control that ends its process when it is loaded.
    """
    planned: dict[str, dict[str, int]] = {}
    for task, arm in trials:
        planned.setdefault(task, {}).setdefault(arm, 0)
        planned[task][arm] += 1
    every = {
        task: {
            arm: summary.aggregates.get(task, {}).get(arm) or _Cell().aggregate()
            for arm in sorted(summary.aggregates.get(task, {}).keys() | planned.get(task, {}).keys())
        }
        for task in sorted(summary.aggregates.keys() | planned.keys())
    }
    return replace(
        summary,
        aggregates=every,
        planned=planned,
        skipped_tasks=tuple(skipped),
        exit_not_tried=tuple(exit_not_tried),
    )


def savings(aggregates: Aggregates, *, baseline: str = BASELINE) -> Savings:
    """Give per task and arm by how many percent its medians lie below the baseline's; nothing where no baseline ran."""
    return {
        task: {
            arm: {name: percent_saved(arms[baseline].medians[name], aggregate.medians[name]) for name in SAVINGS_FIELDS}
            for arm, aggregate in arms.items()
            if baseline in arms and arms[baseline].runs and arm != baseline
        }
        for task, arms in aggregates.items()
    }


def broken_incumbents(aggregates: Aggregates, *, incumbents: Collection[str] = INCUMBENTS) -> list[str]:
    """Name the incumbent arms that ran and resolved nothing in any task, even where every run was void.

    Only a perfect review is resolved. One that can be scored is what a better one is compared with, and not broken.
    """
    resolved: Counter[str] = Counter()
    for arms in aggregates.values():
        for arm, aggregate in arms.items():
            if aggregate.runs:
                resolved[arm] += aggregate.resolved
                if aggregate.review is not None:
                    resolved[arm] += aggregate.error_kinds.get(EndingKind.ORACLE_FAILED, 0)
    return sorted(arm for arm in incumbents if arm in resolved and resolved[arm] == 0)


def first_trip_index(rows: Collection[Row], *, limit: int) -> int | None:
    """Give the index of the row at which a breaker of that limit stops; None when it never does; 0 disables it."""
    streaks = Streaks()
    for index, row in enumerate(rows):
        streaks.add(row)
        if streaks.final == limit > 0:
            return index
    return None
