"""What ends a pass: so many endings in a row, such as an outage causes."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from fairtrial.engines.local import Local
from fairtrial.host.signals import StopRequest
from fairtrial.store.attempts import INTENT_SCHEMA, OUTCOME_SCHEMA, write_intent, write_outcome
from fairtrial.store.journal import Journal
from fairtrial.store.layout import create_results
from fairtrial.store.sweep_file import write_sweep
from fairtrial.sweep.execute import Due, Lane, Pass

NOW = datetime(2026, 11, 29, 13, 1, tzinfo=UTC)
SWEEP = "bench-1"
N_TRIALS = 4
STREAK = 2

End = Callable[[int, str | None], None]
"""Ends the attempt at a trial by an ending's kind, or well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    plan_index: int
    key: str
    block: str = "b"


def never(*_: object) -> NoReturn:
    raise AssertionError("every attempt has an outcome")


@pytest.fixture
def a_pass(tmp_path: Path) -> Iterator[Pass[Trial]]:
    results = create_results(tmp_path / "results", lane="bench", now=NOW, base=tmp_path)
    plan = [{"plan_index": number, "key": f"k{number}"} for number in range(N_TRIALS)]
    sweep = write_sweep(results, {"schema": "sweep/1", "sweep": SWEEP, "lane": "bench", "plan": plan})
    with Journal.open(results, sweep) as journal, Path(os.devnull).open() as never:
        yield Pass(
            lane=Lane(complete=never, void_row=never, trial_limit_s=1.0, outage_streak=STREAK),
            results=results,
            journal=journal,
            sweep=SWEEP,
            number=0,
            scratch=tmp_path,
            metadata={},
            engine=Local(),
            n_workers=STREAK + 1,
            passed_env=(),
            watch=lambda _: None,
            stop=StopRequest(never.fileno()),
        )


@pytest.fixture
def end(a_pass: Pass[Trial]) -> End:
    def end(number: int, kind: str | None) -> None:
        due = Due(trial=Trial(plan_index=number, key=f"k{number}"), attempt=1)
        identity = {"sweep": SWEEP, "key": due.trial.key, "attempt": 1}
        moment = "2026-11-29T13:01:00.000000Z"
        write_intent(a_pass.results, {"schema": INTENT_SCHEMA, **identity, "begun_utc": moment})
        rows = [{"schema": "bench-row/1", "error_kind": kind}]
        ending = {"artifacts": {}, "rows": rows, "ended_utc": moment}
        write_outcome(a_pass.results, {"schema": OUTCOME_SCHEMA, **identity, **ending})
        a_pass.close_attempt(due, "interrupted", "has an outcome")

    return end


def test_endings_between_which_a_trial_ended_well_are_no_outage(a_pass: Pass[Trial], end: End) -> None:
    for number, kind in enumerate(("infra-error", None, "infra-error", None)):
        end(number, kind)
    assert not a_pass.is_ending


def test_a_trial_that_still_ran_and_ended_well_does_not_call_the_outage_off(a_pass: Pass[Trial], end: End) -> None:
    end(0, "infra-error")
    assert not a_pass.is_ending
    end(1, "infra-error")
    assert a_pass.is_ending
    end(2, None)  # of another worker, which had begun it before
    assert a_pass.tripped
    assert a_pass.is_ending
