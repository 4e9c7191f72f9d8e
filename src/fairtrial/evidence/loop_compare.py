"""How subjects of one setting differ, beside how far one subject differs from itself.

Everything here takes the runs of one scenario over one transport on one machine, by subject, and nothing else: a
comparison across unlike settings cannot be written down, because no function ever sees two of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from fairtrial.evidence.loop_runs import LoopRun
from fairtrial.stats.summary import median, spread

__all__ = [
    "BLOCKS_FOR_A_SPREAD",
    "COMPARED_FIELDS",
    "RUNS_FOR_A_TIMING_CLAIM",
    "TIMING_FIELDS",
    "ControlSpread",
    "Difference",
    "compare_subjects",
    "control_spreads",
]

BLOCKS_FOR_A_SPREAD: Final = 5
RUNS_FOR_A_TIMING_CLAIM: Final = 10
NULL_SUFFIX: Final = "(null)"
TIMING_FIELDS: Final = (
    "elapsed_ms",
    "acquire_ms_task",
    "acquire_ms_followup",
    "followup_warm_delta_ms",
    "acquire_ms_cold",
    "acquire_ms_warm",
    "warm_acquire_delta_ms",
    "followup_acquire_delta_ms",
)
COMPARED_FIELDS: Final = (
    *TIMING_FIELDS,
    "tool_call_count",
    "estimated_tokens",
    "estimated_cost_weighted_tokens_with_envelope",
)

BySubject: TypeAlias = Mapping[str, Sequence[LoopRun]]
Pairs: TypeAlias = Sequence[tuple[LoopRun, LoopRun]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSpread:
    """How far the control, one tool measured as two subjects, lies from itself in one field.

    Attributes:
        field: The field, one of `COMPARED_FIELDS`.
        control: The subject; "" without a null control.
        null: The same tool as a second subject; "" likewise.
        n_blocks: Blocks in which both passed.
        largest: Largest |control - null| over those blocks; None with a reason.
        median: Median of the same; None with a reason.
        reason: Why the figures are None, or "".
    """

    field: str
    control: str
    null: str
    n_blocks: int
    largest: float | None
    median: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How one subject differs from the reference in one field, block by block.

    Attributes:
        subject: The subject.
        reference: What it is compared with.
        field: The field, one of `COMPARED_FIELDS`.
        n_blocks: Blocks in which both passed.
        median_difference: Median of subject minus reference over those blocks; None when unmeasured.
        control: How far the control lies from itself in this field.
        claim: What may be said of a timing, as a phrase; "" for a field that is no time.
    """

    subject: str
    reference: str
    field: str
    n_blocks: int
    median_difference: float | None
    control: ControlSpread
    claim: str


def control_spreads(by_subject: BySubject, reference: str, nulls: Sequence[str]) -> Mapping[str, ControlSpread]:
    """Give the control's spread by field, for each field that any run has a figure of.

    Args:
        by_subject: The runs of one setting.
        reference: The subject whose own null control is preferred.
        nulls: Subjects that are null controls.
    """
    control, null = _control_of(by_subject, reference, nulls)
    pairs = _pairs(by_subject[control], by_subject[null]) if control else ()
    fields = [name for name in COMPARED_FIELDS if _any_figure(by_subject, name)]
    return {name: _control_spread(name, control, null, pairs) for name in fields}


def compare_subjects(
    by_subject: BySubject, reference: str, nulls: Sequence[str], spreads: Mapping[str, ControlSpread]
) -> Iterator[Difference]:
    """Compare every subject that is no control with the reference, in each field of `spreads`."""
    for subject in sorted(set(by_subject) - {reference, *nulls}):
        pairs = _pairs(by_subject[subject], by_subject[reference])
        for name, control in spreads.items() if pairs else ():
            figures = [(ours.number(name), theirs.number(name)) for ours, theirs in pairs]
            middle = median(None if a is None or b is None else a - b for a, b in figures)
            yield Difference(
                subject=subject,
                reference=reference,
                field=name,
                n_blocks=len(pairs),
                median_difference=middle,
                control=control,
                claim=_claim(len(pairs), middle, control) if name in TIMING_FIELDS else "",
            )


def _any_figure(by_subject: BySubject, name: str) -> bool:
    """Tell a field that was not measured everywhere from one that the scenario does not have."""
    return any(run.number(name) is not None for runs in by_subject.values() for run in runs)


def _control_of(by_subject: BySubject, reference: str, nulls: Sequence[str]) -> tuple[str, str]:
    """Give the control and its null, the reference's own if there is one; two empty names without any."""
    for null in sorted(nulls, key=lambda name: (name != f"{reference}{NULL_SUFFIX}", name)):
        control = null.removesuffix(NULL_SUFFIX)
        if control != null and control in by_subject:
            return control, null
    return "", ""


def _pairs(first: Sequence[LoopRun], second: Sequence[LoopRun]) -> Pairs:
    """Pair passed runs of the same block; bare rows without blocks are paired by their run."""
    waiting: dict[tuple[str | None, int | None], list[LoopRun]] = {}
    for run in second:
        if run.passed:
            waiting.setdefault((run.block, run.run), []).append(run)
    partners = ((run, waiting.get((run.block, run.run))) for run in first if run.passed)
    return [(run, found.pop(0)) for run, found in partners if found]


def _control_spread(name: str, control: str, null: str, pairs: Pairs) -> ControlSpread:
    """Give the control's spread in one field, or none of its figures and the reason."""
    found = spread((a.number(name), b.number(name)) for a, b in pairs)
    reason = ""
    if not control:
        reason = "no null control"
    elif found.n_pairs < BLOCKS_FOR_A_SPREAD:
        reason = f"too few: {found.n_pairs} of {BLOCKS_FOR_A_SPREAD} blocks"
    elif found.largest is None:
        reason = "unmeasured"
    return ControlSpread(
        field=name,
        control=control,
        null=null,
        n_blocks=found.n_pairs,
        largest=None if reason else found.largest,
        median=None if reason else found.median,
        reason=reason,
    )


def _claim(n_blocks: int, middle: float | None, control: ControlSpread) -> str:
    """Say what may be claimed of a timing difference."""
    if n_blocks < RUNS_FOR_A_TIMING_CLAIM:
        return f"no timing claim: {n_blocks} of {RUNS_FOR_A_TIMING_CLAIM} runs"
    if middle is None:
        return "no timing claim: unmeasured"
    if control.largest is None:
        return f"no timing claim: control: {control.reason}"
    return "beyond the control's spread" if abs(middle) > control.largest else "within the control's spread"
