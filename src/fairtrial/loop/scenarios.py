"""Scenarios as data. A name is immutable: a changed meaning is a new name."""

import hashlib
import json
from dataclasses import asdict
from typing import Final, cast

from fairtrial.model.loop import Manner, Motion, Operation, Play, RemoteWords, Scenario, Setup, Transport

__all__ = ["SCENARIOS", "scenario_digest"]

NO_REVIEW: Final = "a local server has no review to hand over to"
PARALLEL_TASKS: Final = tuple(f"task{n}" for n in range(8))
LOOPBACK: Final = "127.0.0.1"
TASK_LOOP: Final = "task-loop"
FAILURE_EVIDENCE: Final = "failure-evidence"
NO_CI: Final = "a local remote has no continuous integration to observe"


def _task(phase: str, *, describe: bool) -> tuple[Operation, ...]:
    described = (Operation(name=f"{phase}.describe", phase=phase, motion=Motion.DESCRIBE),) if describe else ()
    return (
        Operation(name=f"{phase}.acquire", phase=phase, motion=Motion.ACQUIRE, manner=Manner.WARM),
        Operation(name=f"{phase}.edit", phase=phase, motion=Motion.EDIT),
        Operation(name=f"{phase}.snapshot", phase=phase, motion=Motion.SNAPSHOT),
        Operation(name=f"{phase}.publish", phase=phase, motion=Motion.PUBLISH),
        *described,
        Operation(name=f"{phase}.end", phase=phase, motion=Motion.END),
    )


def _agent_task(phase: str, manner: Manner) -> tuple[Operation, ...]:
    return (
        Operation(name=f"{phase}.acquire", phase=phase, motion=Motion.ACQUIRE, manner=manner),
        Operation(name=f"{phase}.inspect", phase=phase, motion=Motion.INSPECT),
        Operation(name=f"{phase}.edit", phase=phase, motion=Motion.EDIT),
        Operation(name=f"{phase}.checkpoint", phase=phase, motion=Motion.SNAPSHOT),
        Operation(name=f"{phase}.publish", phase=phase, motion=Motion.PUBLISH),
        Operation(name=f"{phase}.ci.observe", phase=phase, motion=None, hole=NO_CI),
        Operation(name=f"{phase}.review_handoff", phase=phase, motion=Motion.DESCRIBE, manner=Manner.REVIEW),
    )


def _oak_task(phase: str, manner: Manner) -> tuple[Operation, ...]:
    return (
        Operation(name=f"{phase}.acquire", phase=phase, motion=Motion.ACQUIRE, manner=manner),
        Operation(name=f"{phase}.inspect", phase=phase, motion=Motion.INSPECT),
        Operation(name=f"{phase}.edit", phase=phase, motion=Motion.EDIT),
        Operation(name=f"{phase}.checkpoint", phase=phase, motion=Motion.SNAPSHOT),
        Operation(name=f"{phase}.publish", phase=phase, motion=Motion.PUBLISH),
        Operation(name=f"{phase}.ci.observe", phase=phase, motion=None, hole=NO_CI),
        Operation(name=f"{phase}.review_handoff", phase=phase, motion=None, hole=NO_REVIEW),
    )


def _parallel_task(phase: str) -> tuple[Operation, ...]:
    return (
        Operation(name=f"{phase}.acquire", phase=phase, motion=Motion.ACQUIRE, manner=Manner.WARM),
        Operation(name=f"{phase}.edit", phase=phase, motion=Motion.EDIT),
        Operation(name=f"{phase}.snapshot", phase=phase, motion=Motion.SNAPSHOT),
        Operation(name=f"{phase}.publish", phase=phase, motion=Motion.PUBLISH),
    )


SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="task_loop",
            stem="task_loop",
            profile=TASK_LOOP,
            phases=("task", "followup"),
            shared_base=True,
            setup=Setup.UNTIMED,
            operations=(*_task("task", describe=True), *_task("followup", describe=False)),
        ),
        Scenario(
            name="agent_task_baseline_v1",
            stem="agent_task",
            profile=TASK_LOOP,
            phases=("cold", "warm"),
            shared_base=False,
            setup=Setup.ROWS,
            operations=(
                *_agent_task("cold", Manner.FRESH),
                *_agent_task("warm", Manner.WARM),
                Operation(name="cleanup.warm", phase="warm", motion=Motion.END),
                Operation(name="cleanup.cold", phase="cold", motion=None),
            ),
            transports=frozenset({Transport.FILE}),
            subject_kinds=frozenset({"git"}),
            skip_text="publication needs an explicit disposable staging lane",
        ),
        Scenario(
            name="agent_task_oak_local_v1",
            stem="agent_task_oak_local",
            profile=TASK_LOOP,
            phases=("cold", "followup"),
            shared_base=False,
            setup=Setup.ROWS,
            operations=(*_oak_task("cold", Manner.FRESH), *_oak_task("followup", Manner.JOIN)),
            transports=frozenset({Transport.HTTP}),
            subject_kinds=frozenset({"oak"}),
            skip_text="it is oak's own baseline, against its own server",
            play=Play.OAK_LOCAL,
            remote=RemoteWords(transport="loopback_http", server=LOOPBACK),
            track="oak-local-loopback",
        ),
        Scenario(
            name="publication_under_fault_v1",
            stem="publication_under_fault",
            profile=TASK_LOOP,
            phases=("seed",),
            shared_base=False,
            setup=Setup.UNTIMED,
            operations=(),
            transports=frozenset(Transport),
            play=Play.FAULTS,
            track=FAILURE_EVIDENCE,
        ),
        Scenario(
            name="parallel_tasks_v1",
            stem="parallel_tasks",
            profile=TASK_LOOP,
            phases=PARALLEL_TASKS,
            shared_base=True,
            setup=Setup.UNTIMED,
            operations=tuple(operation for task in PARALLEL_TASKS for operation in _parallel_task(task)),
            transports=frozenset({Transport.FILE, Transport.HTTP, Transport.NATIVE, Transport.SSH}),
            play=Play.PARALLEL,
        ),
        Scenario(
            name="interrupted_publication_after_request_v1",
            stem="interrupted_publication",
            profile=TASK_LOOP,
            phases=("publication",),
            shared_base=False,
            setup=Setup.ROWS,
            operations=(),
            transports=frozenset({Transport.HTTP}),
            subject_kinds=frozenset({"oak"}),
            skip_text="the fixture speaks oak's protocol",
            play=Play.INTERRUPTED,
            remote=RemoteWords(transport="loopback_fault_fixture", server=LOOPBACK),
            track=FAILURE_EVIDENCE,
        ),
    )
}


def scenario_digest(scenario: Scenario) -> str:
    """sha256 over everything that the scenario means; it pins the scenario in `sweep.json`."""
    return hashlib.sha256(json.dumps(asdict(scenario), sort_keys=True, default=_sorted).encode()).hexdigest()


def _sorted(value: object) -> list[str]:
    if isinstance(value, frozenset):
        return sorted(str(each) for each in cast("frozenset[object]", value))
    message = f"{value!r} has no place in a scenario"
    raise TypeError(message)
