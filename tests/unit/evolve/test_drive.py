"""The loop and its records: whatever kills a pass, the next one goes on where it was."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evolve.drive import drive
from fairtrial.evolve.next_step import Bounds, Used
from fairtrial.evolve.record import EvolutionFiles, create_evolution, open_evolution, read_outcomes
from fairtrial.evolve.values import OUTCOME_SCHEMA, Ending, EndKind, Step, StepKind, StepOutcome, StepResult

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
TWO = Bounds(generations=2, has_holdout=True)
RESULTS = {
    (0, StepKind.PROPOSE): StepResult.PROPOSED,
    (0, StepKind.MEASURE): StepResult.KEPT,
    (1, StepKind.PROPOSE): StepResult.PROPOSED,
    (1, StepKind.MEASURE): StepResult.PROMOTABLE,
    (1, StepKind.CONFIRM): StepResult.PROMOTABLE,
}
UNFINISHED = Ending(kind=EndKind.UNFINISHED, detail="an outage", exit_code=5)


class KilledError(Exception):
    """Stands for SIGKILL."""


class Played:
    """Steps whose results are written down beforehand, and what was asked of them."""

    def __init__(self, *, dies_at: Step | None = None, halts_at: Step | None = None) -> None:
        self.dies_at, self.halts_at = dies_at, halts_at
        self.asked: list[Step] = []
        self.before: list[tuple[StepOutcome, ...]] = []

    def used(self) -> Used:
        return Used(spent_usd=0.0, elapsed_s=0.0)

    def run(self, step: Step, before: Sequence[StepOutcome]) -> StepOutcome | Ending:
        self.asked.append(step)
        self.before.append(tuple(before))
        if step == self.dies_at:
            raise KilledError
        if step == self.halts_at:
            return UNFINISHED
        return StepOutcome(
            schema=OUTCOME_SCHEMA,
            evolution="e",
            generation=step.generation,
            step=step.kind,
            result=RESULTS[step.generation, step.kind],
            ended_utc="2026-11-29T12:00:00Z",
            reasons=("why.",),
            candidate_overlay_digest="c" * 64,
            holdout_uses={"h": 1},
        )


ALL = [Step(generation=generation, kind=kind) for generation, kind in RESULTS]


@pytest.fixture
def files(tmp_path: Path) -> EvolutionFiles:
    return create_evolution(tmp_path / "e", now=NOW, base=tmp_path)


def go(files: EvolutionFiles, steps: Played, bounds: Bounds = TWO) -> Ending:
    return drive(files, steps, bounds, evolution="e", now=lambda: NOW)


def test_every_step_is_done_once_and_knows_what_was_before(files: EvolutionFiles) -> None:
    steps = Played()
    assert go(files, steps).kind is EndKind.PROMOTED
    assert steps.asked == ALL
    assert [len(before) for before in steps.before] == [0, 1, 2, 3, 4]
    assert [outcome.result for outcome in read_outcomes(files, evolution="e")] == list(RESULTS.values())


@pytest.mark.parametrize("at", ALL, ids=lambda step: f"{step.generation}-{step.kind}")
def test_a_step_that_was_killed_is_the_one_that_the_next_pass_takes_up(files: EvolutionFiles, at: Step) -> None:
    first, second = Played(dies_at=at), Played()
    with pytest.raises(KilledError):
        go(files, first)
    intent = files.generation(at.generation).intent(at.kind)
    begun = intent.read_bytes()
    assert json.loads(begun)["step"] == at.kind
    assert go(files, second).kind is EndKind.PROMOTED
    assert second.asked == ALL[ALL.index(at) :]
    assert intent.read_bytes() == begun


def test_an_ended_evolution_asks_nothing_more(files: EvolutionFiles) -> None:
    go(files, Played())
    again = Played()
    assert go(files, again).kind is EndKind.PROMOTED
    assert again.asked == []


def test_what_did_not_come_to_its_end_has_no_outcome_and_is_asked_again(files: EvolutionFiles) -> None:
    assert go(files, Played(halts_at=ALL[1])) == UNFINISHED
    assert len(read_outcomes(files, evolution="e")) == 1
    again = Played()
    go(files, again)
    assert again.asked == ALL[1:]


def damage_text(path: Path) -> None:
    path.write_text(path.read_text()[:-20])


def add_member(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "more": 1}))


def of_another(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "evolution": "other"}))


@pytest.mark.parametrize("damage", [damage_text, add_member, of_another, Path.unlink])
def test_a_record_that_is_not_what_was_written_is_refused(
    files: EvolutionFiles, damage: Callable[[Path], object]
) -> None:
    go(files, Played())
    damage(files.generation(0).outcome(StepKind.PROPOSE))
    with pytest.raises(IntegrityError):
        go(files, Played())


def test_a_directory_without_an_evolution_is_refused(tmp_path: Path, files: EvolutionFiles) -> None:
    with pytest.raises(UsageError, match="not an evolution"):
        open_evolution(tmp_path)
    with pytest.raises(UsageError, match="is not empty"):
        create_evolution(files.root, now=NOW, base=tmp_path)


def test_the_bounds_are_asked_before_every_step(files: EvolutionFiles) -> None:
    steps = Played()
    spent = Used(spent_usd=1.0, elapsed_s=0.0)
    steps.used = lambda: spent  # type: ignore[method-assign] # its one answer
    assert go(files, steps, replace(TWO, budget_usd=1.0)).kind is EndKind.BUDGET
    assert steps.asked == []
