"""A disk without room for another trial: those that run end as they would have, and then the sweep says so (B56)."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.host.signals import StopRequest
from fairtrial.model.loop import Transport, Variant
from fairtrial.model.trial import AnySpec, AttemptSpec, LoopTask, TrialSpec
from fairtrial.protocols import Worker
from fairtrial.store.attempts import INTENT_SCHEMA, OUTCOME_SCHEMA, write_intent, write_outcome
from fairtrial.store.journal import Journal
from fairtrial.store.layout import Results, create_results
from fairtrial.store.sweep_file import write_sweep
from fairtrial.sweep import execute
from fairtrial.sweep.execute import Due, Lane, Pass, drive

NOW = datetime(2026, 11, 29, 13, 1, tzinfo=UTC)
MOMENT = "2026-11-29T13:01:00.000000Z"
SWEEP = "bench-shortage"
TASK = LoopTask(
    scenario="task_loop",
    variant=Variant(name="git", subject="git", label="git"),
    subject_kind="git",
    transport=Transport.FILE,
    run=0,
    block="b",
    position_in_block=0,
    block_order=("git",),
    null_control=False,
    skip_reason=None,
    admitted_output_characters=0,
    n_seed_files=0,
    hosted_remote=None,
    credential_env=(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    plan_index: int
    key: str

    @property
    def block(self) -> str:
        return self.key


class Diligent:
    """A worker whose trial has ended well when it is next heard."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._key: str | None = None
        self._readable, self._written = os.pipe()

    def fileno(self) -> int:
        return self._readable

    def send(self, line: bytes) -> bool:
        self._key = json.loads(line)["key"]
        os.write(self._written, b".")
        return True

    def receive(self) -> tuple[bytes, ...] | None:
        if self._key is None:
            return ()
        os.read(self._readable, 1)
        identity = {"sweep": SWEEP, "key": self._key, "attempt": 1}
        write_intent(self._results, {"schema": INTENT_SCHEMA, **identity, "begun_utc": MOMENT})
        rows = [{"schema": "bench-row/1", "error_kind": None}]
        ending = {"artifacts": {}, "rows": rows, "ended_utc": MOMENT}
        write_outcome(self._results, {"schema": OUTCOME_SCHEMA, **identity, **ending})
        self._key = None
        return (b"{}",)

    def end(self, _grace_s: float) -> int:
        os.close(self._readable)
        os.close(self._written)
        return 0


@dataclass(kw_only=True)
class Staff:
    results: Results

    def start(self, _argv: Sequence[str], n: int, _env: Mapping[str, str]) -> tuple[Worker, ...]:
        return tuple(Diligent(self.results) for _ in range(n))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return create_results(tmp_path / "results", lane="bench", now=NOW, base=tmp_path)


@pytest.fixture
def a_pass(results: Results, tmp_path: Path) -> Iterator[Pass[Trial]]:
    plan = [{"plan_index": number, "key": f"k{number}"} for number in range(3)]
    sweep = write_sweep(results, {"schema": "sweep/1", "sweep": SWEEP, "lane": "bench", "plan": plan})

    def complete(shared: AttemptSpec, _trial: Trial) -> AnySpec:
        return TrialSpec(**{name: getattr(shared, name) for name in AttemptSpec.__dataclass_fields__}, loop=TASK)

    with Journal.open(results, sweep) as journal:
        never_read, never_written = os.pipe()
        yield Pass(
            lane=Lane(
                complete=complete,
                void_row=lambda _spec, kind, _detail: {"schema": "bench-row/1", "error_kind": kind},
                trial_limit_s=600.0,
            ),
            results=results,
            journal=journal,
            sweep=SWEEP,
            number=0,
            scratch=tmp_path,
            metadata={},
            engine=Staff(results=results),
            n_workers=2,
            passed_env=(),
            watch=lambda _: None,
            stop=StopRequest(never_read),
        )
        os.close(never_read)
        os.close(never_written)


@pytest.mark.parametrize("which", ["results", "scratch"])
def test_what_runs_when_a_disk_gets_short_ends_as_it_would_have_and_nothing_new_begins(
    a_pass: Pass[Trial], results: Results, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    short = {"results": results.root, "scratch": a_pass.scratch}[which]
    answers = iter((False, True))  # there is room for the first trial and for none after it
    monkeypatch.setattr(execute, "is_low", lambda directory: directory == short and next(answers))
    with pytest.raises(HostError, match=rf"{re.escape(str(short))}: too little space"):
        drive(a_pass, [Due(trial=Trial(plan_index=number, key=f"k{number}"), attempt=1) for number in range(3)])
    rows = [json.loads(line) for line in results.results_jsonl.read_text().splitlines()]
    assert [(row["key"], row["error_kind"]) for row in rows] == [("k0", None)]
