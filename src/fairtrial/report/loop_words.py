"""Words and cells that the tables of a tool sweep share."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from fairtrial.evidence.loop_compare import ControlSpread
from fairtrial.evidence.loop_report import Section, SubjectSummary, Truth
from fairtrial.evidence.loop_runs import LoopRun, Setting
from fairtrial.report.text import figure

__all__ = [
    "MEASURES",
    "NO_TIMING",
    "OWN_CASES",
    "REASON_CHARACTERS",
    "WEIGHTED",
    "any_of",
    "first_acquire_ms",
    "peak_bytes",
    "place",
    "second_acquire_ms",
    "spread_cell",
    "truth_word",
    "warm_delta_ms",
    "warm_delta_of",
    "was_played",
    "wires_of",
]

REASON_CHARACTERS: Final = 70
NO_TIMING: Final = "no timing"
OWN_CASES: Final = (
    "Under faults each subject plays the cases that it can meet, which are not the same for all: its totals are no"
    " comparison; the matrices are."
)
WEIGHTED: Final = "estimated_cost_weighted_tokens_with_envelope"
MEASURES: Final = {
    "elapsed_ms": "wall ms",
    "acquire_ms_task": "acquire ms, task",
    "acquire_ms_followup": "acquire ms, followup",
    "followup_warm_delta_ms": "warm delta ms",
    "acquire_ms_cold": "acquire ms, cold",
    "acquire_ms_warm": "acquire ms, warm",
    "warm_acquire_delta_ms": "warm delta ms",
    "followup_acquire_delta_ms": "warm delta ms",
    "tool_call_count": "calls",
    "estimated_tokens": "tokens",
    WEIGHTED: "weighted tokens",
}

DELTAS: Final = ("followup_warm_delta_ms", "warm_acquire_delta_ms", "followup_acquire_delta_ms")
"""The second acquire less the first, under the name that the scenario's phases give it."""

Part = TypeVar("Part", Section, LoopRun)


def wires_of(parts: Iterable[Part], setting_of: Callable[[Part], Setting]) -> Iterator[tuple[str, list[Part]]]:
    """Part what was measured by transport and machine, whose times must not stand in one table; each with its words."""
    found: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        setting = setting_of(part)
        found.setdefault((setting.remote_transport, setting.host), []).append(part)
    for transport, host in sorted(found):
        yield _wire(transport, host), found[transport, host]


def _wire(transport: str, host: str) -> str:
    """Say where, without the scenario."""
    return f"over {transport or 'an unnamed transport'}" + (f" on {host}" if host else "")


def place(setting: Setting) -> str:
    """Say where, with the scenario."""
    return f"{setting.scenario} {_wire(setting.remote_transport, setting.host)}"


def was_played(section: Section) -> bool:
    """Say whether anything was tried; what was left out on purpose stands in a table of its own, with why."""
    return any(subject.runs_as_failures for subject in section.subjects)


def truth_word(run: LoopRun) -> str:
    """Say what the truth check said."""
    return Truth.UNMEASURED if run.truth is None else Truth.PASS if run.truth else Truth.FAIL


def any_of(figures: Mapping[str, float | None], *names: str) -> float | None:
    """Give the figure under whichever name the scenario's phases have."""
    return next((value for name in names if (value := figures[name]) is not None), None)


def first_acquire_ms(subject: SubjectSummary) -> float | None:
    """Give the median of the first phase's acquire."""
    return any_of(subject.medians, "acquire_ms_task", "acquire_ms_cold")


def second_acquire_ms(subject: SubjectSummary) -> float | None:
    """Give the median of the second phase's acquire."""
    return any_of(subject.medians, "acquire_ms_followup", "acquire_ms_warm")


def peak_bytes(subject: SubjectSummary) -> str:
    """Print the largest peak, or what it lies below where only that is known."""
    if subject.peak_memory_bytes is None and subject.peak_memory_below_bytes is not None:
        return f"below {figure(subject.peak_memory_below_bytes)}"
    return figure(subject.peak_memory_bytes)


def warm_delta_ms(subject: SubjectSummary) -> float | None:
    """Give the median of what the second acquire cost more or less than the first."""
    return any_of(subject.medians, *DELTAS)


def warm_delta_of(run: LoopRun) -> float | None:
    """Give the same of one run."""
    return any_of({name: run.number(name) for name in DELTAS}, *DELTAS)


def spread_cell(control: ControlSpread) -> str:
    """Say how far the control lies from itself, or why that is not known."""
    return control.reason or f"{figure(control.largest, 1)}, {figure(control.median, 1)}"
