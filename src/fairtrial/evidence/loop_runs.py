"""Reads tool-lane rows one by one and keeps what a report needs of each run.

Step rows are counted and forgotten: the total row holds what they add up to. Kept are one record a run, so memory
grows with runs, not with steps.
"""

import sys
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, cast

from fairtrial.errors import UsageError
from fairtrial.evidence.attempts import Attempt, Choice, attempt_of, choose
from fairtrial.evidence.endings import is_void, kind_of
from fairtrial.evidence.loop import HOLE_RETURNCODE, is_hole, row_failed
from fairtrial.evidence.publication_matrix import CaseFacts, read_cases
from fairtrial.evidence.rows import Row, flag, measured, number, required_text, text, whole

__all__ = [
    "NUMBER_FIELDS",
    "Hole",
    "LoopFold",
    "LoopRun",
    "ParallelFacts",
    "PlannedRun",
    "PublicationFacts",
    "RunEnding",
    "Setting",
]

NUMBER_FIELDS: Final = (
    "elapsed_ms",
    "task_phase_ms",
    "followup_phase_ms",
    "acquire_ms_task",
    "acquire_ms_followup",
    "followup_warm_delta_ms",
    "cold_phase_ms",
    "warm_phase_ms",
    "acquire_ms_cold",
    "acquire_ms_warm",
    "warm_acquire_delta_ms",
    "followup_acquire_delta_ms",
    "tool_call_count",
    "vcs_tool_call_count",
    "harness_command_count",
    "estimated_tokens",
    "estimated_tokens_with_envelope",
    "estimated_cost_weighted_tokens_with_envelope",
    "raw_output_bytes",
    "cpu_user_s",
    "cpu_system_s",
    "peak_memory_bytes",
    "peak_memory_below_bytes",
    "network_bytes",
)
"""Fields of a total row that are kept as numbers; a `*_phase_ms` may stand in `phase_elapsed_ms` instead."""

_SIGNED: Final = frozenset({"followup_warm_delta_ms", "warm_acquire_delta_ms", "followup_acquire_delta_ms"})
_PHASES: Final = {f"{phase}_phase_ms": phase for phase in ("task", "followup", "cold", "warm")}
_TOKEN_RULES: Final = ("token_method", "token_envelope", "token_weights")
_INDEX: Final[Mapping[str, int]] = MappingProxyType({name: index for index, name in enumerate(NUMBER_FIELDS)})
_STEP_KINDS: Final = frozenset({"vcs", "edit", "harness"})
_EXPLANATION_CHARACTERS: Final = 400


class RunEnding(StrEnum):
    """What kind of row ended a run."""

    MEASURED = "measured"
    SKIPPED = "skipped"
    VOID = "void"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Setting:
    """Within which times may be compared: outside it, they are unlike.

    Attributes:
        scenario: The scenario.
        remote_transport: How the remote was reached; "" when the rows do not say.
        host: The machine; "" when the rows do not say.
    """

    scenario: str
    remote_transport: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One trial of a sweep's plan.

    Attributes:
        key: Its identity.
        setting: Where it is to be measured: on the machine that made the plan.
        subject: The subject's name.
        null_control: It is the control.
    """

    key: str
    setting: Setting
    subject: str
    null_control: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """An operation that was deliberately not measured.

    Attributes:
        operation: Its name.
        reason: Why, or "".
    """

    operation: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationFacts:
    """What an interrupted publication showed; each side in its own fields.

    Attributes:
        publication_outcome: What the client said.
        fixture_delivery_state: What the fixture saw of the request.
        mutation_requests_observed: How many publishing requests it saw.
        network_request_bytes_observed: Bytes of their bodies, or None.
        local_head_preserved: The local head is proven to be what it was.
        local_work_preserved: The work is proven to be there and still known as unpublished.
    """

    publication_outcome: str | None
    fixture_delivery_state: str | None
    mutation_requests_observed: int | None
    network_request_bytes_observed: int | None
    local_head_preserved: bool | None
    local_work_preserved: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelFacts:
    """What tasks at once on one repository showed.

    Attributes:
        n_tasks: Tasks.
        n_published: Tasks that were claimed as published.
        n_refused: Tasks that the tool turned away.
        lost_updates: Claimed, and not there.
        work_wall_ms: From the start of all to the last snapshot, or None.
        publish_wall_ms: From the start of all publications to the last one's end, or None.
    """

    n_tasks: int | None
    n_published: int | None
    n_refused: int | None
    lost_updates: int | None
    work_wall_ms: float | None
    publish_wall_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRun:
    """One counting attempt of one subject in one setting.

    Attributes:
        setting: Where it may be compared.
        subject: The subject's name.
        null_control: It is the control: a subject measured a second time under another name.
        run: The run's number, or None.
        block: The block it belongs to, or None.
        position_in_block: Its place in the block's order, counted as the row does, or None.
        attempt: Which execution it was; 0 for a bare row.
        ending: What ended it.
        failed: It was measured and failed.
        error_kind: Why it is void, or failed in a way that has a name; else None.
        explanation: The skip's reason, the void's detail or the failure's words, cut to 400 characters; else "".
        truth: The truth check's answer; None when it was not made.
        coverage_complete: Every planned operation was measured; None when the row does not say.
        network_bytes_reason: Why network bytes are unknown, or "".
        numbers: The figures, in the order of `NUMBER_FIELDS`; no `elapsed_ms` of tasks at once, which have wall times.
        holes: Operations that were deliberately not measured.
        publication: What an interrupted publication showed; None in other scenarios.
        cases: What each publication under fault showed; none in other scenarios.
        parallel: What tasks at once showed; None in other scenarios.
    """

    setting: Setting
    subject: str
    null_control: bool
    run: int | None
    block: str | None
    position_in_block: int | None
    attempt: int
    ending: RunEnding
    failed: bool
    error_kind: str | None
    explanation: str
    truth: bool | None
    coverage_complete: bool | None
    network_bytes_reason: str
    numbers: tuple[float | None, ...]
    holes: tuple[Hole, ...]
    publication: PublicationFacts | None
    cases: tuple[CaseFacts, ...] = ()
    parallel: ParallelFacts | None = None

    def number(self, name: str) -> float | None:
        """Give one of `NUMBER_FIELDS`."""
        return self.numbers[_INDEX[name]]

    @property
    def passed(self) -> bool:
        """It was measured and did not fail: its figures are those of a whole task."""
        return self.ending is RunEnding.MEASURED and not self.failed


class LoopFold:
    """Collects the counting attempts from rows, read one by one.

    Attributes:
        n_rows: Rows read.
        voided_attempts: Superseded void attempts, by setting and subject.
        token_rules: The versions of the rules by which totals estimated tokens, as found.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.voided_attempts: Counter[tuple[Setting, str]] = Counter()
        self.token_rules: set[str] = set()
        self._runs: dict[str | int, LoopRun] = {}
        self._pending_holes: dict[tuple[object, ...], list[Hole]] = {}
        self._settings: dict[tuple[str, str, str], Setting] = {}
        self._holes: dict[tuple[Hole, ...], tuple[Hole, ...]] = {}

    @property
    def runs(self) -> Collection[LoopRun]:
        """The counting attempts so far, in the order in which their keys first ended."""
        return self._runs.values()

    def has(self, key: str) -> bool:
        """Say whether an attempt of that key has ended."""
        return key in self._runs

    def add(self, row: Row) -> None:
        """Take one row, in the order in which rows were written: a run's total row comes after its other rows.

        Raises:
            UsageError: The row is none of the tool lane.
            IntegrityError: An attempt of a key ends twice.
        """
        self.n_rows += 1
        step_kind = row.get("step_kind")
        if isinstance(step_kind, str) and step_kind in _STEP_KINDS and row.get("returncode") != HOLE_RETURNCODE:
            return  # nearly every row of a long file takes this way: nothing more is looked at
        ending = self._ending(row)
        if ending is None:
            hole = Hole(operation=text(row.get("operation")) or "", reason=_cut(row.get("skip_reason")))
            self._pending_holes.setdefault(_identity(row), []).append(hole)
            return
        run, attempt = self._run(row, ending), attempt_of(row, index=self.n_rows - 1)
        held = None if attempt is None else self._runs.get(attempt.key)
        if attempt is None or held is None:
            self._runs[self.n_rows if attempt is None else attempt.key] = run
        else:
            self._runs[attempt.key] = self._counting(held, run, attempt)

    def _counting(self, held: LoopRun, new: LoopRun, attempt: Attempt) -> LoopRun:
        """Give the attempt that counts and book the other one where it is void."""
        held_void, new_void = held.ending is RunEnding.VOID, new.ending is RunEnding.VOID
        choice = choose(held_number=held.attempt, held_void=held_void, new=attempt, new_void=new_void)
        counting, superseded = (new, held) if choice is Choice.NEW else (held, new)
        if superseded.ending is RunEnding.VOID:
            self.voided_attempts[superseded.setting, superseded.subject] += 1
        return counting

    def _ending(self, row: Row) -> RunEnding | None:
        """Say what the row ends, or None for a hole inside a run.

        Raises:
            UsageError: It is neither a step, a hole, a skip, a void nor a total.
        """
        operation = text(row.get("operation")) or ""
        if is_void(row):
            return RunEnding.VOID
        if is_hole(row):
            return RunEnding.SKIPPED if operation.endswith(".skipped") else None
        if operation.endswith(".total"):
            return RunEnding.MEASURED
        message = (
            f"row {self.n_rows}: neither a step, a skip, a void nor a total: step_kind {row.get('step_kind')!r:.40},"
            f" operation {operation!r:.60}; is this a file of tool-lane rows?"
        )
        raise UsageError(message)

    def _run(self, row: Row, ending: RunEnding) -> LoopRun:
        index = self.n_rows - 1
        explanation = (
            row.get("skip_reason") if ending is RunEnding.SKIPPED else row.get("error_detail") or row.get("stderr")
        )
        holes = tuple(self._pending_holes.pop(_identity(row), ())) if self._pending_holes else ()
        kind = kind_of(row)
        self.token_rules.update(rule for name in _TOKEN_RULES if (rule := text(row.get(name))))
        return LoopRun(
            setting=self._setting(row, index),
            subject=sys.intern(required_text(row, "subject", index=index)),
            null_control=row.get("null_control") is True,
            run=whole(row.get("run")),
            block=_block(row),
            position_in_block=whole(row.get("position_in_block")),
            attempt=whole(row.get("attempt")) or 0,
            ending=ending,
            failed=ending is RunEnding.MEASURED and (row_failed(row) or kind is not None),
            error_kind=kind,
            explanation=_cut(explanation),
            truth=flag(row.get("oracle_payload_on_remote_branch")),
            coverage_complete=flag(row.get("coverage_complete")),
            network_bytes_reason=_cut(row.get("network_bytes_reason")),
            numbers=_numbers(row),
            holes=self._holes.setdefault(holes, holes),
            publication=_publication(row),
            cases=read_cases(row),
            parallel=_parallel(row),
        )

    def _setting(self, row: Row, index: int) -> Setting:
        """Give one and the same value for one setting: there are few settings and many runs."""
        scenario = required_text(row, "scenario", index=index)
        transport, host = text(row.get("remote_transport")) or "", text(row.get("host")) or ""
        return self._settings.setdefault(
            (scenario, transport, host), Setting(scenario=scenario, remote_transport=transport, host=host)
        )


def _identity(row: Row) -> tuple[object, ...]:
    """Tell the rows of one attempt from those of another."""
    words = ("key", "subject", "scenario", "remote_transport", "block")
    return (*(text(row.get(name)) for name in words), whole(row.get("attempt")), whole(row.get("run")))


def _block(row: Row) -> str | None:
    """Give the block's name; a number names it as well.

    What a resumed sweep ran later is a block of its own: it did not run back to back with the rest, so it pairs with
    nothing of it.
    """
    value = row.get("block")
    known = whole(value)
    name = text(value) if known is None else str(known)
    later = whole(row.get("sweep_pass"))
    return name if name is None or not later else f"{name} (pass {later})"


def _numbers(row: Row) -> tuple[float | None, ...]:
    """Read the figures; a phase's time may stand under its own name or among the phases."""
    values = {name: number(row.get(name)) if name in _SIGNED else measured(row.get(name)) for name in NUMBER_FIELDS}
    phases = row.get("phase_elapsed_ms")
    if isinstance(phases, dict):
        for name, phase in _PHASES.items():
            if name not in row:
                values[name] = measured(cast("Row", phases).get(phase))
    if "lost_updates" in row:  # older rows hold the sum of commands that overlap: no time that anybody waited
        values["elapsed_ms"] = None
    return tuple(values.values())


def _publication(row: Row) -> PublicationFacts | None:
    if "fixture_delivery_state" not in row:
        return None
    return PublicationFacts(
        publication_outcome=text(row.get("publication_outcome")),
        fixture_delivery_state=text(row.get("fixture_delivery_state")),
        mutation_requests_observed=whole(row.get("mutation_requests_observed")),
        network_request_bytes_observed=whole(row.get("network_request_bytes_observed")),
        local_head_preserved=flag(row.get("local_head_preserved")),
        local_work_preserved=flag(row.get("local_work_preserved")),
    )


def _parallel(row: Row) -> ParallelFacts | None:
    if "lost_updates" not in row:
        return None
    refused = row.get("tasks_refused")
    return ParallelFacts(
        n_tasks=whole(row.get("n_tasks")),
        n_published=whole(row.get("tasks_published")),
        n_refused=len(cast("Row", refused)) if isinstance(refused, dict) else None,
        lost_updates=whole(row.get("lost_updates")),
        work_wall_ms=measured(row.get("parallel_work_wall_ms")),
        publish_wall_ms=measured(row.get("parallel_publish_wall_ms")),
    )


def _cut(value: object) -> str:
    """Keep the beginning of a text, once however many runs say the same."""
    return sys.intern((text(value) or "")[:_EXPLANATION_CHARACTERS])
