"""A worker that does not answer: its trial is named and void, and another worker takes the next (B56)."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.engines.local import Local
from fairtrial.errors import HostError
from fairtrial.host.signals import StopRequest
from fairtrial.model.loop import Transport, Variant
from fairtrial.model.trial import AnySpec, AttemptSpec, LoopTask, TrialSpec
from fairtrial.protocols import Worker
from fairtrial.store.journal import Journal
from fairtrial.store.layout import create_results
from fairtrial.store.sweep_file import write_sweep
from fairtrial.sweep.execute import Due, Lane, Pass, drive

NOW = datetime(2026, 11, 29, 13, 1, tzinfo=UTC)
SWEEP = f"bench-overdue-{os.getpid()}"  # what a sweep leaves is found by its name, in all of /proc
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
    block: str = "b"


class Deaf:
    """Starts workers that read nothing and say nothing."""

    def __init__(self) -> None:
        self.n_started = 0

    def start(self, _argv: Sequence[str], n: int, env: Mapping[str, str]) -> Sequence[Worker]:
        self.n_started += n
        return Local().start(("/bin/sleep", "600"), n, env)


def complete(shared: AttemptSpec, _trial: Trial) -> AnySpec:
    return TrialSpec(
        **{name: getattr(shared, name) for name in AttemptSpec.__dataclass_fields__},
        loop=TASK,
    )


def test_a_trial_whose_worker_does_not_answer_is_given_up_by_name_and_another_worker_takes_the_next(
    tmp_path: Path,
) -> None:
    results = create_results(tmp_path / "results", lane="bench", now=NOW, base=tmp_path)
    plan = [{"plan_index": number, "key": f"k{number}"} for number in range(4)]
    sweep = write_sweep(results, {"schema": "sweep/1", "sweep": SWEEP, "lane": "bench", "plan": plan})
    engine = Deaf()
    never, never_written = os.pipe()
    with Journal.open(results, sweep) as journal, pytest.raises(HostError) as caught:
        drive(
            Pass(
                lane=Lane(
                    complete=complete,
                    void_row=lambda _spec, kind, detail: {"schema": "bench-row/1", "error_kind": kind, "is": detail},
                    trial_limit_s=0.1,
                ),
                results=results,
                journal=journal,
                sweep=SWEEP,
                number=0,
                scratch=tmp_path,
                metadata={},
                engine=engine,
                n_workers=1,
                passed_env=(),
                watch=lambda _: None,
                stop=StopRequest(never),
            ),
            [Due(trial=Trial(plan_index=number, key=f"k{number}"), attempt=1) for number in range(4)],
        )
    os.close(never)
    os.close(never_written)
    assert "3 workers in a row died (no answer within 0 s)" in str(caught.value)
    rows = [json.loads(line) for line in (tmp_path / "results" / "results.jsonl").read_text().splitlines()]
    assert [(row["key"], row["error_kind"], row["is"]) for row in rows] == [
        (f"k{number}", "interrupted", "no answer within 0 s") for number in range(3)
    ]
    assert engine.n_started == 3
