"""What every play of a trial is made of: preparing the store, carrying out operations, counting what the wire saw."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from fairtrial.errors import HostError
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.seed import NOTES, seed_files, write_seed
from fairtrial.loop.stage import STEP_LIMIT_S, Stage, Wire
from fairtrial.loop.truth import Expectation
from fairtrial.model.loop import Motion, Operation, Place, Setup, Step, Transport
from fairtrial.model.process import ProcessResult
from fairtrial.wire.ledger import ForwardLedger

__all__ = [
    "NO_WIRE",
    "Meter",
    "Traffic",
    "edit_step",
    "expectation",
    "forward_ledger",
    "network_fields",
    "notes",
    "payload",
    "perform",
    "planned_operations",
    "prepare",
    "row_of",
    "step_kind",
    "step_row",
    "steps_of",
    "traffic",
]

NO_WIRE: Final = {
    Transport.FILE: "the file transport has no wire to count on",
    Transport.HTTP: "no forwarder was started",
    Transport.NATIVE: "no forwarder was started",
    Transport.SSH: "no stand-in for ssh was started",
    Transport.HOSTED: "a hosted wire is not ours to count",
}


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
            expected[operation.phase] = expectation(stage, operation.phase)
        for step in steps_of(stage, operation):
            row = step_row(stage, builder, operation, step)
            rows.append(row)
            if operation.motion is Motion.ACQUIRE and row["returncode"] != 0:
                return expected
    return expected


def planned_operations(stage: Stage) -> list[str]:
    """The operation name of every row that the scenario demands of this subject."""
    planned: list[str] = []
    for operation in stage.scenario.operations:
        if operation.hole is not None or operation.motion is None:
            planned.append(operation.name)
        else:
            planned.extend(step.row_name(operation.name) for step in steps_of(stage, operation))
    return planned


def steps_of(stage: Stage, operation: Operation) -> tuple[Step, ...]:
    """The commands that carry out an operation of the scenario."""
    if operation.motion is None:
        return ()
    if operation.motion is Motion.EDIT:
        return (edit_step(stage.places[operation.phase], payload(stage, operation.phase)),)
    return stage.subject.steps(operation.motion, operation.manner, stage.places[operation.phase])


def edit_step(place: Place, line: str) -> Step:
    """The edit, the same for every subject: one line more in the notes."""
    script = 'printf "%s\\n" "$1" >> "$2"'
    return Step(argv=("/bin/sh", "-c", script, "sh", line, NOTES), cwd=place.workspace)


def step_row(
    stage: Stage, builder: RowBuilder, operation: Operation, step: Step, *, limit_s: float = STEP_LIMIT_S
) -> Row:
    """Run one command of an operation and give its row."""
    return row_of(stage, builder, operation, step, stage.run_step(step, limit_s=limit_s))


def row_of(stage: Stage, builder: RowBuilder, operation: Operation, step: Step, result: ProcessResult) -> Row:
    """The row of a command of an operation that was just run."""
    row = builder.step(
        step.row_name(operation.name), step_kind(stage, step), stage.shown(step.argv), step.expected, result
    )
    motion = operation.motion
    if row["returncode"] == 0 and motion and (reason := stage.subject.belied(motion, result)):
        row |= {"returncode": 1, "stderr": reason}
    return row | {"transcript_line": len(stage.transcript) - 1}


def step_kind(stage: Stage, step: Step) -> str:
    """`vcs` for a command of the tool under test, else `edit`."""
    return "vcs" if step.argv[0] == stage.spec.loop.variant.binary else "edit"


def payload(stage: Stage, phase: str) -> str:
    """The line that a phase's edit appends."""
    return f"- {phase} of run {stage.spec.loop.run} in {stage.spec.sweep}"


def notes(*lines: str) -> bytes:
    """The exact bytes of the notes once these lines were appended to the seed's."""
    return dict(seed_files(0))[NOTES] + "".join(f"{line}\n" for line in lines).encode()


def expectation(stage: Stage, phase: str) -> Expectation:
    """What a phase must leave on the server, read before it publishes."""
    place = stage.places[phase]
    head = stage.subject.client_head(stage.probe, place)
    return Expectation(branch=place.branch, head=head, content=notes(payload(stage, phase)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What the wire has seen so far, between clients and forwarder.

    Attributes:
        up_bytes: From clients.
        down_bytes: To clients.
        n_requests: Requests that have ended.
    """

    up_bytes: int
    down_bytes: int
    n_requests: int


def traffic(stage: Stage) -> Traffic | None:
    """What the wire has seen so far; None where no forwarder stands.

    Raises:
        HostError: The wire server failed inside: what it counted is no evidence.
    """
    if stage.server is None:
        return None
    forward = forward_ledger(stage.server)
    return Traffic(
        up_bytes=forward.bytes.client_to_proxy,
        down_bytes=forward.bytes.proxy_to_client,
        n_requests=len(forward.requests),
    )


def forward_ledger(server: Wire) -> ForwardLedger:
    """What the forwarder saw so far.

    Raises:
        HostError: The wire server failed inside: what it counted is no evidence.
    """
    ledger = server.ledger()
    if ledger.internal_errors or ledger.forward is None:
        raise HostError(f"the wire server failed: {'; '.join(ledger.internal_errors) or 'it has no forwarder'}")
    return ledger.forward


class Meter:
    """Counts what the agent's own operations move over the wire, and nothing that the harness does in between.

    Attributes:
        moved: What was moved so far; None where no forwarder stands.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.moved = None if stage.server is None else Traffic(up_bytes=0, down_bytes=0, n_requests=0)

    @contextmanager
    def running(self) -> Generator[None]:
        """Count for the length of the context."""
        before = traffic(self._stage)
        yield
        now = traffic(self._stage)
        if before is not None and now is not None and self.moved is not None:
            self.moved = Traffic(
                up_bytes=self.moved.up_bytes + now.up_bytes - before.up_bytes,
                down_bytes=self.moved.down_bytes + now.down_bytes - before.down_bytes,
                n_requests=self.moved.n_requests + now.n_requests - before.n_requests,
            )


def network_fields(stage: Stage, moved: Traffic | None) -> Row:
    """What the agent's own operations moved over the wire, without the harness's seeding and reading back."""
    if moved is None:
        return {"network_bytes": None, "network_bytes_reason": NO_WIRE[stage.spec.loop.transport]}
    return {
        "network_bytes": moved.up_bytes + moved.down_bytes,
        "network_up_bytes": moved.up_bytes,
        "network_down_bytes": moved.down_bytes,
        **({"network_requests": moved.n_requests} if stage.spec.loop.transport is Transport.HTTP else {}),
    }
