"""One trial of the tool lane, from top to bottom."""

import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from fairtrial.errors import HostError
from fairtrial.evidence.loop import cold_warm_summary, loop_summary, total_row
from fairtrial.host.clock import rfc3339, utc_now
from fairtrial.host.usage import DiskUsage, disk_usage
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.seed import NOTES, seed_files, write_seed
from fairtrial.loop.stage import Stage, open_stage
from fairtrial.loop.truth import Expectation, TruthCheck, judge_truth
from fairtrial.model.loop import Motion, Operation, Setup, Step, Transport
from fairtrial.model.trial import TrialSpec
from fairtrial.protocols import Subject
from fairtrial.wire.ledger import render_ledger

__all__ = [
    "TrialRecord",
    "check_truth",
    "clean_up",
    "perform",
    "planned_operations",
    "play",
    "play_and_withdraw",
    "prepare",
    "run_loop_trial",
    "summarize",
    "withdraw",
]

ORACLE_FAILURES: Final = {
    "agent_task": "agent_task_remote_payload_oracle_failed",
    "task_loop": "oracle_payload_missing_from_remote_branch",
}
NO_WIRE: Final = {
    Transport.FILE: "the file transport has no wire to count on",
    Transport.HTTP: "no forwarder was started",
    Transport.NATIVE: "the forwarder speaks HTTP; the tool's own protocol is not counted",
    Transport.SSH: "a pipe to a local command has no wire to count on",
    Transport.HOSTED: "a hosted wire is not ours to count",
}
NO_COMPARATOR: Final = "a partial clone needs a server that filters; this transport has none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """What one attempt leaves.

    Attributes:
        rows: Its rows, the total row last.
        artifacts: Files to keep beside the outcome, by name.
    """

    rows: tuple[Row, ...]
    artifacts: dict[str, bytes] = field(default_factory=dict[str, bytes])


def run_loop_trial(spec: TrialSpec, subject: Subject) -> TrialRecord:
    """Play one scenario by one subject once and say what came of it.

    A total row (or a skip row) is always last, also when the host failed half-way: then the attempt is void. Only an
    exception that is our own bug leaves this function.
    """
    scenario = SCENARIOS[spec.loop.scenario]
    builder = RowBuilder.of(spec, scenario.profile)
    if spec.loop.skip_reason is not None:
        return TrialRecord(rows=(builder.skip(scenario.stem, spec.loop.skip_reason),))
    rows: list[Row] = []
    artifacts: dict[str, bytes] = {}
    try:
        with open_stage(spec, scenario, subject) as stage:
            try:
                total = play_and_withdraw(stage, builder, rows)
            finally:
                artifacts["transcript.jsonl"] = stage.transcript_bytes()
            if stage.server is not None:
                artifacts["wire.json"] = render_ledger(stage.server.ledger()).encode()
    except (HostError, OSError) as problem:
        total = builder.void(scenario.stem, "infra-error", str(problem))
    return TrialRecord(rows=(*rows, total), artifacts=artifacts)


def play_and_withdraw(stage: Stage, builder: RowBuilder, rows: list[Row]) -> Row:
    """Play, and leave no branch of ours on a hosted remote: none of an earlier attempt that died, none of this one."""
    withdraw(stage)
    try:
        total = play(stage, builder, rows)
    finally:
        remained = withdraw(stage)
    if remained:
        detail = f"branches remain on the hosted remote, delete them by hand: {remained}"
        total |= {"error_kind": total["error_kind"] or "cleanup-failure", "error_detail": detail}
    return total


def play(stage: Stage, builder: RowBuilder, rows: list[Row]) -> Row:
    """Everything between an empty stage and the total row; rows are appended as they come, so that none is lost."""
    prepare(stage, builder, rows)
    before = _traffic(stage)
    expectations = perform(stage, builder, rows)
    network = _network_fields(stage, before)
    usage = {phase: disk_usage(place.workspace) for phase, place in stage.places.items()}
    clean_up(stage, builder, rows)
    checks = check_truth(stage, expectations)
    published = {
        "published_heads": {phase: expected.head for phase, expected in expectations.items()},
        "published_sha256": {phase: sha256(expected.content).hexdigest() for phase, expected in expectations.items()},
    }
    return summarize(stage, rows, checks, usage) | network | published


def prepare(stage: Stage, builder: RowBuilder, rows: list[Row]) -> None:
    """Make and seed the store and, where the scenario shares one, the base clone."""
    place = stage.places[stage.scenario.phases[0]]
    tree = stage.root / "seed"
    write_seed(tree, stage.spec.loop.n_seed_files)
    hosted = stage.spec.loop.transport is Transport.HOSTED
    groups = {
        "setup.remote_container": () if hosted else stage.subject.create_store(place),
        "setup.remote_seed": stage.subject.seed_store(place, tree),
    }
    for operation, steps in groups.items():
        results = stage.prepare(steps)
        if stage.scenario.setup is Setup.ROWS:
            elapsed_ms = sum(result.elapsed_ms or 0.0 for result in results)
            rows.append(builder.harness(operation, elapsed_ms=elapsed_ms, n_commands=len(results)))
    if stage.scenario.shared_base:
        stage.prepare(stage.subject.clone_base(place))


def perform(stage: Stage, builder: RowBuilder, rows: list[Row]) -> dict[str, Expectation]:
    """Carry out the operations in order and return what must be published; a failed acquisition ends the loop."""
    expected: dict[str, Expectation] = {}
    for operation in stage.scenario.operations:
        if operation.name.startswith("cleanup."):
            continue
        if operation.hole is not None:
            rows.append(builder.hole(operation.name, operation.hole))
            continue
        if operation.motion is Motion.PUBLISH:
            stage.settle_branch(operation.phase)
            expected[operation.phase] = _expectation(stage, operation.phase)
        for step in _steps(stage, operation):
            row = _step_row(stage, builder, operation, step)
            rows.append(row)
            if operation.motion is Motion.ACQUIRE and row["returncode"] != 0:
                return expected
    return expected


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
            rows.extend(_step_row(stage, builder, operation, step) for step in _steps(stage, operation))
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
        truth = stage.subject.read_truth(stage.probe, stage.places[phase], NOTES, stage.spec.loop.transport)
        checks[phase] = judge_truth(expected, truth)
    return checks


def summarize(stage: Stage, rows: list[Row], checks: dict[str, TruthCheck], usage: dict[str, DiskUsage | None]) -> Row:
    """The total row: sums over the rows, the truth, and what the scenario adds."""
    scenario, task = stage.scenario, stage.spec.loop
    builder = RowBuilder.of(stage.spec, scenario.profile)
    total = builder.total(scenario.stem, total_row(planned_operations(stage), rows, identity=builder.identity))
    if total["elapsed_ms"] is None:
        total["elapsed_ms_reason"] = "a step has no time, or none was run"
    verdicts = [check.holds for check in checks.values()]
    holds = None if None in verdicts or len(verdicts) < len(scenario.phases) else all(verdicts)
    failures = [f"{phase}: {failure}" for phase, check in checks.items() for failure in check.failures]
    total |= {
        "oracle_payload_on_remote_branch": holds,
        "truth_failures": failures,
        "truth_sources": ["wire"] if task.transport is Transport.HOSTED else ["store", "wire", "integrity"],
        "oracle_probe_calls": stage.n_probe_calls,
        "harness_command_count": _count(total, "harness_command_count") + stage.n_probe_calls,
        "workspace_branches": {phase: place.branch for phase, place in stage.places.items()},
        "measurement_source": "wall clock around spawn and reap; kernel accounting of the child",
        "acquisition_models": _acquisitions(stage),
        "os_cache_state": "unknown",
        "os_cache_state_reason": "the page cache is neither dropped nor measured",
        "recorded_at": rfc3339(utc_now()),
        "error_kind": None,
        "transcript": "transcript.jsonl",
    }
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
            "partial_clone_comparator": None,
            "partial_clone_reason": NO_COMPARATOR,
            "parallel_evidence_lane": None,
            "parallel_evidence_reason": "this scenario runs one task at a time",
        }
    )


def withdraw(stage: Stage) -> str:
    """Delete this trial's branches from a hosted remote; "" when none is left."""
    if stage.spec.loop.transport is not Transport.HOSTED:
        return ""
    place = stage.places[stage.scenario.phases[0]]
    branches = (place.trunk, *(each.branch for each in stage.places.values()))
    return stage.subject.withdraw(stage.probe, place, branches)


def planned_operations(stage: Stage) -> list[str]:
    """The operation name of every row that the scenario demands of this subject."""
    planned: list[str] = []
    for operation in stage.scenario.operations:
        if operation.hole is not None or operation.motion is None:
            planned.append(operation.name)
        else:
            planned.extend(step.row_name(operation.name) for step in _steps(stage, operation))
    return planned


def _steps(stage: Stage, operation: Operation) -> tuple[Step, ...]:
    place = stage.places[operation.phase]
    if operation.motion is None:
        return ()
    if operation.motion is Motion.EDIT:
        script = 'printf "%s\\n" "$1" >> "$2"'
        return (
            Step(argv=("/bin/sh", "-c", script, "sh", _payload(stage, operation.phase), NOTES), cwd=place.workspace),
        )
    return stage.subject.steps(operation.motion, operation.manner, place)


def _step_row(stage: Stage, builder: RowBuilder, operation: Operation, step: Step) -> Row:
    result = stage.run_step(step)
    kind = "vcs" if step.argv[0] == stage.spec.loop.variant.binary else "edit"
    row = builder.step(step.row_name(operation.name), kind, stage.shown(step.argv), step.expected, result)
    motion = operation.motion
    if row["returncode"] == 0 and motion and (reason := stage.subject.belied(motion, result)):
        row |= {"returncode": 1, "stderr": reason}
    return row | {"transcript_line": len(stage.transcript) - 1}


def _payload(stage: Stage, phase: str) -> str:
    return f"- {phase} of run {stage.spec.loop.run} in {stage.spec.sweep}"


def _expectation(stage: Stage, phase: str) -> Expectation:
    place = stage.places[phase]
    seed = dict(seed_files(0))[NOTES]
    head = stage.subject.client_head(stage.probe, place)
    return Expectation(branch=place.branch, head=head, content=seed + f"{_payload(stage, phase)}\n".encode())


def _acquisitions(stage: Stage) -> dict[str, str]:
    models = stage.subject.acquisition_models
    acquired = (operation for operation in stage.scenario.operations if operation.motion is Motion.ACQUIRE)
    return {operation.phase: models.get(operation.manner, operation.manner.value) for operation in acquired}


def _traffic(stage: Stage) -> tuple[int, int, int]:
    """Bytes up, bytes down and requests that the wire has seen so far.

    Raises:
        HostError: The wire server failed inside: what it counted is no evidence.
    """
    if stage.server is None:
        return 0, 0, 0
    ledger = stage.server.ledger()
    if ledger.internal_errors or ledger.forward is None:
        raise HostError(f"the wire server failed: {'; '.join(ledger.internal_errors) or 'it has no forwarder'}")
    return ledger.forward.bytes.client_to_proxy, ledger.forward.bytes.proxy_to_client, len(ledger.forward.requests)


def _network_fields(stage: Stage, before: tuple[int, int, int]) -> Row:
    """What the agent's own operations moved over the wire, without the harness's seeding and reading back."""
    if stage.server is None:
        reason = NO_WIRE if stage.spec.loop.transport is Transport.FILE else "no forwarder stands on this wire"
        return {"network_bytes": None, "network_bytes_reason": reason}
    up, down, requests = (now - then for now, then in zip(_traffic(stage), before, strict=True))
    return {
        "network_bytes": up + down,
        "network_up_bytes": up,
        "network_down_bytes": down,
        "network_requests": requests,
    }


def _count(row: Row, name: str) -> int:
    value = row[name]
    return value if isinstance(value, int) else 0
