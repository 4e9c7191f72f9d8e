"""Tasks, arms and runs to trials, in order. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fairtrial.bench.controls import CHEAT, EXIT_AT_IMPORT, NOP, REFERENCE, control_arm
from fairtrial.model.bench import Arm, BenchTrial, Blob, PhaseKind, Task
from fairtrial.model.sandbox import Containment
from fairtrial.model.trial import trial_key
from fairtrial.sweep.plan import order_digest
from fairtrial.workspace.skill_layout import SkillLayout

__all__ = [
    "BenchOptions",
    "CandidateOptions",
    "PlannedBench",
    "PluginOptions",
    "longest_trial_s",
    "plan_bench",
    "plan_controls",
]

N_JUDGES: Final = 3
"""The authored check, the oracle, and the oracle once more where a change edits tests."""
OWN_TIME_S: Final = 3 * 3600.0
"""What a worker may take for itself in one trial: for templates, a set-up or an index that another makes, graces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateOptions:
    """A candidate that is to be measured, and by what it will be judged.

    Attributes:
        overlay: Directory of its files (absolute).
        layout: Where the project keeps skills.
        project: Top of the project's work tree (absolute).
        min_runs: Valid runs that each side of each task needs.
        min_improvement_pct: Median improvement from which it is promoted.
        max_task_regression_pct: How much worse the metric of a task may get.
        proposer_model: The model that wrote it; None for a person.
        rehearsal: A script may play the model; what comes of it is good for trying `apply` out, and says so.
        provisional: Another sweep, the final gate, decides after this one; nothing of this one is applied.
    """

    overlay: str
    layout: SkillLayout
    project: str
    min_runs: int = 3
    min_improvement_pct: float = 5.0
    max_task_regression_pct: float = 20.0
    proposer_model: str | None = None
    rehearsal: bool = False
    provisional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
    """Where the operator has a plugin.

    Attributes:
        version: Its exact version.
        directory: Its directory (absolute).
    """

    version: str
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What the user asked of the agent lane, as `sweep.json` holds it; paths are absolute.

    Attributes:
        tasks: The task file.
        only: Ids of the tasks that run; none for all.
        include_expensive: Expensive tasks run too.
        arms: Names of the arms, in the order asked.
        arms_file: A person's own arms, or None.
        skills: Directories of skills by the name that presets call them by.
        plugins: Where plugins are that arms work with, by name.
        runs: Runs of each cell.
        model: The model.
        agent: The agent plugin.
        effort: How hard the model shall think, in the agent's word, or None.
        metric: What the arms are compared by.
        timeout_s: Seconds that a session, an authored check and an oracle may take, each.
        seed: Seed of the order inside blocks.
        outage_streak: Endings in a row, such as an outage causes, that stop the sweep; 0 for never.
        allow_unenforced: Limits that may go without enforcement.
        containment: What keeps trials in; NONE is for a look and never promotes.
        script: A scripted model's file that stands for the provider, or None.
        record: Each session's answers are kept as a script that plays them again.
        base_url: Address of the provider, or None for the dialect's own.
        key_env: Variable that holds the provider's key, or None for the dialect's own.
        key_file: File that holds the provider's key instead of a variable, or None.
        control_runs: Runs of the reference when controls are what runs; None when arms are.
        engine: The engine plugin that starts workers.
        candidate: The candidate whose arms run beside those in use, or None.
        context: The context plugin of arms that do not say otherwise, or None.
    """

    tasks: str
    arms: tuple[str, ...]
    model: str
    agent: str
    runs: int = 3
    only: tuple[str, ...] = ()
    include_expensive: bool = False
    arms_file: str | None = None
    skills: Mapping[str, str] = field(default_factory=dict[str, str])
    plugins: Mapping[str, PluginOptions] = field(default_factory=dict[str, PluginOptions])
    effort: str | None = None
    metric: str = "cost_usd"
    timeout_s: float = 3600.0
    seed: int = 0
    outage_streak: int = 5
    allow_unenforced: tuple[str, ...] = ()
    containment: Containment = Containment.BUBBLEWRAP
    script: str | None = None
    record: bool = False
    base_url: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    control_runs: int | None = None
    engine: str = "local"
    candidate: CandidateOptions | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBench:
    """One trial of the plan.

    Attributes:
        plan_index: 0-based place in the plan.
        key: Its identity.
        bench: What to do.
    """

    plan_index: int
    key: str
    bench: BenchTrial

    @property
    def block(self) -> str:
        """The block it belongs to."""
        return self.bench.block


def plan_bench(
    tasks: Sequence[Task],
    arms: Sequence[Arm],
    *,
    runs: int,
    seed: int,
    timeout_s: float,
) -> tuple[PlannedBench, ...]:
    """All trials of an agent sweep, block after block: a block is one task in one run over all arms."""
    trials = [
        trial
        for task in tasks
        for run in range(runs)
        for trial in _block(task, arms, run=run, seed=seed, timeout_s=timeout_s)
    ]
    return tuple(
        PlannedBench(plan_index=index, key=trial_key("bench", t.task.id, t.arm.name, t.run), bench=t)
        for index, t in enumerate(trials)
    )


def _block(task: Task, arms: Sequence[Arm], *, run: int, seed: int, timeout_s: float) -> Iterator[BenchTrial]:
    block = f"{task.id}/{run}"
    order = sorted(arms, key=lambda arm: order_digest(seed, block, arm.name))
    names = tuple(arm.name for arm in order)
    for position, arm in enumerate(order):
        trial = BenchTrial(
            task=task,
            arm=arm,
            run=run,
            block=block,
            position_in_block=position,
            block_order=names,
            timeout_s=timeout_s,
        )
        yield replace(trial, patch=task.reference) if arm.agent == REFERENCE else trial


def longest_trial_s(arms: Sequence[Arm], *, timeout_s: float) -> float:
    """Seconds after which a worker that does not answer hangs for a reason of ours.

    Whatever an agent and its change can make last does by then: else it could have its trial given up, and void it.

    Args:
        arms: The arms.
        timeout_s: Seconds of a session that has none of its own, and of each judge.
    """
    sessions_s = max(sum(phase.timeout_s or timeout_s for phase in arm.phases) for arm in arms)
    return sessions_s + N_JUDGES * timeout_s + OWN_TIME_S


def plan_controls(
    tasks: Sequence[Task], exits: Mapping[str, Blob], *, reference_runs: int, timeout_s: float
) -> tuple[PlannedBench, ...]:
    """All controls: for each task the nop agent, the reference several times, its cheats, and the exit at import.

    Args:
        tasks: The tasks.
        exits: The exit-at-import script by task id, where there is one.
        reference_runs: Runs of the reference.
        timeout_s: Seconds of a session, a check and an oracle, each.
    """
    trials: list[BenchTrial] = []
    for task in tasks:
        cells: list[tuple[str, int, Blob | None, Blob | None]] = [(NOP, 1, None, None)]
        if task.reference is not None:
            by_patch, by_script = (None, task.reference) if task.is_review else (task.reference, None)
            cells.append((REFERENCE, reference_runs, by_patch, by_script))
        cells += [(f"{CHEAT}{cheat.name}", 1, cheat.patch, cheat.script) for cheat in task.cheats]
        if task.id in exits:
            cells.append((EXIT_AT_IMPORT, 1, None, exits[task.id]))
        names = tuple(name for name, _, _, _ in cells)
        for name, runs, patch, script in cells:
            for run in range(runs):
                arm = control_arm(name, PhaseKind.REVIEW if task.is_review else PhaseKind.IMPLEMENT)
                trials.append(
                    BenchTrial(
                        task=task,
                        arm=replace(arm, agent=NOP if patch is None else REFERENCE),
                        run=run,
                        block=f"{task.id}/controls",
                        position_in_block=names.index(name),
                        block_order=names,
                        timeout_s=timeout_s,
                        patch=patch,
                        cheat=script,
                    )
                )
    return tuple(
        PlannedBench(plan_index=index, key=trial_key("bench", t.task.id, t.arm.name, t.run), bench=t)
        for index, t in enumerate(trials)
    )
