"""Arguments to trials, in order. Pure."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairtrial.model.loop import Play, Probe, Scenario, Transport, Variant
from fairtrial.model.trial import LoopTask, trial_key

__all__ = ["LoopOptions", "PlannedTrial", "SubjectFound", "move_programs", "order_digest", "plan_loop", "skip_reason"]

_NULL: Final = "(null)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectFound:
    """A subject as configured and as found on this host.

    Attributes:
        variant: The configuration; its binary is resolved when the probe found one.
        kind: The plugin's kind.
        transports: The transports the plugin can be driven over.
        probe: What the host has.
        plugin_sha256: Digest of the plugin's source files.
    """

    variant: Variant
    kind: str
    transports: frozenset[Transport]
    probe: Probe
    plugin_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """What the user asked of the tool lane.

    Attributes:
        scenarios: Scenario names, in the order asked.
        subjects: Subject names, in the order asked.
        transports: Transports, in the order asked.
        runs: Runs of each cell.
        seed: Seed of the order inside blocks.
        admitted_output_characters: Output characters that count towards a token estimate, per command.
        n_seed_files: Files of the seeded tree besides README and notes.
        hosted_remote: Address of a disposable hosted remote, or None.
        credential_env: Names of variables that the client of the hosted remote may see.
        faults: Fault cases to play, where a scenario plays any; none named = all.
    """

    scenarios: tuple[str, ...]
    subjects: tuple[str, ...]
    transports: tuple[Transport, ...]
    runs: int
    seed: int
    admitted_output_characters: int
    n_seed_files: int
    hosted_remote: str | None = None
    credential_env: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """One trial of the plan.

    Attributes:
        plan_index: 0-based place in the plan.
        key: Its identity.
        loop: What to do.
    """

    plan_index: int
    key: str
    loop: LoopTask

    @property
    def block(self) -> str:
        """The block it belongs to."""
        return self.loop.block


def skip_reason(
    scenario: Scenario, subject: SubjectFound, transport: Transport, options: LoopOptions, unset: Sequence[str]
) -> str | None:
    """Why a cell of the plan cannot be measured here; None when it can.

    Args:
        scenario: The scenario.
        subject: The subject as found here.
        transport: The transport.
        options: What the user asked.
        unset: Credential variables that the user named and that are not set.
    """
    if subject.probe.missing is not None:
        return subject.probe.missing
    if scenario.subject_kinds is not None and subject.kind not in scenario.subject_kinds:
        return scenario.skip_text
    if scenario.transports is not None and transport not in scenario.transports:
        return f"{scenario.name} is defined for transport {', '.join(sorted(scenario.transports))} only"
    if transport not in subject.transports:
        return f"subject {subject.variant.name} cannot be driven over transport {transport}"
    if transport is Transport.HOSTED and options.hosted_remote is None:
        return "no hosted remote is configured: name a disposable one with --remote-is-disposable URL"
    if transport is Transport.HOSTED and unset:
        return f"credential variables are not set: {', '.join(unset)}"
    return None


def plan_loop(
    options: LoopOptions,
    scenarios: Mapping[str, Scenario],
    subjects: Sequence[SubjectFound],
    unset: Sequence[str] = (),
) -> tuple[PlannedTrial, ...]:
    """All trials of a tool sweep, block after block.

    A block is one scenario over one transport in one run: every subject that can run it and the null control, in an
    order made by sorting sha256(seed, block, name). A cell that cannot be measured is planned once, as a visible
    skip row.
    """
    tasks: list[LoopTask] = []
    for run in range(options.runs):
        for name in options.scenarios:
            for transport in options.transports:
                tasks.extend(_block(options, scenarios[name], transport, run, subjects, unset))
    return tuple(PlannedTrial(plan_index=index, key=_key(task), loop=task) for index, task in enumerate(tasks))


def _key(task: LoopTask) -> str:
    return trial_key("loop", task.scenario, task.transport.value, task.variant.name, task.run)


def _block(
    options: LoopOptions,
    scenario: Scenario,
    transport: Transport,
    run: int,
    subjects: Sequence[SubjectFound],
    unset: Sequence[str],
) -> Iterator[LoopTask]:
    block = f"{scenario.name}/{transport}/{run}"
    able: list[LoopTask] = []
    for subject in subjects:
        reason = skip_reason(scenario, subject, transport, options, unset)
        task = _task(options, scenario, transport, run, block, subject, reason)
        if reason is None:
            able.append(task)
        elif run == 0:
            yield task
    if able:
        able.append(_null_control(able))
    order = sorted(able, key=lambda task: order_digest(options.seed, block, task.variant.name))
    names = tuple(task.variant.name for task in order)
    for position, task in enumerate(order):
        yield replace(task, position_in_block=position, block_order=names)


def order_digest(seed: int, block: str, name: str) -> str:
    """What the members of a block are sorted by: drift and warm caches fall on every side alike."""
    return hashlib.sha256(f"{seed}\0{block}\0{name}".encode()).hexdigest()


def _null_control(able: Sequence[LoopTask]) -> LoopTask:
    """Git a second time under another name; without git among the subjects, the first of them."""
    measured = next((task for task in able if task.variant.name == "git"), able[0])
    name = f"{measured.variant.name}{_NULL}"
    variant = replace(measured.variant, name=name, label=f"{measured.variant.label}{_NULL}")
    return replace(measured, variant=variant, null_control=True)


def move_programs(plan: Sequence[PlannedTrial], subjects: Sequence[SubjectFound]) -> tuple[PlannedTrial, ...]:
    """The plan with each program where it lies now: the same bytes may have moved since the plan was made."""
    places = {subject.variant.name: subject.variant.binary for subject in subjects}
    return tuple(
        replace(
            trial, loop=replace(trial.loop, variant=replace(variant, binary=places[variant.name.removesuffix(_NULL)]))
        )
        for trial in plan
        for variant in (trial.loop.variant,)
    )


def _task(
    options: LoopOptions,
    scenario: Scenario,
    transport: Transport,
    run: int,
    block: str,
    subject: SubjectFound,
    reason: str | None,
) -> LoopTask:
    return LoopTask(
        scenario=scenario.name,
        variant=subject.variant,
        subject_kind=subject.kind,
        transport=transport,
        run=run,
        block=block,
        position_in_block=0,
        block_order=(subject.variant.name,),
        null_control=False,
        skip_reason=reason,
        admitted_output_characters=options.admitted_output_characters,
        n_seed_files=options.n_seed_files,
        hosted_remote=options.hosted_remote if transport is Transport.HOSTED else None,
        credential_env=options.credential_env if transport is Transport.HOSTED else (),
        faults=options.faults if scenario.play is Play.FAULTS else (),
    )
