"""A small sweep's results directory, and what a test does to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.store.attempts import INTENT_SCHEMA, OUTCOME_SCHEMA, describe_artifacts, write_intent, write_outcome
from fairtrial.store.journal import Journal
from fairtrial.store.layout import Results, create_results
from fairtrial.store.seal import write_seal
from fairtrial.store.sweep_file import SweepFile, write_sweep

NOW = datetime(2026, 11, 29, 13, 1, tzinfo=UTC)
Row = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Made:
    """A results directory with a plan of four trials.

    Attributes:
        results: Its paths.
        sweep: Its `sweep.json`.
    """

    results: Results
    sweep: SweepFile

    def key(self, trial: int) -> str:
        return self.sweep.plan_keys[trial]

    def rows(self, trial: int, n_rows: int = 3, **extra: object) -> list[Row]:
        return [{"schema": "loop-row/1", "n": number, "text": f"{trial}é\n", **extra} for number in range(n_rows)]

    def identity(self, trial: int, attempt: int = 1) -> Row:
        return {"sweep": self.sweep.sweep, "key": self.key(trial), "attempt": attempt}

    def begin(self, trial: int, attempt: int = 1) -> Path:
        intent = {"schema": INTENT_SCHEMA, **self.identity(trial, attempt), "begun_utc": "2026-11-29T13:01:00.000000Z"}
        directory = write_intent(self.results, intent)
        (directory / "transcript.txt").write_text(f"{trial}/{attempt}")
        return directory

    def outcome(self, trial: int, attempt: int = 1, rows: Sequence[Mapping[str, object]] | None = None) -> Row:
        directory = self.results.attempt_dir(self.key(trial), attempt)
        return {
            "schema": OUTCOME_SCHEMA,
            **self.identity(trial, attempt),
            "artifacts": describe_artifacts(directory),
            "ended_utc": "2026-11-29T13:02:00.000000Z",
            "rows": list(self.rows(trial) if rows is None else rows),
        }

    def end(self, trial: int, attempt: int = 1, rows: Sequence[Mapping[str, object]] | None = None) -> None:
        write_outcome(self.results, self.outcome(trial, attempt, rows))

    def record(self, *trials: int, attempt: int = 1) -> None:
        with Journal.open(self.results, self.sweep) as journal:
            for trial in trials:
                self.begin(trial, attempt)
                self.end(trial, attempt)
                journal.append(self.rows(trial), key=self.key(trial), attempt=attempt, plan_index=trial)

    def seal(self) -> str:
        with Journal.open(self.results, self.sweep) as journal:
            return write_seal(self.results, journal)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    results = create_results(tmp_path / "results", lane="loop", now=NOW, base=tmp_path)
    plan = [{"plan_index": trial, "key": f"loop/task_loop/git/file/{trial}"} for trial in range(4)]
    document = {"schema": "sweep/1", "sweep": "loop-20261129T130100Z", "lane": "loop", "plan": plan}
    return Made(results=results, sweep=write_sweep(results, document))
