"""What a tool sweep shows, as one frozen value that a report only has to print.

A section holds the runs of one scenario over one transport on one machine; times are only ever compared inside a
section (`loop_compare`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fairtrial.evidence.loop_compare import ControlSpread, Difference, compare_subjects, control_spreads
from fairtrial.evidence.loop_runs import NUMBER_FIELDS, LoopFold, LoopRun, PlannedRun, RunEnding, Setting
from fairtrial.evidence.publication_matrix import MatrixLine, matrix_lines
from fairtrial.stats.summary import median

__all__ = [
    "Coverage",
    "FailureNote",
    "LoopSummary",
    "PublicationMatrix",
    "Section",
    "SkipNote",
    "SubjectSummary",
    "Truth",
    "VoidNote",
    "summarize_loop",
]

REFERENCE: Final = "git"


class Truth(StrEnum):
    """What the truth check says of some runs."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "FAIL"
    UNMEASURED = "unmeasured"


class Coverage(StrEnum):
    """Whether every planned operation of some runs was measured."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    UNMEASURED = "unmeasured"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSummary:
    """One subject in one section.

    Attributes:
        subject: Its name.
        null_control: It is the control.
        n_runs: Measured runs that count.
        n_passed: Those that did not fail: only their figures enter medians.
        n_skipped: Runs that were skipped, each with a reason.
        n_void: Runs that are no evidence.
        n_planned: Trials of the plan; None for bare rows, which have none.
        n_not_begun: Those of which no attempt has ended.
        voided_attempts: Void attempts that a later one superseded.
        medians: Medians over passed runs by field; None without one or with an unmeasured one.
        peak_memory_bytes: The largest peak over passed runs, or None.
        peak_memory_below_bytes: What it lies below where only that is known, or None.
        network_bytes_reason: Why network bytes are unknown, or "".
        truth: What the truth check says of the measured runs together.
        coverage: Whether they measured every planned operation.
    """

    subject: str
    null_control: bool
    n_runs: int
    n_passed: int
    n_skipped: int
    n_void: int
    n_planned: int | None
    n_not_begun: int
    voided_attempts: int
    medians: Mapping[str, float | None]
    peak_memory_bytes: float | None
    peak_memory_below_bytes: float | None
    network_bytes_reason: str
    truth: Truth
    coverage: Coverage

    @property
    def runs_as_failures(self) -> int:
        """Runs when each void, superseded or not, counts as a failed run."""
        return self.n_runs + self.n_void + self.voided_attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationMatrix:
    """What one subject's publications under fault showed in one setting.

    Attributes:
        subject: Its name.
        null_control: It is the control.
        lines: One a fault case.
    """

    subject: str
    null_control: bool
    lines: tuple[MatrixLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Everything measured in one setting.

    Attributes:
        setting: Scenario, transport, machine.
        subjects: The reference first, then by name, the control last.
        reference: The subject that others are compared with; None when there is only a control.
        control: How far the control lies from itself, by field; a field that no run has a figure of is left out.
        differences: Of each other subject against the reference, in the same fields. None, and no control, where tools
            do not do the same work: under faults it depends on what had to be recovered, with tasks at once on how many
            of them were turned away.
        publications: Of each subject that published under faults, in the order of `subjects`.
    """

    setting: Setting
    subjects: tuple[SubjectSummary, ...]
    reference: str | None
    control: tuple[ControlSpread, ...]
    differences: tuple[Difference, ...]
    publications: tuple[PublicationMatrix, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipNote:
    """Something that was not measured on purpose: a whole run, or one operation of it.

    Attributes:
        setting: Where.
        subject: By whom.
        operation: What.
        reason: Why.
        n_runs: In how many runs.
    """

    setting: Setting
    subject: str
    operation: str
    reason: str
    n_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoidNote:
    """A run that is no evidence."""

    setting: Setting
    subject: str
    run: int | None
    error_kind: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureNote:
    """A run that was measured and failed."""

    setting: Setting
    subject: str
    run: int | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSummary:
    """What a tool sweep shows.

    Attributes:
        n_rows: Rows read.
        token_rules: The versions of the rules by which tokens were estimated, in name order.
        sections: One a setting, in order of scenario, transport and machine.
        runs: Measured runs, in order of setting, run, subject.
        skips: What was not measured on purpose.
        voids: Runs that are no evidence.
        failures: Runs that failed.
        n_planned: Trials of the plan; None for bare rows, which have none.
    """

    n_rows: int
    token_rules: tuple[str, ...]
    sections: tuple[Section, ...]
    runs: tuple[LoopRun, ...]
    skips: tuple[SkipNote, ...]
    voids: tuple[VoidNote, ...]
    failures: tuple[FailureNote, ...]
    n_planned: int | None = None

    @property
    def n_not_begun(self) -> int:
        """Trials of the plan of which no attempt has ended."""
        return sum(subject.n_not_begun for section in self.sections for subject in section.subjects)

    @property
    def n_uncounted(self) -> int | None:
        """Trials of the plan without a counting attempt; None for bare rows, which have no plan."""
        return None if self.n_planned is None else len(self.voids) + self.n_not_begun


def summarize_loop(fold: LoopFold, plan: Sequence[PlannedRun] | None = None) -> LoopSummary:
    """Give the summary of the rows that a fold has read.

    Args:
        fold: The rows.
        plan: The sweep's trials: one without a row has a place in the summary too. None for bare rows.
    """
    found: dict[Setting, list[LoopRun]] = {}
    for run in fold.runs:
        found.setdefault(run.setting, []).append(run)
    not_begun: dict[Setting, list[PlannedRun]] = {}
    for trial in plan or ():
        if not fold.has(trial.key):
            found.setdefault(trial.setting, [])
            not_begun.setdefault(trial.setting, []).append(trial)
    by_setting = {setting: sorted(found[setting], key=_order) for setting in sorted(found)}
    ordered = [run for runs in by_setting.values() for run in runs]
    return LoopSummary(
        n_rows=fold.n_rows,
        token_rules=tuple(sorted(fold.token_rules)),
        sections=tuple(
            _section(setting, runs, None if plan is None else not_begun.get(setting, ()), fold.voided_attempts)
            for setting, runs in by_setting.items()
        ),
        runs=tuple(run for run in ordered if run.ending is RunEnding.MEASURED),
        skips=_skips(ordered),
        voids=tuple(
            VoidNote(
                setting=run.setting,
                subject=run.subject,
                run=run.run,
                error_kind=str(run.error_kind),
                detail=run.explanation,
            )
            for run in ordered
            if run.ending is RunEnding.VOID
        ),
        failures=tuple(
            FailureNote(
                setting=run.setting,
                subject=run.subject,
                run=run.run,
                detail=run.explanation or run.error_kind or "no detail",
            )
            for run in ordered
            if run.failed
        ),
        n_planned=None if plan is None else len(plan),
    )


def _order(run: LoopRun) -> tuple[int, str, int]:
    """Order runs by what they are, not by when they ended."""
    return (-1 if run.run is None else run.run, run.subject, run.attempt)


def _section(
    setting: Setting,
    runs: Sequence[LoopRun],
    not_begun: Sequence[PlannedRun] | None,
    voided: Mapping[tuple[Setting, str], int],
) -> Section:
    by_subject: dict[str, list[LoopRun]] = {}
    for run in runs:
        by_subject.setdefault(run.subject, []).append(run)
    missing = Counter(trial.subject for trial in not_begun or ())
    controls = {run.subject for run in runs if run.null_control}
    controls |= {trial.subject for trial in not_begun or () if trial.null_control}
    nulls = sorted(controls & by_subject.keys())
    candidates = sorted(set(by_subject) - set(nulls))
    reference = REFERENCE if REFERENCE in candidates else next(iter(candidates), None)
    faulted = any(run.cases for run in runs)
    at_once = any(run.parallel is not None for run in runs)
    compared = None if faulted or at_once else reference
    spreads: Mapping[str, ControlSpread] = {} if compared is None else control_spreads(by_subject, compared, nulls)
    order = sorted({*by_subject, *missing}, key=lambda name: (name in controls, name != reference, name))
    return Section(
        setting=setting,
        subjects=tuple(
            _subject(
                name,
                by_subject.get(name, ()),
                null_control=name in controls,
                n_not_begun=None if not_begun is None else missing[name],
                voided_attempts=voided.get((setting, name), 0),
            )
            for name in order
        ),
        reference=reference,
        control=tuple(spreads.values()),
        differences=() if compared is None else tuple(compare_subjects(by_subject, compared, nulls, spreads)),
        publications=tuple(_matrices(by_subject, order, nulls)) if faulted else (),
    )


def _matrices(
    by_subject: Mapping[str, Sequence[LoopRun]], order: Sequence[str], nulls: Sequence[str]
) -> Iterator[PublicationMatrix]:
    for name in order:
        lines = matrix_lines(run.cases for run in by_subject.get(name, ()) if run.ending is RunEnding.MEASURED)
        if lines:
            yield PublicationMatrix(subject=name, null_control=name in nulls, lines=lines)


def _subject(
    name: str, members: Sequence[LoopRun], *, null_control: bool, n_not_begun: int | None, voided_attempts: int
) -> SubjectSummary:
    measured = [run for run in members if run.ending is RunEnding.MEASURED]
    passed = [run for run in measured if run.passed]
    peaks = [run.number("peak_memory_bytes") for run in passed]
    bounds = [
        run.number("peak_memory_below_bytes") if peak is None else peak for run, peak in zip(passed, peaks, strict=True)
    ]
    peak = _largest(peaks)
    return SubjectSummary(
        subject=name,
        null_control=null_control,
        n_runs=len(measured),
        n_passed=len(passed),
        n_skipped=sum(run.ending is RunEnding.SKIPPED for run in members),
        n_void=sum(run.ending is RunEnding.VOID for run in members),
        n_planned=None if n_not_begun is None else len(members) + n_not_begun,
        n_not_begun=n_not_begun or 0,
        voided_attempts=voided_attempts,
        medians={field: median(run.number(field) for run in passed) for field in NUMBER_FIELDS},
        peak_memory_bytes=peak,
        peak_memory_below_bytes=_largest(bounds) if peak is None else None,
        network_bytes_reason=next((run.network_bytes_reason for run in passed if run.network_bytes_reason), ""),
        truth=_truth(run.truth for run in measured),
        coverage=_coverage(run.coverage_complete for run in measured),
    )


def _largest(values: Sequence[float | None]) -> float | None:
    """The largest of what is known of each; one that is not known may be larger."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _truth(answers: Iterable[bool | None]) -> Truth:
    """One false answer fails all; one missing answer leaves the rest unproven."""
    found = set(answers)
    if False in found:
        return Truth.FAIL
    return Truth.PASS if found == {True} else Truth.UNMEASURED


def _coverage(answers: Iterable[bool | None]) -> Coverage:
    found = set(answers)
    if False in found:
        return Coverage.PARTIAL
    return Coverage.COMPLETE if found == {True} else Coverage.UNMEASURED


def _skips(runs: Iterable[LoopRun]) -> tuple[SkipNote, ...]:
    """Count what was left out, by place, operation and reason."""
    found: Counter[tuple[Setting, str, str, str]] = Counter()
    for run in runs:
        if run.ending is RunEnding.SKIPPED:
            found[run.setting, run.subject, "(whole run)", run.explanation] += 1
        for hole in run.holes:
            found[run.setting, run.subject, hole.operation, hole.reason] += 1
    return tuple(
        SkipNote(setting=setting, subject=subject, operation=operation, reason=reason, n_runs=n_runs)
        for (setting, subject, operation, reason), n_runs in sorted(found.items())
    )
