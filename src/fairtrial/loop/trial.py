"""One trial of the tool lane, from top to bottom."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from fairtrial.errors import HostError
from fairtrial.loop.fault_cases import chosen_cases
from fairtrial.loop.faulted import play_faults
from fairtrial.loop.interrupted import play_interrupted
from fairtrial.loop.oak_local import play_oak_local
from fairtrial.loop.parallel import play_parallel
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.stage import Stage, open_stage
from fairtrial.loop.tasks import play_tasks
from fairtrial.model.loop import Play, Transport
from fairtrial.model.trial import TrialSpec
from fairtrial.protocols import Subject
from fairtrial.store.redact import Redactor
from fairtrial.wire.ledger import render_ledger

__all__ = ["TrialRecord", "run_loop_trial"]

PLAYS: Final[Mapping[Play, Callable[[Stage, RowBuilder, list[Row]], Row]]] = {
    Play.TASKS: play_tasks,
    Play.FAULTS: play_faults,
    Play.INTERRUPTED: play_interrupted,
    Play.OAK_LOCAL: play_oak_local,
    Play.PARALLEL: play_parallel,
}
"""Everything between an empty stage and the total row; rows are appended as they come, so that none is lost."""


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
    builder = RowBuilder.of(spec, scenario)
    if spec.loop.skip_reason is not None:
        return TrialRecord(rows=(builder.skip(scenario.stem, spec.loop.skip_reason),))
    rows: list[Row] = []
    artifacts: dict[str, bytes] = {}
    try:
        with open_stage(spec, scenario, subject) as stage:
            try:
                total = _play_and_withdraw(stage, builder, rows)
            finally:
                artifacts["transcript.jsonl"] = stage.transcript_bytes()
            ledger = stage.last_ledger if stage.server is None else stage.server.ledger()
            if ledger is not None:
                artifacts["wire.json"] = render_ledger(ledger).encode()
    except (HostError, OSError) as problem:
        total = builder.void(scenario.stem, "infra-error", str(problem))
    redactor = Redactor(os.environ.get(name, "") for name in spec.loop.credential_env)
    return TrialRecord(
        rows=tuple(cast("Row", _redacted(row, redactor)) for row in (*rows, total)),
        artifacts={name: redactor.redact(data) for name, data in artifacts.items()},
    )


def _redacted(value: object, redactor: Redactor) -> object:
    """What a tool or its server printed may hold the credential that it was given."""
    if isinstance(value, str):
        return redactor.redact_text(value)
    if isinstance(value, dict):
        return {name: _redacted(member, redactor) for name, member in cast("Row", value).items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(member, redactor) for member in cast("list[object]", value)]
    return value


def _play_and_withdraw(stage: Stage, builder: RowBuilder, rows: list[Row]) -> Row:
    """Play, and leave no branch of ours on a hosted remote: none of an earlier attempt that died, none of this one."""
    _withdraw(stage)
    try:
        total = PLAYS[stage.scenario.play](stage, builder, rows)
    finally:
        remained = _withdraw(stage)
    if remained:
        detail = f"branches remain on the hosted remote, delete them by hand: {remained}"
        total |= {"error_kind": total["error_kind"] or "cleanup-failure", "error_detail": detail}
    return total


def _withdraw(stage: Stage) -> str:
    """Delete this trial's branches from a hosted remote; "" when none is left."""
    if stage.spec.loop.transport is not Transport.HOSTED:
        return ""
    place = stage.places[stage.scenario.phases[0]]
    loop = stage.spec.loop
    cases = chosen_cases(loop.faults, loop.transport) if stage.scenario.play is Play.FAULTS else ()
    branches = {
        place.trunk,
        *(each.branch for each in stage.places.values()),
        *(stage.branch_of(c.name) for c in cases),
    }
    return stage.subject.withdraw(stage.probe, place, sorted(branches))
