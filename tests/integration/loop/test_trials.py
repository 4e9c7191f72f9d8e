"""Whole trials of the tool lane with a real git."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.loop.trial import run_loop_trial
from fairtrial.model.loop import Transport
from fairtrial.subjects.git import Git

pytestmark = pytest.mark.needs("git")

TASK_LOOP = [
    "task.acquire",
    "task.edit",
    "task.snapshot.add",
    "task.snapshot.commit",
    "task.publish",
    "task.end",
    "followup.acquire",
    "followup.edit",
    "followup.snapshot.add",
    "followup.snapshot.commit",
    "followup.publish",
    "followup.end",
    "task_loop.total",
]
BASELINE = [
    "setup.remote_container",
    "setup.remote_seed",
    "cold.acquire",
    "cold.branch",
    "cold.inspect",
    "cold.edit",
    "cold.checkpoint.add",
    "cold.checkpoint.commit",
    "cold.publish",
    "cold.ci.observe",
    "cold.review_handoff",
    "warm.acquire",
    "warm.inspect",
    "warm.edit",
    "warm.checkpoint.add",
    "warm.checkpoint.commit",
    "warm.publish",
    "warm.ci.observe",
    "warm.review_handoff",
    "cleanup.warm",
    "cleanup.cold",
    "comparator.partial_clone",
    "agent_task.total",
]


@pytest.mark.parametrize("transport", [Transport.FILE, Transport.HTTP])
def test_task_loop_has_all_rows_and_its_payloads_are_on_the_remote(
    make_spec: Callable[..., object], git_variant: object, transport: Transport
) -> None:
    record = run_loop_trial(make_spec("task_loop", transport), Git(git_variant))
    assert [row["operation"] for row in record.rows] == TASK_LOOP
    total = record.rows[-1]
    assert total["returncode"] == 0, total
    assert total["oracle_payload_on_remote_branch"] is True
    assert total["coverage_complete"] is True
    assert total["tool_call_count"] == 12
    assert total["vcs_tool_call_count"] == 10
    assert total["followup_warm_delta_ms"] == pytest.approx(
        total["acquire_ms_followup"] - total["acquire_ms_task"], abs=0.001
    )
    assert total["estimated_tokens"] == sum(row["estimated_tokens"] for row in record.rows[:-1])


def test_a_wire_fills_network_bytes_and_a_file_store_says_why_not(
    make_spec: Callable[..., object], git_variant: object
) -> None:
    over_http = run_loop_trial(make_spec("task_loop", Transport.HTTP), Git(git_variant)).rows[-1]
    assert over_http["network_bytes"] == over_http["network_up_bytes"] + over_http["network_down_bytes"]
    assert over_http["network_bytes"] > 1000
    assert over_http["network_requests"] == 4  # two pushes of two requests: the harness's own traffic is left out
    local = run_loop_trial(make_spec("task_loop", Transport.FILE), Git(git_variant)).rows[-1]
    assert local["network_bytes"] is None
    assert local["network_bytes_reason"]


def test_the_baseline_scenario_has_all_rows_with_its_holes(
    make_spec: Callable[..., object], git_variant: object
) -> None:
    record = run_loop_trial(make_spec("agent_task_baseline_v1"), Git(git_variant))
    assert [row["operation"] for row in record.rows] == BASELINE
    total = record.rows[-1]
    assert total["returncode"] == 0, total
    assert total["oracle_payload_on_remote_branch"] is True
    assert total["coverage_complete"] is False
    assert total["unmeasured_operations"] == ["cold.ci.observe", "warm.ci.observe"]
    assert total["acquisition_models"] == {"cold": "fresh_full_clone", "warm": "shared_object_worktree"}
    assert total["workspace_usage_before_cleanup"]["cold"]["n_files"] > 5
    clones = total["partial_clone_comparator"]
    assert list(clones) == ["full", "partial", "partial_sparse"]
    assert clones["partial_sparse"]["down_bytes"] < clones["full"]["down_bytes"]
    assert all(clone["requests"] > 1 and clone["up_bytes"] > 100 for clone in clones.values())
    assert "comparator.partial_clone" not in total["summarized_operations"]
    holes = [row for row in record.rows if row.get("skipped")]
    assert all(row["returncode"] == 77 and row["skip_reason"] for row in holes)
    show = next(row for row in record.rows if row["operation"] == "cold.review_handoff")
    assert show["output_characters"] > 0


def test_the_comparator_clones_the_seeded_trunk_without_the_branches_of_the_tasks(
    make_spec: Callable[..., object], git_variant: object, tmp_path: Path
) -> None:
    record = run_loop_trial(make_spec("agent_task_baseline_v1"), Git(git_variant))
    for name in record.rows[-1]["partial_clone_comparator"]:
        (clone,) = tmp_path.rglob(f"comparator-{name}")
        listed = subprocess.run(
            ["git", "-C", str(clone), "for-each-ref", "--format=%(refname)", "refs/remotes"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert not [ref for ref in listed.stdout.split() if "work/" in ref], name
        assert listed.stdout.split(), name


def test_commands_are_shown_without_paths_and_ports_of_this_machine(
    make_spec: Callable[..., object], git_variant: object, tmp_path: Path
) -> None:
    record = run_loop_trial(make_spec("task_loop", Transport.HTTP), Git(git_variant))
    commands = json.dumps([row["command"] for row in record.rows])
    assert str(tmp_path) not in commands
    assert '"git"' in commands


def test_the_transcript_holds_every_command_that_was_run(make_spec: Callable[..., object], git_variant: object) -> None:
    record = run_loop_trial(make_spec("task_loop"), Git(git_variant))
    lines = [json.loads(line) for line in record.artifacts["transcript.jsonl"].splitlines()]
    assert [line["n"] for line in lines] == list(range(len(lines)))
    assert sum(line["role"] == "step" for line in lines) == 12
    assert sum(line["role"] == "probe" for line in lines) == record.rows[-1]["oracle_probe_calls"]
    for row in record.rows[:-1]:
        assert lines[row["transcript_line"]]["role"] == "step"


def test_a_hosted_remote_keeps_nothing_and_main_is_never_touched(
    make_spec: Callable[..., object], git_variant: object, tmp_path: Path
) -> None:
    remote = tmp_path / "hosted.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(remote)], check=True)
    spec = make_spec("task_loop", Transport.HOSTED, hosted_remote=f"file://{remote}")
    record = run_loop_trial(spec, Git(git_variant))
    total = record.rows[-1]
    assert total["returncode"] == 0, total
    assert total["truth_sources"] == ["wire"]
    assert all(branch.startswith("fairtrial/loop-test/") for branch in total["workspace_branches"].values())
    left = subprocess.run(["git", "-C", str(remote), "for-each-ref"], check=True, capture_output=True, text=True).stdout
    assert left == ""


def test_a_skipped_cell_is_one_visible_row(make_spec: Callable[..., object], git_variant: object) -> None:
    record = run_loop_trial(make_spec("task_loop", skip_reason="not here"), Git(git_variant))
    (row,) = record.rows
    assert row["operation"] == "task_loop.skipped"
    assert row["returncode"] == 77
    assert row["skip_reason"] == "not here"


def test_a_skipped_cell_names_the_transport_of_the_plan_and_not_the_remote_of_its_scenario(
    make_spec: Callable[..., object], git_variant: object
) -> None:
    spec = make_spec("agent_task_oak_local_v1", Transport.NATIVE, skip_reason="not here")
    (row,) = run_loop_trial(spec, Git(git_variant)).rows
    assert row["remote_transport"] == "native"
