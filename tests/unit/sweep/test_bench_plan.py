"""The plan of the agent lane."""

import hashlib
from dataclasses import replace

from fairtrial.model.agent import Tool
from fairtrial.model.bench import Arm, IsolationMode, Oracle, Phase, Task, TaskLimits
from fairtrial.model.trial import AnySpec, BenchSpec, ModelSource
from fairtrial.sweep.bench_plan import longest_trial_s, plan_bench
from fairtrial.sweep.worker import SPEC


def task(name: str) -> Task:
    oracle = Oracle(
        command="true", runner=None, expect_tests=None, files=(), digest="d", command_digest="c", manifest_digest="m"
    )
    return Task(
        id=name,
        task_class="bug-fix",
        repository="/r",
        ref="HEAD",
        commit="0" * 40,
        prompt="p",
        setup=None,
        setup_network=False,
        verify="true",
        hidden=(),
        toolchains=(),
        toolchain_digests=(),
        copies=(),
        dependencies=(),
        limits=TaskLimits(),
        isolation=IsolationMode.SHARED,
        oracle=oracle,
        reference=None,
        cheats=(),
        expensive=False,
        prompt_digest="p",
        setup_digest="s",
        verify_digest="v",
    )


def arm(name: str) -> Arm:
    return Arm(
        name=name,
        phases=(Phase(name="work", prompt="{task}"),),
        agent="bash-agent",
        model="m",
        effort=None,
        skills=(),
        grants=(),
        digest="d",
    )


TASKS = (task("a"), task("b"))
ARMS = (arm("workflow"), arm("baseline"), arm("other"))


def test_a_trial_is_given_up_only_after_all_that_an_agent_can_make_last() -> None:
    hangs = 5_000.0
    check_and_both_oracles_s = 3 * hangs
    phases = (Phase(name="plan", prompt="{task}"), Phase(name="work", prompt="{plan}", timeout_s=30_000.0))
    slow = replace(arm("slow"), phases=phases)
    assert longest_trial_s(ARMS, timeout_s=hangs) > hangs + check_and_both_oracles_s
    assert longest_trial_s((*ARMS, slow), timeout_s=hangs) > hangs + 30_000.0 + check_and_both_oracles_s


def test_a_block_is_one_task_in_one_run_over_all_arms() -> None:
    plan = plan_bench(TASKS, ARMS, runs=2, seed=1, timeout_s=5)
    assert [trial.plan_index for trial in plan] == list(range(12))
    assert len({trial.key for trial in plan}) == 12
    for start in range(0, 12, 3):
        block = plan[start : start + 3]
        assert len({trial.block for trial in block}) == 1
        assert {trial.bench.arm.name for trial in block} == {"workflow", "baseline", "other"}
        assert [trial.bench.position_in_block for trial in block] == [0, 1, 2]


def test_the_order_in_a_block_comes_from_the_seed_alone() -> None:
    names = [trial.bench.arm.name for trial in plan_bench(TASKS, ARMS, runs=1, seed=7, timeout_s=5)][:3]
    expected = sorted(
        ("workflow", "baseline", "other"), key=lambda name: hashlib.sha256(f"7\0a/0\0{name}".encode()).hexdigest()
    )
    assert names == expected
    turned = [trial.bench.arm.name for trial in plan_bench(TASKS, ARMS[::-1], runs=1, seed=7, timeout_s=5)][:3]
    assert turned == names


def test_keys_name_task_arm_and_run() -> None:
    keys = {trial.key for trial in plan_bench(TASKS[:1], ARMS[:1], runs=2, seed=0, timeout_s=5)}
    assert keys == {"bench/a/workflow/0", "bench/a/workflow/1"}


def test_a_spec_survives_the_way_to_a_worker() -> None:
    (trial,) = plan_bench(TASKS[:1], ARMS[:1], runs=1, seed=0, timeout_s=5)
    phase = replace(trial.bench.arm.phases[0], tools=frozenset({Tool.SHELL}))
    spec: AnySpec = BenchSpec(
        sweep="s",
        key=trial.key,
        attempt=1,
        plan_index=0,
        sweep_pass=0,
        results="/r",
        scratch="/s",
        metadata={"a": 1},
        bench=replace(trial.bench, arm=replace(trial.bench.arm, phases=(phase,))),
        gateway="/g",
        source=ModelSource(script="/x"),
        n_workers=1,
    )
    assert SPEC.validate_json(SPEC.dump_json(spec)) == spec
