"""Whole tasks, as an agent does them: one workspace, one branch and one payload for each phase."""

import time
from hashlib import sha256
from typing import Final

from fairtrial.evidence.loop import cold_warm_summary, loop_summary
from fairtrial.host.usage import DiskUsage, disk_usage
from fairtrial.loop.comparator import compare_partial_clone
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.stage import Stage
from fairtrial.loop.totals import common_total
from fairtrial.loop.truth import Expectation, TruthCheck, judge_truth
from fairtrial.loop.work import Meter, network_fields, perform, planned_operations, prepare, step_row, steps_of
from fairtrial.model.loop import Motion

__all__ = ["check_truth", "clean_up", "play_tasks", "summarize"]

ORACLE_FAILURES: Final = {
    "agent_task": "agent_task_remote_payload_oracle_failed",
    "task_loop": "oracle_payload_missing_from_remote_branch",
}


def play_tasks(stage: Stage, builder: RowBuilder, rows: list[Row]) -> Row:
    """Everything between an empty stage and the total row; rows are appended as they come, so that none is lost."""
    prepare(stage, builder, rows)
    meter = Meter(stage)
    with meter.running():
        expectations = perform(stage, builder, rows)
    usage = {phase: disk_usage(place.workspace) for phase, place in stage.places.items()}
    clean_up(stage, builder, rows)
    checks = check_truth(stage, expectations)
    published = {
        "published_heads": {phase: expected.head for phase, expected in expectations.items()},
        "published_sha256": {phase: sha256(expected.content).hexdigest() for phase, expected in expectations.items()},
    }
    total = summarize(stage, rows, checks, usage) | network_fields(stage, meter.moved) | published
    if stage.scenario.stem == "agent_task":  # after the total is made: its row is no part of what the tasks cost
        total |= compare_partial_clone(stage, builder, rows)
    return total


def clean_up(stage: Stage, builder: RowBuilder, rows: list[Row]) -> None:
    """Do the scenario's own cleaning; the harness's part only puts the workspace aside.

    Deleting a tree slows the creation of the next one 15 to 20 times on some root file systems, so trees are deleted
    when the sweep ends.
    """
    for operation in stage.scenario.operations:
        if not operation.name.startswith("cleanup."):
            continue
        workspace = stage.places[operation.phase].workspace
        if not workspace.exists():
            continue  # it was never acquired, or the tool has removed it
        if operation.motion is not None:
            rows.extend(step_row(stage, builder, operation, step) for step in steps_of(stage, operation))
            continue
        begun = time.perf_counter()
        workspace.rename(workspace.with_name(f"{workspace.name}.done"))
        row = builder.harness(operation.name, elapsed_ms=(time.perf_counter() - begun) * 1000, n_commands=1)
        rows.append(
            row | {"cleanup_deferred": True, "cleanup_deferred_reason": "trees are deleted when the sweep ends"}
        )


def check_truth(stage: Stage, expectations: dict[str, Expectation]) -> dict[str, TruthCheck]:
    """Read every published branch back by independent means."""
    checks: dict[str, TruthCheck] = {}
    for phase, expected in expectations.items():
        checks[phase] = judge_truth(expected, stage.read_back(phase))
    return checks


def summarize(stage: Stage, rows: list[Row], checks: dict[str, TruthCheck], usage: dict[str, DiskUsage | None]) -> Row:
    """The total row: sums over the rows, the truth, and what the scenario adds."""
    scenario = stage.scenario
    verdicts = [check.holds for check in checks.values()]
    holds = None if None in verdicts or len(verdicts) < len(scenario.phases) else all(verdicts)
    failures = [f"{phase}: {failure}" for phase, check in checks.items() for failure in check.failures]
    total = common_total(stage, rows, planned_operations(stage), holds=holds, failures=failures)
    total["acquisition_models"] = _acquisitions(stage)
    if holds is not True:
        total["returncode"] = 1
        total["stderr"] = ORACLE_FAILURES[scenario.stem] + (": " + "; ".join(failures) if failures else "")
    if scenario.stem == "task_loop":
        return total | loop_summary(rows)
    absent = [phase for phase, value in usage.items() if value is None]
    return (
        total
        | cold_warm_summary(rows)
        | {
            "workspace_usage_before_cleanup": {phase: value and value.as_record() for phase, value in usage.items()},
            "workspace_usage_reason": f"no workspace in {', '.join(absent)}" if absent else None,
            "repository_cache_state": {"cold": "cold", "warm": "shares the cold clone's objects"},
            "parallel_evidence_lane": None,
            "parallel_evidence_reason": "this scenario runs one task at a time",
        }
    )


def _acquisitions(stage: Stage) -> dict[str, str]:
    models = stage.subject.acquisition_models
    acquired = (operation for operation in stage.scenario.operations if operation.motion is Motion.ACQUIRE)
    return {operation.phase: models.get(operation.manner, operation.manner.value) for operation in acquired}
