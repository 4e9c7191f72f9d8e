"""What an evolution has spent, by its records."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.errors import IntegrityError
from fairtrial.evolve.record import EvolutionFiles, create_evolution
from fairtrial.evolve.spending import spent_usd
from fairtrial.evolve.values import StepKind
from fairtrial.gateway.ledger import Ending, Ledger, WireRow
from fairtrial.store.attempts import INTENT_SCHEMA, OUTCOME_SCHEMA, describe_artifacts, write_intent, write_outcome
from fairtrial.store.layout import Results
from fairtrial.store.redact import Redactor

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture
def files(tmp_path: Path) -> EvolutionFiles:
    return create_evolution(tmp_path / "e", now=NOW, base=tmp_path)


def attempt(
    files: EvolutionFiles, step: StepKind, key: str, cost_usd: float | None, *, ends: bool = True, number: int = 1
) -> Path:
    results = Results(root=files.generation(0).results(step))
    results.trials.mkdir(parents=True, exist_ok=True)
    identity = {"sweep": "s", "key": key, "attempt": number}
    directory = write_intent(results, {"schema": INTENT_SCHEMA, **identity, "begun_utc": "u"})
    if ends:
        rows = [{"schema": "bench-row/1", "cost_usd": cost_usd}]
        ending = {"artifacts": describe_artifacts(directory), "rows": rows, "ended_utc": "u"}
        write_outcome(results, {"schema": OUTCOME_SCHEMA, **identity, **ending})
    return directory


def test_nothing_is_spent_before_the_first_step(files: EvolutionFiles) -> None:
    assert spent_usd(files) == 0.0


def test_every_attempt_of_every_sweep_counts_superseded_ones_too(files: EvolutionFiles) -> None:
    attempt(files, StepKind.PROPOSE, "p", 1.0)
    attempt(files, StepKind.MEASURE, "a", 2.0)
    attempt(files, StepKind.MEASURE, "a", 4.0, number=2)
    attempt(files, StepKind.CONFIRM, "h", 8.0)
    assert spent_usd(files) == 15.0


def test_an_attempt_that_spoke_to_no_model_cost_nothing(files: EvolutionFiles) -> None:
    attempt(files, StepKind.MEASURE, "a", 2.0)
    attempt(files, StepKind.MEASURE, "b", None)
    attempt(files, StepKind.MEASURE, "c", None, ends=False)
    assert spent_usd(files) == 2.0


@pytest.mark.parametrize("ends", [True, False])
def test_an_attempt_whose_wire_log_cannot_be_read_cost_nobody_knows_what(files: EvolutionFiles, ends: bool) -> None:
    attempt(files, StepKind.MEASURE, "a", 2.0)
    (attempt(files, StepKind.MEASURE, "b", None, ends=ends) / "wire-work.jsonl").write_bytes(b'{"schema":"other/1"}\n')
    assert spent_usd(files) is None


def test_of_an_attempt_that_runs_or_was_cut_off_what_its_wire_log_holds_counts(files: EvolutionFiles) -> None:
    attempt(files, StepKind.MEASURE, "a", 2.0)
    directory = attempt(files, StepKind.MEASURE, "b", None, ends=False)
    call = WireRow(n=1, trial="t", begun_utc="u", method="POST", path="/v1/messages")
    log = Ledger(directory / "wire-work.jsonl", Redactor())
    log.begin(call)
    log.write(replace(call, ending=Ending.ANSWERED, cost_usd=0.5))
    log.begin(replace(call, n=2))  # under way
    log.close()
    assert spent_usd(files) == 2.5


def test_a_damaged_record_is_refused(files: EvolutionFiles) -> None:
    (attempt(files, StepKind.MEASURE, "a", 2.0) / "outcome.json").write_text("{")
    with pytest.raises(IntegrityError):
        spent_usd(files)
