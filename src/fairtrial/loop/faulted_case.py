"""One publication under one fault: what the client claimed, what the wire saw, what the server holds, what it costs."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fairtrial.evidence.publication import Verdict, decide_verdict
from fairtrial.loop.fault_cases import ClientEnd, FaultCase
from fairtrial.loop.join import RIVAL_LINE, join_rival
from fairtrial.loop.observe import read_delivery, server_truth
from fairtrial.loop.recovery import Recovery, free_row, recover
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.stage import STEP_LIMIT_S, HeadLook, Stage
from fairtrial.loop.truth import Expectation, judge_truth, unread_of
from fairtrial.loop.validity import DRAIN_S, landed_unseen, why_invalid
from fairtrial.loop.verdict_row import (
    Prepared,
    Published,
    case_fields,
    fault_fields,
    invalid_fields,
    last_words,
    local_fields,
    notes_sha256,
    wire_fields,
)
from fairtrial.loop.work import NO_WIRE, Meter, edit_step, forward_ledger, notes, payload, step_row, traffic
from fairtrial.model.loop import Manner, Motion, Operation, Place, Step, Transport
from fairtrial.model.process import ProcessResult, ProcessState

__all__ = ["CaseResult", "play_case"]

HUNG_S: Final = 3.0
QUIET_S: Final = 1.0  # longer than a busy machine keeps a client from its next write
LANDING_S: Final = 2.0
LOOK_S: Final = 0.2
NOT_NEEDED: Final = "nothing to recover from"
NO_SERVER_FAULT: Final = "this tool's server has no such fault"
NO_RIVAL: Final = "this subject does not join a branch that is published already"
NO_FORCE: Final = "this tool has no forced publication"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What one case left.

    Attributes:
        row: Its verdict row, or a hole.
        n_mutations: Publishing requests that the wire saw; None when there was no wire or no case.
        holds: The branch holds the client's work at the very end; None where that was not the aim or was not looked at.
    """

    row: Row
    n_mutations: int | None = None
    holds: bool | None = None


class _Retried(NamedTuple):
    """What a blind retry left: its fields, whether the branch holds the client's work, what could not be read."""

    fields: Row
    holds: bool | None
    unread: str


def play_case(
    stage: Stage, builder: RowBuilder, rows: list[Row], case: FaultCase, meter: Meter, *, n_usual: int
) -> CaseResult:
    """Do the work of one case, publish it under the fault, and find out everything about it.

    Args:
        stage: Where; its store is shared by all cases, its branch and workspace are the case's own.
        builder: Makes the rows.
        rows: Takes a row for each of the agent's commands.
        case: What is done.
        meter: Counts what the agent's own commands move.
        n_usual: Publishing requests of an undisturbed publication by this subject over this transport.
    """
    name = f"{case.name}.verdict"
    place = stage.open_place(case.name)
    hole = _hole(stage, case, place)
    if hole:
        return CaseResult(row=builder.hole(name, hole))
    with meter.running():
        problem = _work(stage, builder, rows, case)
    if problem:
        return CaseResult(
            row=builder.harness(name, elapsed_ms=None, n_commands=0, returncode=1)
            | invalid_fields(stage, case, problem)
        )
    prepared = _prepare(stage, case)
    published = _publish(stage, builder, rows, case, prepared, meter)
    wire = None
    if published.ledger is not None:
        seen = published.ledger.requests[published.requests_from :]
        wire = read_delivery(seen, _publication_on(stage), n_usual=n_usual)
    truth, failures = server_truth(prepared.expected, published.at_exit.head, published.truth)
    problem = why_invalid(case, prepared, published, wire, truth)
    claim = stage.subject.claim(published.result)
    verdict = None
    if not problem and truth is not None:
        verdict = decide_verdict(claim, None if wire is None else wire.delivery, truth)
    local = local_fields(stage, prepared)
    with meter.running():
        recovery = _recover(stage, builder, rows, case, prepared, verdict)
    mended = _mend(stage, prepared, recovery)
    found = stage.server_head(case.name)
    late = landed_unseen(truth, prepared.expected.head, found.head, n_publishes=recovery.n_publishes)
    alone = recovery.recovered is not False or mended is not None
    again = _retry(stage, case.name, prepared, before=found, holds_alone=alone)
    problem = problem or late or again.unread
    joined_head = None
    if _must_join(case, prepared):  # after the blind retry, which is about work that nobody has joined
        with meter.running():
            joined = join_rival(stage, builder, rows, case.name, _lines(stage, case, RIVAL_LINE))
        recovery, joined_head = recovery.then(joined.recovery), joined.head
        problem = problem or joined.unread
    if problem:
        verdict = None
    row = builder.harness(name, elapsed_ms=published.elapsed_ms, n_commands=0, returncode=1 if problem else 0)
    row |= case_fields(stage, case) | {
        "valid": not problem,
        "invalid_reason": problem or None,
        **fault_fields(published.ledger, prepared.sabotage),
        "client_claim": claim,
        "client_returncode": published.result.returncode,
        "client_timed_out": published.result.timed_out,
        "client_killed": case.client_end is ClientEnd.KILLED and published.result.forced_kill,
        "client_complaint": stage.subject.belied(Motion.PUBLISH, published.result)[:400] or None,
        "client_said": last_words(published.result),
        **wire_fields(stage, published, wire),
        "server_head_at_exit": published.at_exit.head,
        "server_truth": truth,
        "fork_heads": sorted({head for reading in published.truth.readings for head in reading.beside}),
        "truth_failures": list(failures),
        "verdict": verdict,
        **local,
        "server_integrity": published.truth.integrity,
        "server_integrity_detail": published.truth.integrity_detail or None,
        "server_revived": published.revived,
        **recovery.as_fields(NO_WIRE[stage.spec.loop.transport]),
        "joined_head": joined_head,
        "server_repair": mended,
        **again.fields,
    }
    aimed = prepared.rival is None or case.manner is Manner.FORCE
    return CaseResult(
        row=row, n_mutations=None if wire is None else wire.n_mutations, holds=again.holds if aimed else None
    )


def _hole(stage: Stage, case: FaultCase, place: Place) -> str:
    """Why this subject has no such case; "" when it has."""
    if case.store is not None and stage.subject.sabotage(case.store, place) is None:
        return NO_SERVER_FAULT
    if case.rival and not stage.subject.steps(Motion.ACQUIRE, Manner.JOIN, place):
        return NO_RIVAL
    if case.manner is Manner.FORCE and not stage.subject.steps(Motion.PUBLISH, Manner.FORCE, place):
        return NO_FORCE
    return ""


def _work(stage: Stage, builder: RowBuilder, rows: list[Row], case: FaultCase) -> str:
    """Acquire, edit and snapshot; with a rival, publish once and work once more. Why it failed, or ""."""
    name = case.name
    plan = [(f"{name}.acquire", Motion.ACQUIRE, Manner.FRESH), (f"{name}.edit", Motion.EDIT, Manner.PLAIN)]
    plan.append((f"{name}.snapshot", Motion.SNAPSHOT, Manner.PLAIN))
    if case.rival:
        plan.append((f"{name}.publish_first", Motion.PUBLISH, Manner.PLAIN))
        plan.append((f"{name}.edit_again", Motion.EDIT, Manner.PLAIN))
        plan.append((f"{name}.snapshot_again", Motion.SNAPSHOT, Manner.JOIN))
    for operation, motion, manner in plan:
        for step in _steps(stage, name, motion, manner, line=payload(stage, operation)):
            row = step_row(stage, builder, Operation(name=operation, phase=name, motion=motion, manner=manner), step)
            rows.append(row)
            if row["returncode"] != 0:
                return f"{row['operation']} failed: {row.get('stderr', '')}"[:400]
        if motion is Motion.ACQUIRE:
            stage.settle_branch(name)
    return ""


def _steps(stage: Stage, phase: str, motion: Motion, manner: Manner, *, line: str) -> tuple[Step, ...]:
    place = stage.places[phase]
    return (edit_step(place, line),) if motion is Motion.EDIT else stage.subject.steps(motion, manner, place)


def _prepare(stage: Stage, case: FaultCase) -> Prepared:
    """Read what is about to be published; let the rival go first; make the store fail."""
    stage.settle_branch(case.name)
    place = stage.places[case.name]
    rival = _send_rival(stage, place) if case.rival else None
    before = stage.server_head(case.name) if case.rival else None  # a push may end with 0 and have published nothing
    sabotage = None if case.store is None else stage.subject.sabotage(case.store, place)
    if sabotage is not None:
        stage.prepare(sabotage.arm)
    place = stage.places[case.name] = replace(place, published=stage.subject.client_head(stage.probe, place))
    return Prepared(
        place=place,
        expected=Expectation(
            branch=place.branch,
            head=place.published,
            content=_lines(stage, case),
        ),
        notes_sha256=notes_sha256(place),
        rival=rival,
        before=before,
        sabotage=sabotage,
    )


def _lines(stage: Stage, case: FaultCase, *between: str) -> bytes:
    """The notes with the lines of the client's edits, and others before the last of them."""
    edits = [f"{case.name}.edit", f"{case.name}.edit_again"] if case.rival else [f"{case.name}.edit"]
    *earlier, last = (payload(stage, edit) for edit in edits)
    return notes(*earlier, *between, last)


def _must_join(case: FaultCase, prepared: Prepared) -> bool:
    """Whether there is another writer's work that the client neither had nor meant to replace."""
    return prepared.rival is not None and case.manner is not Manner.FORCE


def _send_rival(stage: Stage, place: Place) -> str | None:
    """Let another writer join the branch, work and publish; its head."""
    rival = replace(place, workspace=place.workspace.with_name(f"{place.workspace.name}-rival"), message="Be first")
    stage.prepare(stage.subject.steps(Motion.ACQUIRE, Manner.JOIN, rival))
    stage.prepare((edit_step(rival, RIVAL_LINE),))
    stage.prepare(stage.subject.steps(Motion.SNAPSHOT, Manner.JOIN, rival))
    stage.prepare(stage.subject.steps(Motion.PUBLISH, Manner.PLAIN, rival))
    return stage.subject.client_head(stage.probe, rival)


def _publish(
    stage: Stage, builder: RowBuilder, rows: list[Row], case: FaultCase, prepared: Prepared, meter: Meter
) -> Published:
    """Publish under the fault, look at the store, wait until nothing is in flight, look again."""
    server, hosted = stage.server, stage.spec.loop.transport is Transport.HOSTED
    before = 0
    if server is not None:
        before = len(forward_ledger(server).requests)
        rules = [] if case.wire is None else [case.wire.rule(_publication_on(stage))]
        server.set_faults(rules, case.reuse)
    steps = stage.subject.steps(Motion.PUBLISH, case.manner, prepared.place)
    with meter.running():
        results = [_run_publication(stage, case, step) for step in steps]
        begun_s = time.perf_counter()
        at_exit = stage.server_head(case.name)
        drained = server.drain(DRAIN_S) if server is not None else None if hosted else True
    rows.extend(
        free_row(stage, builder, f"{case.name}.publish", step, result)
        for step, result in zip(steps, results, strict=True)
    )
    ledger = None if server is None else forward_ledger(server)
    if server is not None:
        server.set_faults([], case.reuse)
    if prepared.sabotage is not None:
        stage.prepare(prepared.sabotage.disarm)
    revived = stage.revive_server()
    if case.client_end is not ClientEnd.ITS_OWN:
        _await_landing(stage, case, prepared)
    truth = stage.read_back(case.name)
    return Published(
        result=results[-1],
        at_exit=at_exit,
        drained=drained,
        revived=revived,
        requests_from=before,
        ledger=ledger,
        truth=truth,
        elapsed_ms=(time.perf_counter() - begun_s) * 1000,
    )


def _await_landing(stage: Stage, case: FaultCase, prepared: Prepared) -> None:
    """Give the server time for a request whose client is gone: no connection tells any more when it has done it."""
    deadline_s = time.monotonic() + LANDING_S
    while stage.server_head(case.name).head != prepared.expected.head and time.monotonic() < deadline_s:
        time.sleep(LOOK_S)


def _publication_on(stage: Stage) -> str:
    """What tells a publication on this wire: a request of HTTP, or a mark in the tool's own protocol."""
    http = stage.spec.loop.transport is Transport.HTTP
    return stage.subject.publication_request if http else stage.subject.publication_mark


def _run_publication(stage: Stage, case: FaultCase, step: Step) -> ProcessResult:
    match case.client_end:
        case ClientEnd.KILLED:
            return stage.run_until_killed(step, _request_is_held(stage), ProcessState.FORCED_KILL)
        case ClientEnd.TIME_LIMIT:
            return stage.run_until_killed(step, _hangs(stage), ProcessState.TIMEOUT)
        case ClientEnd.ITS_OWN:
            return stage.run_step(step, limit_s=STEP_LIMIT_S)


def _request_is_held(stage: Stage) -> Callable[[], bool]:
    """Whether the forwarder has all of the publishing request: it matched, and no byte came for a while."""
    last_bytes, since_s = -1, time.monotonic()

    def held() -> bool:
        nonlocal last_bytes, since_s
        if stage.server is None:
            return False
        ledger = forward_ledger(stage.server)
        if ledger.bytes.client_to_proxy != last_bytes:
            last_bytes, since_s = ledger.bytes.client_to_proxy, time.monotonic()
        return any(report.n_matched for report in ledger.faults) and time.monotonic() - since_s > QUIET_S

    return held


def _hangs(stage: Stage) -> Callable[[], bool]:
    """Whether the fault has hit the client so long ago that it must be taken for hung."""
    since_s: float | None = None

    def hung() -> bool:
        nonlocal since_s
        if stage.server is None:
            return False
        if since_s is None and any(report.n_fired for report in forward_ledger(stage.server).faults):
            since_s = time.monotonic()
        return since_s is not None and time.monotonic() - since_s > HUNG_S

    return hung


def _recover(
    stage: Stage, builder: RowBuilder, rows: list[Row], case: FaultCase, prepared: Prepared, verdict: Verdict | None
) -> Recovery:
    joins = _must_join(case, prepared)  # though it was published: a tool may have taken it beside the other's
    if verdict in {Verdict.TRUE_SUCCESS, Verdict.SILENT_RECOVERY} and not joins:
        return Recovery(recovered=None, reason=NOT_NEEDED, n_bytes=None if traffic(stage) is None else 0)
    if prepared.expected.head is None:
        return Recovery(recovered=None, reason="no head could be read before the publication")
    rival = prepared.rival if joins else None
    return recover(stage, builder, rows, case.name, prepared.expected.head, rival=rival)


def _mend(stage: Stage, prepared: Prepared, recovery: Recovery) -> list[str] | None:
    """Repair the server by hand where the client's own recovery came to nothing; the commands, None without any."""
    repair = () if prepared.sabotage is None or recovery.recovered is not False else prepared.sabotage.repair
    stage.prepare(repair)
    return [stage.shown_line(step.argv) for step in repair] or None


def _retry(stage: Stage, case: str, prepared: Prepared, *, before: HeadLook, holds_alone: bool) -> _Retried:
    """Publish once more, as somebody who knows nothing would, and see what that does; then the truth for good.

    Args:
        stage: Where.
        case: Its name.
        prepared: What was published.
        before: The look at the branch's head in the store until then.
        holds_alone: Nothing more was to be expected of the recovery before it.
    """
    for step in stage.subject.steps(Motion.PUBLISH, Manner.PLAIN, prepared.place):
        stage.probe(step.argv, cwd=step.cwd)
    truth = stage.read_back(case)
    check = judge_truth(prepared.expected, truth)
    after = stage.server_head(case)
    unread = "; ".join(filter(None, (before.unread, *unread_of(truth), after.unread)))
    rival_stands = prepared.rival in {after.head, *(head for reading in truth.readings for head in reading.beside)}
    lost_rival = prepared.rival is not None and before.head == prepared.rival and not rival_stands
    unharmed = truth.integrity is not False and not lost_rival
    safe = unharmed and (check.holds is True or (prepared.rival is not None and after.head == before.head))
    unknown = unread
    if safe and truth.integrity is None:
        unknown = unknown or f"nobody can tell whether the store is sound: {truth.integrity_detail}"
    fields: Row = {
        "retry_safe": None if unknown else safe,
        "retry_safe_reason": unknown or None,
        "retry_failures": [] if safe else [*check.failures, *(["it replaced the other writer's work"] * lost_rival)],
        "final_head": after.head,
        "final_truth": check.holds,
        "rival_head": prepared.rival,
        "rival_still_head": None if unread or prepared.rival is None else rival_stands,
    }
    return _Retried(fields, check.holds if holds_alone else False, unread and f"not everything could be read: {unread}")
