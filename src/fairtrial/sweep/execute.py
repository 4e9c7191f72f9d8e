"""A sweep from first intent to last row: who runs what, what is written when, what a death in between means."""

import json
import logging
import os
import selectors
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar, cast

from fairtrial.errors import FairtrialError, HostError
from fairtrial.evidence.bench import Streaks
from fairtrial.evidence.endings import is_void
from fairtrial.host.clock import rfc3339, utc_now
from fairtrial.host.files import remove_tree
from fairtrial.host.janitor import SWEEP_VARIABLE, kill_strays_of
from fairtrial.host.signals import StopRequest
from fairtrial.model.trial import AnySpec, AttemptSpec
from fairtrial.protocols import Engine, Worker
from fairtrial.store.attempts import (
    INTENT_SCHEMA,
    OUTCOME_SCHEMA,
    Outcome,
    describe_artifacts,
    read_outcome,
    write_intent,
    write_outcome,
)
from fairtrial.store.journal import Journal
from fairtrial.store.layout import INTENT, Results
from fairtrial.store.reserve import is_low
from fairtrial.sweep.worker import SPEC

__all__ = [
    "Due",
    "Event",
    "Hold",
    "Lane",
    "Pass",
    "Planned",
    "PlannedT",
    "drive",
    "due_attempts",
    "never_held",
    "worker_environment",
]

LOG: Final = logging.getLogger(__name__)
WORKER_GRACE_S: Final = 10.0
DEATHS_IN_A_ROW: Final = 3
HOLD_S: Final = 1.0
"""How often a lane that held a trial back is asked again."""
MAX_SLEEP_S: Final = 3600.0
"""A trial of several sessions may last longer than a selector can count."""


class Planned(Protocol):
    """One trial of a plan, of either lane."""

    @property
    def plan_index(self) -> int:
        """0-based place in the plan."""
        ...

    @property
    def key(self) -> str:
        """Its identity."""
        ...

    @property
    def block(self) -> str:
        """What runs back to back with it."""
        ...


PlannedT = TypeVar("PlannedT", bound=Planned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due(Generic[PlannedT]):
    """One attempt that this pass must make."""

    trial: PlannedT
    attempt: int


class Hold(Enum):
    """Whether another trial may begin."""

    BEGIN = "begin"
    WAIT = "wait"  # not now: ask again
    GIVE_UP = "give-up"  # not in this pass any more


def never_held(_n_running: int) -> Hold:
    """Nothing can keep a trial from beginning."""
    return Hold.BEGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane(Generic[PlannedT]):
    """What differs between the lanes while a sweep runs.

    Attributes:
        complete: Adds the lane's part to what every attempt is told.
        void_row: The row of an attempt that its worker did not end: kind and detail of the ending. Nobody writes in the
            attempt's directory any more when it returns.
        trial_limit_s: Seconds after which a worker that does not answer is given up.
        outage_streak: Endings in a row, such as an outage causes, after which no new trial is begun; 0 for never.
        hold: Asked before each trial with the number of those that run; raises `HostError` when none can be begun any
            more.
    """

    complete: Callable[[AttemptSpec, PlannedT], AnySpec]
    void_row: Callable[[AnySpec, str, str], Mapping[str, object]]
    trial_limit_s: float
    outage_streak: int = 0
    hold: Callable[[int], Hold] = never_held


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Progress, for whoever watches.

    Attributes:
        n_done: Attempts of this pass that have ended.
        n_due: Attempts of this pass.
        total: The total row of the attempt that just ended.
    """

    n_done: int
    n_due: int
    total: Mapping[str, object]


@dataclass(slots=True, kw_only=True)
class Pass(Generic[PlannedT]):
    """One execution of a sweep: the first, or a resumption.

    Attributes:
        lane: What differs between the lanes.
        results: The results directory.
        journal: Its journal, open.
        sweep: The sweep's id.
        number: 0 for the first pass.
        scratch: The sweep's scratch directory.
        metadata: Fields that every row carries.
        engine: What starts workers.
        n_workers: How many.
        passed_env: Names of the caller's variables that workers are given.
        watch: Called after every attempt.
        stop: The user's request to stop.
        given_up: The lane has said that no trial begins in this pass any more.
        is_held: The lane has said that no trial begins just now.
        shortage: The disk has no room for another trial; raised when those that run have ended.
    """

    lane: Lane[PlannedT]
    results: Results
    journal: Journal
    sweep: str
    number: int
    scratch: Path
    metadata: Mapping[str, object]
    engine: Engine
    n_workers: int
    passed_env: tuple[str, ...]
    watch: Callable[[Event], None]
    stop: StopRequest
    n_done: int = 0
    n_due: int = 0
    deaths: int = 0
    given_up: bool = False
    is_held: bool = False
    shortage: HostError | None = None
    streaks: Streaks = field(default_factory=Streaks)

    @property
    def is_ending(self) -> bool:
        """No new trial is begun in this pass."""
        return self.stop.signal_number is not None or self.tripped or self.given_up or self.shortage is not None

    @property
    def tripped(self) -> bool:
        """So many endings in a row look like an outage that no new trial is begun, however those that run end."""
        return 0 < self.lane.outage_streak <= self.streaks.longest

    def spec(self, due: Due[PlannedT]) -> AnySpec:
        """What a worker is told of an attempt."""
        shared = AttemptSpec(
            sweep=self.sweep,
            key=due.trial.key,
            attempt=due.attempt,
            plan_index=due.trial.plan_index,
            sweep_pass=self.number,
            results=str(self.results.root),
            scratch=str(self.scratch),
            metadata=self.metadata,
        )
        return self.lane.complete(shared, due.trial)

    def adopt(self, due: Due[PlannedT], outcome: Outcome) -> None:
        """Append the rows of an outcome that is on disk."""
        self.journal.append(outcome.rows, key=due.trial.key, attempt=due.attempt, plan_index=due.trial.plan_index)
        self.n_done += 1
        self.streaks.add(outcome.rows[-1])
        self.watch(Event(n_done=self.n_done, n_due=self.n_due, total=outcome.rows[-1]))

    def close_attempt(self, due: Due[PlannedT], kind: str, detail: str) -> None:
        """End an attempt that its worker did not end: adopt the outcome if there is one, else write a void one."""
        outcome = read_outcome(self.results, due.trial.key, due.attempt)
        if outcome is None:
            row = self.lane.void_row(self.spec(due), kind, detail)
            identity = {"sweep": self.sweep, "key": due.trial.key, "attempt": due.attempt}
            directory = self.results.attempt_dir(due.trial.key, due.attempt)
            now = rfc3339(utc_now())
            if not (directory / INTENT).exists():  # its worker died before it could begin
                if directory.is_dir():
                    remove_tree(directory)
                numbers = {"plan_index": due.trial.plan_index, "sweep_pass": self.number}
                write_intent(self.results, {"schema": INTENT_SCHEMA, **identity, **numbers, "begun_utc": now})
            ending = {"artifacts": describe_artifacts(directory), "rows": [row], "ended_utc": now}
            write_outcome(self.results, {"schema": OUTCOME_SCHEMA, **identity, **ending})
            outcome = read_outcome(self.results, due.trial.key, due.attempt)
        if outcome is None:
            raise HostError(
                f"{self.results.root}: the outcome that was just written cannot be read back; check the disk"
            )
        self.adopt(due, outcome)


def due_attempts(plan: Sequence[PlannedT], finals: Sequence[Mapping[str, object]]) -> tuple[Due[PlannedT], ...]:
    """What is still to be done: one attempt for every key without a counting one; pure.

    Args:
        plan: The sweep's trials.
        finals: The final row of every recorded attempt.
    """
    counted = {row["key"] for row in finals if not is_void(row)}
    last: dict[object, int] = {}
    for row in finals:
        number = row["attempt"]
        if isinstance(number, int):
            last[row["key"]] = max(number, last.get(row["key"], 0))
    return tuple(Due(trial=trial, attempt=last.get(trial.key, 0) + 1) for trial in plan if trial.key not in counted)


@dataclass(slots=True)
class _Seat(Generic[PlannedT]):
    """One worker and what it has been given."""

    worker: Worker
    block: deque[Due[PlannedT]]
    running: Due[PlannedT] | None = None
    since_s: float = 0.0


def drive(sweep: Pass[PlannedT], due: Sequence[Due[PlannedT]]) -> None:
    """Run every due attempt; a worker runs one block from end to end.

    Raises:
        HostError: Workers keep dying, or the disk is full; everything finished until then is recorded. Where there is
            merely no room for another trial, those that run have ended.
    """
    sweep.n_due = len(due)
    blocks = _blocks(due)
    if not blocks:
        return
    argv = (sys.executable, "-m", "fairtrial", "worker")
    n_workers = min(sweep.n_workers, len(blocks))
    seats: list[_Seat[PlannedT]] = [
        _Seat(worker, deque())
        for worker in sweep.engine.start(argv, n_workers, worker_environment(sweep.sweep, sweep.passed_env))
    ]
    try:
        while _feed(sweep, seats, blocks):
            _wait(sweep, seats)
            for seat in seats:
                _collect(sweep, seat, argv)
    finally:
        _dismiss(sweep, seats)
    if sweep.shortage is not None:
        raise sweep.shortage


def worker_environment(sweep: str, passed: Sequence[str]) -> dict[str, str]:
    """A worker's environment: built, but for what the interpreter needs to find the same code and what is passed."""
    kept = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "COVERAGE_PROCESS_START", *passed)
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "LC_ALL": "C.UTF-8",
        "HOME": "/nonexistent",
        SWEEP_VARIABLE: sweep,
    }


def _blocks(due: Sequence[Due[PlannedT]]) -> deque[deque[Due[PlannedT]]]:
    blocks: dict[str, deque[Due[PlannedT]]] = {}
    for each in due:
        blocks.setdefault(each.trial.block, deque()).append(each)
    return deque(blocks.values())


def _feed(sweep: Pass[PlannedT], seats: Sequence[_Seat[PlannedT]], blocks: deque[deque[Due[PlannedT]]]) -> bool:
    """Give every idle worker its next attempt; False when nothing runs and nothing is left to wait for."""
    held = False
    for seat in seats:
        if seat.running is not None or sweep.is_ending:
            continue
        if not seat.block and blocks:
            seat.block = blocks.popleft()
        if not seat.block:
            continue
        if (shortage := _find_shortage(sweep)) is not None:
            sweep.shortage = shortage
            continue
        match sweep.lane.hold(sum(each.running is not None for each in seats)):
            case Hold.BEGIN:
                pass
            case Hold.WAIT:
                held = True
                continue
            case Hold.GIVE_UP:
                sweep.given_up = True
                continue
        seat.running = seat.block.popleft()
        seat.since_s = time.monotonic()
        seat.worker.send(SPEC.dump_json(sweep.spec(seat.running)) + b"\n")
    sweep.is_held = held and not sweep.is_ending
    return sweep.is_held or any(seat.running is not None for seat in seats)


def _find_shortage(sweep: Pass[PlannedT]) -> HostError | None:
    """Say which disk has no room for another trial; on a full one a tool would fail through no fault of its own."""
    little = "too little space is left on its disk for another trial"
    if is_low(sweep.results.root):
        return HostError(f"{sweep.results.root}: {little}; free some, then resume")
    if is_low(sweep.scratch):
        return HostError(
            f"scratch directory {sweep.scratch}: {little}; free some, then resume, or with another --scratch"
        )
    return None


def _wait(sweep: Pass[PlannedT], seats: Sequence[_Seat[PlannedT]]) -> None:
    """Sleep until a worker answers or dies, the user stops the sweep, a trial is overdue, or a hold may be over."""
    now_s = time.monotonic()
    running = [seat for seat in seats if seat.running is not None]
    waits_s = [seat.since_s + sweep.lane.trial_limit_s - now_s for seat in running]
    timeout_s = max(0.0, min([*waits_s, HOLD_S] if sweep.is_held else waits_s))
    with selectors.DefaultSelector() as selector:
        selector.register(sweep.stop, selectors.EVENT_READ)
        for seat in running:
            selector.register(seat.worker.fileno(), selectors.EVENT_READ)
        selector.select(min(timeout_s, MAX_SLEEP_S))


def _collect(sweep: Pass[PlannedT], seat: _Seat[PlannedT], argv: Sequence[str]) -> None:
    """Record what a worker has ended; bury it when it died or is overdue, and seat another."""
    due = seat.running
    if due is None:
        return
    if sweep.stop.signal_number is not None:
        seat.worker.end(WORKER_GRACE_S)
        seat.running = None
        seat.block.clear()
        sweep.close_attempt(due, "cancelled", f"stopped by signal {sweep.stop.signal_number}")
        return
    lines = seat.worker.receive()
    overdue = time.monotonic() - seat.since_s >= sweep.lane.trial_limit_s
    if lines is None or (overdue and not lines):
        status = seat.worker.end(0)
        cause = (
            f"no answer within {sweep.lane.trial_limit_s:.0f} s" if overdue else f"the worker died (status {status})"
        )
        seat.running = None
        sweep.deaths += 1
        if sweep.n_workers == 1:  # where namespaces are refused, what it ran outlives it
            kill_strays_of(sweep.sweep)
        sweep.close_attempt(due, "interrupted", cause)
        if sweep.deaths >= DEATHS_IN_A_ROW:
            raise HostError(
                f"{sweep.deaths} workers in a row died ({cause}); see `fairtrial doctor`, then `fairtrial resume`"
            )
        (seat.worker,) = sweep.engine.start(argv, 1, worker_environment(sweep.sweep, sweep.passed_env))
        return
    if lines:
        seat.running = None
        sweep.deaths = 0
        _record(sweep, due, lines[0])


def _record(sweep: Pass[PlannedT], due: Due[PlannedT], answer: bytes) -> None:
    outcome = read_outcome(sweep.results, due.trial.key, due.attempt)
    if outcome is None:
        error = cast("dict[str, str | None]", json.loads(answer))["error"]
        raise HostError(f"{due.trial.key}: its outcome is not on disk: {error or 'somebody removed it; resume'}")
    sweep.adopt(due, outcome)


def _dismiss(sweep: Pass[PlannedT], seats: Sequence[_Seat[PlannedT]]) -> None:
    """End every worker; what still runs when the sweep breaks off is cancelled, not lost."""
    for seat in seats:
        seat.worker.end(0 if seat.running else WORKER_GRACE_S)
    for seat in seats:
        if seat.running is None:
            continue
        due, seat.running = seat.running, None
        try:
            sweep.close_attempt(due, "cancelled", "the sweep broke off")
        except (FairtrialError, OSError) as problem:
            # The intent is on disk: `resume` finds it and names the attempt interrupted.
            LOG.warning("%s is left to resume: %s", due.trial.key, problem)
