"""Planning is pure: the same arguments give the same trials in the same order."""

import hashlib

import pytest

from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.model.loop import Probe, Transport, Variant
from fairtrial.sweep.execute import due_attempts
from fairtrial.sweep.plan import LoopOptions, SubjectFound, plan_loop


def found(name: str, kind: str = "git", missing: str | None = None) -> SubjectFound:
    return SubjectFound(
        variant=Variant(name=name, subject=kind, label=name, binary=f"/usr/bin/{kind}"),
        kind=kind,
        transports=frozenset({Transport.FILE, Transport.HTTP, Transport.HOSTED}),
        probe=Probe(binary=f"/usr/bin/{kind}", version="1", details={}, missing=missing),
        plugin_sha256="0" * 64,
    )


def options(**changes: object) -> LoopOptions:
    values: dict[str, object] = {
        "scenarios": ("task_loop",),
        "subjects": ("git",),
        "transports": (Transport.FILE,),
        "runs": 3,
        "seed": 7,
        "admitted_output_characters": 20_000,
        "n_seed_files": 5,
    }
    return LoopOptions(**(values | changes))  # type: ignore[arg-type]


def test_each_block_holds_every_subject_and_the_null_control_back_to_back() -> None:
    plan = plan_loop(options(), SCENARIOS, [found("git"), found("git-tuned")])
    assert [trial.plan_index for trial in plan] == list(range(9))
    blocks = [trial.loop.block for trial in plan]
    assert blocks == sorted(blocks, key=blocks.index)
    for block in set(blocks):
        members = [trial.loop for trial in plan if trial.loop.block == block]
        assert {task.variant.name for task in members} == {"git", "git-tuned", "git(null)"}
        assert [task.position_in_block for task in members] == [0, 1, 2]
        assert [task.null_control for task in members if task.variant.name == "git(null)"] == [True]
        assert members[0].block_order == tuple(task.variant.name for task in members)


def test_the_order_inside_a_block_is_the_sort_of_seeded_digests() -> None:
    plan = plan_loop(options(runs=1), SCENARIOS, [found("git"), found("git-tuned")])
    names = [trial.loop.variant.name for trial in plan]
    block = "task_loop/file/0"
    assert names == sorted(names, key=lambda name: hashlib.sha256(f"7\0{block}\0{name}".encode()).hexdigest())


def test_orders_differ_between_blocks_and_between_seeds() -> None:
    def orders(seed: int) -> list[tuple[str, ...]]:
        plan = plan_loop(options(runs=12, seed=seed), SCENARIOS, [found("git"), found("git-tuned")])
        return [trial.loop.block_order for trial in plan if trial.loop.position_in_block == 0]

    assert len(set(orders(7))) > 1
    assert orders(7) != orders(8)
    assert orders(7) == orders(7)


def test_the_null_control_measures_the_first_subject_when_git_is_not_asked_for() -> None:
    plan = plan_loop(options(runs=1), SCENARIOS, [found("git-tuned")])
    assert {trial.loop.variant.name for trial in plan} == {"git-tuned", "git-tuned(null)"}


@pytest.mark.parametrize(
    ("scenario", "transport", "subject", "reason"),
    [
        ("agent_task_baseline_v1", Transport.HTTP, found("git"), "defined for transport file only"),
        ("agent_task_baseline_v1", Transport.FILE, found("hg", kind="hg"), "explicit disposable staging lane"),
        ("task_loop", Transport.HOSTED, found("git"), "--remote-is-disposable"),
        ("task_loop", Transport.SSH, found("git"), "cannot be driven over"),
        ("task_loop", Transport.FILE, found("git", missing="no git; apt-get install git"), "apt-get install git"),
    ],
)
def test_a_cell_that_cannot_be_measured_is_planned_once_as_a_visible_skip(
    scenario: str, transport: Transport, subject: SubjectFound, reason: str
) -> None:
    plan = plan_loop(options(scenarios=(scenario,), transports=(transport,)), SCENARIOS, [subject])
    (only,) = plan
    assert only.loop.skip_reason is not None
    assert reason in only.loop.skip_reason
    assert not only.loop.null_control


def test_keys_tell_what_a_trial_means_and_are_unique() -> None:
    plan = plan_loop(
        options(scenarios=tuple(SCENARIOS), transports=(Transport.FILE, Transport.HTTP)), SCENARIOS, [found("git")]
    )
    keys = [trial.key for trial in plan]
    assert len(set(keys)) == len(keys)
    assert "loop/task_loop/http/git(null)/2" in keys


def test_due_attempts_are_one_for_each_key_without_a_counting_attempt() -> None:
    plan = plan_loop(options(runs=2), SCENARIOS, [found("git")])
    counted, interrupted, void_then_counted, never = (trial.key for trial in plan)
    finals = [
        {"key": counted, "attempt": 1, "error_kind": None},
        {"key": interrupted, "attempt": 1, "error_kind": "interrupted"},
        {"key": interrupted, "attempt": 2, "error_kind": "infra-error"},
        {"key": void_then_counted, "attempt": 1, "error_kind": "cancelled"},
        {"key": void_then_counted, "attempt": 2, "error_kind": None},
    ]
    due = due_attempts(plan, finals)
    assert [(each.trial.key, each.attempt) for each in due] == [(interrupted, 3), (never, 1)]
