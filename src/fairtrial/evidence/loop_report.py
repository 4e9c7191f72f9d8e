"""What a tool sweep shows, as one frozen value that a report only has to print.

Times are compared inside one section, which holds the runs of one scenario over one transport on one machine and
nothing else: a comparison across unlike settings cannot be written down, because no function here ever sees two of
them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fairtrial.evidence.loop_runs import NUMBER_FIELDS, LoopFold, LoopRun, RunEnding, Setting
from fairtrial.stats.summary import Spread, median, spread

__all__ = [
    "BLOCKS_FOR_A_SPREAD",
    "COMPARED_FIELDS",
    "RUNS_FOR_A_TIMING_CLAIM",
    "Coverage",
    "Difference",
    "FailureNote",
    "LoopSummary",
    "Section",
    "SkipNote",
    "SubjectSummary",
    "Truth",
    "VoidNote",
    "summarize_loop",
]

BLOCKS_FOR_A_SPREAD: Final = 5
RUNS_FOR_A_TIMING_CLAIM: Final = 10
REFERENCE: Final = "git"
NULL_SUFFIX: Final = "(null)"
TIMING_FIELDS: Final = ("elapsed_ms", "acquire_ms_task", "acquire_ms_followup", "followup_warm_delta_ms")
COMPARED_FIELDS: Final = (
    *TIMING_FIELDS,
    "tool_call_count",
    "estimated_tokens",
    "estimated_cost_weighted_tokens_with_envelope",
)


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
        voided_attempts: Void attempts that a later one superseded.
        medians: Medians over passed runs by field; None without one or with an unmeasured one.
        peak_memory_bytes: The largest peak over passed runs, or None.
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
    voided_attempts: int
    medians: Mapping[str, float | None]
    peak_memory_bytes: float | None
    network_bytes_reason: str
    truth: Truth
    coverage: Coverage

    @property
    def runs_as_failures(self) -> int:
        """Runs when each void, superseded or not, counts as a failed run."""
        return self.n_runs + self.n_void + self.voided_attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How one subject differs from the section's reference in one field, block by block.

    Attributes:
        subject: The subject.
        reference: What it is compared with.
        field: The field compared, one of `COMPARED_FIELDS`.
        n_blocks: Blocks in which both passed.
        median_difference: Median of subject minus reference over those blocks; None when unmeasured.
        control: |control - control(null)| over blocks in which both passed; its figures are None below five blocks.
        control_reason: Why the control's figures are None, or "".
        claim: What may be said of a timing, as a phrase; "" for a field that is no time.
    """

    subject: str
    reference: str
    field: str
    n_blocks: int
    median_difference: float | None
    control: Spread
    control_reason: str
    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Everything measured in one setting.

    Attributes:
        setting: Scenario, transport, machine.
        subjects: The reference first, then by name, the control last.
        reference: The subject that others are compared with; None when there is only a control.
        differences: Of each other subject against it, in `COMPARED_FIELDS` order.
    """

    setting: Setting
    subjects: tuple[SubjectSummary, ...]
    reference: str | None
    differences: tuple[Difference, ...]


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
    """

    n_rows: int
    token_rules: tuple[str, ...]
    sections: tuple[Section, ...]
    runs: tuple[LoopRun, ...]
    skips: tuple[SkipNote, ...]
    voids: tuple[VoidNote, ...]
    failures: tuple[FailureNote, ...]


def summarize_loop(fold: LoopFold) -> LoopSummary:
    """Give the summary of the rows that a fold has read."""
    found: dict[Setting, list[LoopRun]] = {}
    for run in fold.runs:
        found.setdefault(run.setting, []).append(run)
    by_setting = {setting: sorted(found[setting], key=_order) for setting in sorted(found)}
    ordered = [run for runs in by_setting.values() for run in runs]
    return LoopSummary(
        n_rows=fold.n_rows,
        token_rules=tuple(sorted(fold.token_rules)),
        sections=tuple(_section(setting, runs, fold.voided_attempts) for setting, runs in by_setting.items()),
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
    )


def _order(run: LoopRun) -> tuple[int, str, int]:
    """Order runs by what they are, not by when they ended."""
    return (-1 if run.run is None else run.run, run.subject, run.attempt)


def _section(setting: Setting, runs: Sequence[LoopRun], voided: Mapping[tuple[Setting, str], int]) -> Section:
    by_subject: dict[str, list[LoopRun]] = {}
    for run in runs:
        by_subject.setdefault(run.subject, []).append(run)
    controls = {name for name, members in by_subject.items() if any(run.null_control for run in members)}
    candidates = sorted(name for name in by_subject if name not in controls)
    reference = REFERENCE if REFERENCE in candidates else next(iter(candidates), None)
    order = sorted(by_subject, key=lambda name: (name in controls, name != reference, name))
    return Section(
        setting=setting,
        subjects=tuple(
            _subject(
                name, by_subject[name], null_control=name in controls, voided_attempts=voided.get((setting, name), 0)
            )
            for name in order
        ),
        reference=reference,
        differences=() if reference is None else tuple(_differences(by_subject, reference, controls)),
    )


def _subject(name: str, members: Sequence[LoopRun], *, null_control: bool, voided_attempts: int) -> SubjectSummary:
    measured = [run for run in members if run.ending is RunEnding.MEASURED]
    passed = [run for run in measured if run.passed]
    peaks = [run.number("peak_memory_bytes") for run in passed]
    known_peaks = [peak for peak in peaks if peak is not None]
    return SubjectSummary(
        subject=name,
        null_control=null_control,
        n_runs=len(measured),
        n_passed=len(passed),
        n_skipped=sum(run.ending is RunEnding.SKIPPED for run in members),
        n_void=sum(run.ending is RunEnding.VOID for run in members),
        voided_attempts=voided_attempts,
        medians={field: median(run.number(field) for run in passed) for field in NUMBER_FIELDS},
        peak_memory_bytes=max(known_peaks) if known_peaks and len(known_peaks) == len(peaks) else None,
        network_bytes_reason=next((run.network_bytes_reason for run in passed if run.network_bytes_reason), ""),
        truth=_truth(run.truth for run in measured),
        coverage=_coverage(run.coverage_complete for run in measured),
    )


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


def _differences(
    by_subject: Mapping[str, Sequence[LoopRun]], reference: str, controls: Iterable[str]
) -> Iterable[Difference]:
    """Compare every subject of one section with its reference."""
    control_pairs, no_control = _control_pairs(by_subject, reference, sorted(controls))
    for subject in sorted(by_subject):
        pairs = _pairs(by_subject[subject], by_subject[reference])
        if subject == reference or subject in controls or not pairs:
            continue
        for field in COMPARED_FIELDS:
            differences = [
                None if a is None or b is None else a - b
                for a, b in ((x.number(field), y.number(field)) for x, y in pairs)
            ]
            middle = median(differences)
            control, reason = _control_spread(control_pairs, field, no_control)
            yield Difference(
                subject=subject,
                reference=reference,
                field=field,
                n_blocks=len(pairs),
                median_difference=middle,
                control=control,
                control_reason=reason,
                claim=_claim(len(pairs), middle, control, reason) if field in TIMING_FIELDS else "",
            )


def _control_pairs(
    by_subject: Mapping[str, Sequence[LoopRun]], reference: str, controls: Sequence[str]
) -> tuple[Sequence[tuple[LoopRun, LoopRun]], str]:
    """Pair the control with its null, the reference's own if there is one; or say why there is none."""
    wanted = f"{reference}{NULL_SUFFIX}"
    for null in sorted(controls, key=lambda name: name != wanted):
        base = null.removesuffix(NULL_SUFFIX)
        if base != null and base in by_subject:
            return _pairs(by_subject[base], by_subject[null]), ""
    return (), "no null control"


def _pairs(first: Sequence[LoopRun], second: Sequence[LoopRun]) -> Sequence[tuple[LoopRun, LoopRun]]:
    """Pair passed runs of the same block; bare rows without blocks are paired by their run."""
    others: dict[tuple[str | None, int | None], list[LoopRun]] = {}
    for run in second:
        if run.passed:
            others.setdefault((run.block, run.run), []).append(run)
    partners = ((run, others.get((run.block, run.run))) for run in first if run.passed)
    return [(run, waiting.pop(0)) for run, waiting in partners if waiting]


def _control_spread(pairs: Sequence[tuple[LoopRun, LoopRun]], field: str, no_control: str) -> tuple[Spread, str]:
    """Give the control's spread in one field, or none of its figures and the reason."""
    found = spread((a.number(field), b.number(field)) for a, b in pairs)
    reason = no_control
    if not reason and found.n_pairs < BLOCKS_FOR_A_SPREAD:
        reason = f"too few: {found.n_pairs} of {BLOCKS_FOR_A_SPREAD} blocks"
    if not reason and found.largest is None:
        reason = "unmeasured"
    return (Spread(n_pairs=found.n_pairs, largest=None, median=None), reason) if reason else (found, "")


def _claim(n_blocks: int, middle: float | None, control: Spread, control_reason: str) -> str:
    """Say what may be claimed of a timing difference."""
    if n_blocks < RUNS_FOR_A_TIMING_CLAIM:
        return f"no timing claim: {n_blocks} of {RUNS_FOR_A_TIMING_CLAIM} runs"
    if middle is None:
        return "no timing claim: unmeasured"
    if control.largest is None:
        return f"no timing claim: control {control_reason}"
    return "beyond the control's spread" if abs(middle) > control.largest else "within the control's spread"


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
