"""`parallel_tasks_v1`: eight tasks at once on one repository. What was claimed as published must be there."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from fairtrial.evidence.publication import ClientClaim, ServerTruth, decide_verdict
from fairtrial.loop.observe import server_truth
from fairtrial.loop.recovery import free_row
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.spawned import run_at_once
from fairtrial.loop.stage import STEP_LIMIT_S, Stage
from fairtrial.loop.totals import common_total
from fairtrial.loop.truth import Expectation
from fairtrial.loop.work import Meter, expectation, network_fields, planned_operations, prepare, steps_of
from fairtrial.model.loop import Motion, Operation, Step
from fairtrial.model.process import ProcessResult

__all__ = ["play_parallel"]

OVERLAP: Final = "the commands overlap: see parallel_work_wall_ms and parallel_publish_wall_ms"
Plan = Mapping[str, Sequence[tuple[Operation, Step]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """How one task's commands ended.

    Attributes:
        refused_at: The row of the first command that the tool refused; None when all were carried out.
        last: The last command.
    """

    refused_at: str | None
    last: ProcessResult


def play_parallel(stage: Stage, builder: RowBuilder, rows: list[Row]) -> Row:
    """All tasks work at once; when each has its snapshot or has failed, all publish at once; then the truth.

    Between the two the heads are read, outside of every time that is measured.
    """
    prepare(stage, builder, rows)
    meter = Meter(stage)
    operations = stage.scenario.operations
    work = [operation for operation in operations if operation.motion is not Motion.PUBLISH]
    with meter.running():
        worked, work_ms = _at_once(stage, builder, rows, _plan(stage, work, stage.places))
    expected = _expectations(stage, [name for name in worked if worked[name].refused_at is None])
    publish = [operation for operation in operations if operation.motion is Motion.PUBLISH]
    with meter.running():
        published, publish_ms = _at_once(stage, builder, rows, _plan(stage, publish, expected))
    refused = {name: end.refused_at for ends in (worked, published) for name, end in ends.items() if end.refused_at}
    total = _total(stage, rows, expected, {name: end.last for name, end in published.items()}, refused)
    return (
        total
        | network_fields(stage, meter.moved)
        | {
            "parallel_work_wall_ms": round(work_ms, 3),
            "parallel_publish_wall_ms": round(publish_ms, 3),
        }
    )


def _plan(stage: Stage, operations: Sequence[Operation], names: Mapping[str, object]) -> Plan:
    return {
        name: [
            (operation, step)
            for operation in operations
            if operation.phase == name
            for step in steps_of(stage, operation)
        ]
        for name in names
    }


def _at_once(stage: Stage, builder: RowBuilder, rows: list[Row], plan: Plan) -> tuple[dict[str, _Done], float]:
    """Run the plan; how each task ended, and the time that all took together, in ms."""
    done: dict[str, _Done] = {}
    begun_s = time.perf_counter()
    tasks = {name: [step for _, step in steps] for name, steps in plan.items()}
    for name, index, result in run_at_once(tasks, stage.environment, limit_s=STEP_LIMIT_S):
        operation, step = plan[name][index]
        stage.record_step(result, step)
        rows.append(free_row(stage, builder, operation.name, step, result))
        refused = result.returncode not in step.expected or result.timed_out
        refused = refused or bool(operation.motion and stage.subject.belied(operation.motion, result))
        if name not in done or done[name].refused_at is None:
            done[name] = _Done(refused_at=step.row_name(operation.name) if refused else None, last=result)
    return done, (time.perf_counter() - begun_s) * 1000


def _expectations(stage: Stage, names: Sequence[str]) -> dict[str, Expectation]:
    expected: dict[str, Expectation] = {}
    for name in names:
        stage.settle_branch(name)
        expected[name] = expectation(stage, name)
    return expected


def _total(
    stage: Stage,
    rows: Sequence[Row],
    expected: Mapping[str, Expectation],
    published: Mapping[str, ProcessResult],
    refused: Mapping[str, str],
) -> Row:
    """What all tasks together left. That a tool turns a task away is a result; that it loses one fails the trial."""
    verdicts: Counter[str] = Counter()
    claims: Counter[str] = Counter()
    lost: list[str] = []
    failures: list[str] = []
    sound: list[bool | None] = []
    for name, wanted in expected.items():
        truth = stage.read_back(name)
        found, why = server_truth(wanted, wanted.head, truth)
        claim = stage.subject.claim(published[name])
        claims[claim.value] += 1
        sound.append(truth.integrity)
        if truth.integrity is False:
            failures.append(f"{name}: the store failed its integrity check: {truth.integrity_detail}")
        if found is not None:
            verdicts[decide_verdict(claim, None, found).value] += 1
        if claim is ClientClaim.PUBLISHED and found is not ServerTruth.DURABLE:
            if found is not None:  # what nobody could read is no evidence, and not lost
                lost.append(name)
            failures += [f"{name}: {each}" for each in why]
    if not claims[ClientClaim.PUBLISHED]:
        failures.append("no task was published")
    total = common_total(stage, rows, (), holds=not failures, failures=failures)
    unmeasured = sorted(set(planned_operations(stage)) - {str(row["operation"]) for row in rows})
    total |= {
        "elapsed_ms": None,
        "elapsed_ms_reason": OVERLAP,
        "coverage_complete": not unmeasured,
        "unmeasured_operations": unmeasured,
        "n_tasks": len(stage.scenario.phases),
        "tasks_refused": dict(sorted(refused.items())),
        "tasks_published": claims[ClientClaim.PUBLISHED],
        "lost_updates": len(lost),
        "lost_update_tasks": lost,
        "claims": dict(sorted(claims.items())),
        "verdicts": dict(sorted(verdicts.items())),
        "server_integrity": None if None in sound or not sound else all(sound),
        "acquisition_models": {"task": stage.subject.acquisition_models[stage.scenario.operations[0].manner]},
        "published_heads": {name: each.head for name, each in expected.items()},
        "published_sha256": {name: sha256(each.content).hexdigest() for name, each in expected.items()},
    }
    if failures:
        total |= {"returncode": 1, "stderr": f"parallel_tasks_failed: {'; '.join(failures)}"}
    return total
