"""`agent_task_oak_local_v1`: a task in a fresh clone, then a second one in a fresh clone of the branch it published."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from fairtrial.evidence.loop import cold_followup_summary
from fairtrial.host.usage import disk_usage
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.seed import write_seed
from fairtrial.loop.stage import Stage
from fairtrial.loop.totals import common_total
from fairtrial.loop.truth import Expectation, judge_truth, unread_of
from fairtrial.loop.work import Meter, edit_step, network_fields, notes, payload, step_row
from fairtrial.model.loop import Motion, Operation, Step, Truth

__all__ = ["play_oak_local"]

STEP_LIMIT_S: Final = 30.0
SEED_ROWS: Final = ("setup.seed_init", "setup.seed_commit", "setup.seed_push")
CLEANUP: Final = "cleanup.local_server_and_checkouts"
DEFERRED: Final = "trees are deleted when the sweep ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Oracle:
    """The truth of the branch after both tasks."""

    payload_matches: bool | None
    head_matches: bool | None
    failures: tuple[str, ...]

    @property
    def holds(self) -> bool | None:
        if self.payload_matches is None or self.head_matches is None:
            return None
        return self.payload_matches and self.head_matches


UNKNOWN: Final = _Oracle(payload_matches=None, head_matches=None, failures=("there was nothing to read back",))


def play_oak_local(stage: Stage, builder: RowBuilder, rows: list[Row]) -> Row:
    """Both tasks against the tool's own server, and the end of the server whatever happened before."""
    meter = Meter(stage)
    expected: Expectation | None = None
    oracle, failure = UNKNOWN, ""
    try:
        failure = _set_up(stage, builder, rows)
        if not failure:
            with meter.running():
                failure, expected = _tasks(stage, builder, rows)
        usage = {phase: disk_usage(place.workspace) for phase, place in stage.places.items()}
        if expected is not None:
            oracle = _judge(expected, stage.read_back("followup"))
        network = network_fields(stage, meter.moved)
    finally:
        stopped = _clean_up(stage, builder, rows)
    total = common_total(stage, rows, _planned(stage), holds=oracle.holds, failures=oracle.failures)
    total |= network | cold_followup_summary(rows)
    total |= {
        "oracle_payload_matches": oracle.payload_matches,
        "oracle_branch_head_matches": oracle.head_matches,
        "server_process_stopped": stopped,
        "acquisition_models": {"cold": "fresh_full_clone", "followup": "second_full_clone"},
        "repository_cache_state": {"cold": "cold", "followup": "a second full clone: nothing is shared"},
        "hosted_ci_configured": False,
        "workspace_usage_before_cleanup": {phase: value and value.as_record() for phase, value in usage.items()},
        "workspace_usage_reason": None if all(usage.values()) else "a task did not get its workspace",
        "published_heads": {"followup": None if expected is None else expected.head},
        "published_sha256": {"followup": None if expected is None else sha256(expected.content).hexdigest()},
    }
    failure = failure or ("" if oracle.holds is True else "oracle_failed: " + "; ".join(oracle.failures))
    failure = failure or ("" if stopped else "local_oak_server_cleanup_failed")
    if failure:
        total |= {"returncode": 1, "stderr": failure}
    return total


def _set_up(stage: Stage, builder: RowBuilder, rows: list[Row]) -> str:
    """The server's start and one row for each command that seeds it."""
    rows.append(builder.harness("setup.server", elapsed_ms=stage.server_start_ms, n_commands=1))
    place = stage.places["cold"]
    tree = stage.root / "seed"
    write_seed(tree, stage.spec.loop.n_seed_files)
    stage.prepare(stage.subject.create_store(place))
    for name, step in zip(SEED_ROWS, stage.subject.seed_store(place, tree), strict=True):
        (result,) = stage.prepare((step,))
        rows.append(builder.harness(name, elapsed_ms=result.elapsed_ms, n_commands=1))
    return ""


def _tasks(stage: Stage, builder: RowBuilder, rows: list[Row]) -> tuple[str, Expectation | None]:
    """Both tasks; the first failure, and what the branch must hold once the second has published."""
    expected: Expectation | None = None
    for operation in stage.scenario.operations:
        if operation.hole is not None:
            rows.append(builder.hole(operation.name, operation.hole))
            continue
        if operation.motion is Motion.PUBLISH and operation.phase == "followup":
            expected = _expectation(stage)
        for step in _steps(stage, operation):
            row = step_row(stage, builder, operation, step, limit_s=STEP_LIMIT_S)
            rows.append(row)
            if row["returncode"] != 0:
                return f"{row['operation']}_failed", expected
        if operation.name == "cold.inspect" and (failure := _follow_branch(stage)):
            return failure, expected
    return "", expected


def _steps(stage: Stage, operation: Operation) -> tuple[Step, ...]:
    place = stage.places[operation.phase]
    if operation.motion is None:
        return ()
    if operation.motion is Motion.EDIT:
        return (edit_step(place, payload(stage, operation.phase)),)
    return stage.subject.steps(operation.motion, operation.manner, place)


def _follow_branch(stage: Stage) -> str:
    """Take the branch's name from the first workspace; the second task goes on with that branch."""
    branch = stage.subject.published_branch(stage.probe, stage.places["cold"])
    if branch is None:
        return "cold_branch_name_missing"
    for phase, place in stage.places.items():
        stage.places[phase] = replace(place, branch=branch)
    return ""


def _expectation(stage: Stage) -> Expectation:
    place = stage.places["followup"]
    return Expectation(
        branch=place.branch,
        head=stage.subject.client_head(stage.probe, place),
        content=notes(payload(stage, "cold"), payload(stage, "followup")),
    )


def _judge(expected: Expectation, truth: Truth) -> _Oracle:
    """Payload and head apart: the exact text of both tasks, and one head recorded before and read twice after."""
    check = judge_truth(expected, truth)
    known = expected.head is not None and bool(truth.readings) and not unread_of(truth)
    return _Oracle(
        payload_matches=all(reading.content == expected.content for reading in truth.readings) if known else None,
        head_matches=all(reading.head == expected.head for reading in truth.readings) if known else None,
        failures=check.failures,
    )


def _clean_up(stage: Stage, builder: RowBuilder, rows: list[Row]) -> bool:
    """Stop the server and put the workspaces aside; whether the server is gone."""
    begun = time.perf_counter()
    stopped = stage.stop_servers()
    moved = [place.workspace for place in stage.places.values() if place.workspace.exists()]
    for workspace in moved:
        workspace.rename(workspace.with_name(f"{workspace.name}.done"))
    elapsed_ms = (time.perf_counter() - begun) * 1000
    row = builder.harness(CLEANUP, elapsed_ms=elapsed_ms, n_commands=len(moved), returncode=0 if stopped else 1)
    rows.append(row | {"cleanup_deferred": True, "cleanup_deferred_reason": DEFERRED})
    return stopped


def _planned(stage: Stage) -> Sequence[str]:
    """Every row's operation; two clones are told by their manner alone, so the names need no workspace."""
    planned = ["setup.server", *SEED_ROWS]
    for operation in stage.scenario.operations:
        steps = _steps(stage, operation)
        planned.extend(step.row_name(operation.name) for step in steps)
        planned.extend([operation.name] * (operation.hole is not None))
    return [*planned, CLEANUP]
