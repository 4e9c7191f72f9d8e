"""One trial, in every way that it can end."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.bench.arms import read_arms

pytestmark = pytest.mark.needs("bwrap", "git")

Row = dict[str, Any]
RunTrial = Callable[..., Row]
USAGE = {"uncached_input": 100, "output": 10}
DONE = {"text": "Done.", "usage": USAGE}
MEND = "sed -i 's/a - b/a + b/' calc.py"


def bash(command: str, **more: object) -> dict[str, Any]:
    return {"calls": [{"tool": "Bash", "input": {"command": command}}], "usage": USAGE, **more}


def skill(name: str) -> dict[str, Any]:
    return {"calls": [{"tool": "Skill", "input": {"skill": name}}], "usage": USAGE}


def of(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_the_nop_agent_fails_by_the_oracle(trial: RunTrial) -> None:
    row = trial(agent="nop")
    assert row["diff_digest"] is None
    assert of(row, "resolved", "error_kind", "authored_tests_passed", "oracle_passed") == (
        False,
        "oracle-failed",
        True,
        False,
    )
    assert of(row, "input_tokens", "cost_usd", "usage_source", "wire", "num_turns") == (0, 0.0, None, None, 0)


def test_the_reference_agent_is_resolved(trial: RunTrial) -> None:
    row = trial(agent="reference")
    assert of(row, "resolved", "error_kind", "oracle_proof") == (True, None, "proven")
    assert of(row, "diff_files", "diff_insertions", "diff_deletions") == (1, 1, 1)
    assert re.fullmatch("[0-9a-f]{64}", str(row["diff_digest"]))
    assert row["oracle_counts"] == {"n_passed": 1, "n_failed": 0, "n_skipped": 0}


def test_a_resolved_trial_is_counted_on_the_wire(trial: RunTrial) -> None:
    row = trial([bash(MEND), DONE])
    assert of(row, "resolved", "ok", "error_kind", "num_turns") == (True, True, None, 2)
    assert of(row, "input_tokens", "output_tokens", "usage_source", "cost_source") == (200, 20, "wire", "wire")
    assert row["wire"]["requests"] == 2
    assert row["integrity_flags"] == []
    assert row["tool_calls"] == {"Bash": 1}
    assert (row["limits_enforced"]["disk"], row["limits_enforced"]["inodes"]) == ("watchdog", "watchdog"), "a copy"
    names = {path.name for path in row["directory"].iterdir()}
    assert names == {"wire-work.jsonl", "transcript-work.jsonl", "change.tar", "change.patch", "judgement-whole.json"}


def test_no_work_is_not_resolved_even_where_everything_passes(trial: RunTrial, world: Path) -> None:
    text = "import unittest\n\nclass H(unittest.TestCase):\n  def test_x(self): pass\n"
    (world / "test_hidden.py").write_text(text)
    row = trial([DONE])
    assert of(row, "resolved", "error_kind", "authored_tests_passed", "oracle_passed") == (
        False,
        "no-work-produced",
        True,
        True,
    )


def test_a_vacuous_authored_test_does_not_help(trial: RunTrial) -> None:
    row = trial([bash("echo >> tests/test_calc.py"), DONE])
    assert of(row, "authored_tests_passed", "error_kind") == (True, "oracle-failed")
    assert row["tests_edited"] == ["tests/test_calc.py"]


def test_a_failed_check_comes_before_the_oracle(trial: RunTrial) -> None:
    row = trial([bash(MEND), DONE], verify="echo wrong; exit 3")
    assert of(row, "resolved", "error_kind", "oracle_passed") == (False, "verify-failed", True)
    assert "wrong" in row["verify_output"]


def test_workflow_plans_and_then_works(trial: RunTrial) -> None:
    plan = [skill("acme-plan"), bash("mkdir -p docs/plans && echo x > docs/plans/a.md"), DONE]
    work = [skill("acme-work"), bash(MEND), DONE]
    agents = [
        {"name": "plan", "match": {"prompt_contains": "acme-plan"}, "turns": plan},
        {"name": "work", "match": {"prompt_contains": "docs/plans/a.md"}, "turns": work},
    ]
    row = trial(arm="workflow", agents=agents)
    assert of(row, "resolved", "error_kind", "skill_invoked", "plan_produced") == (True, None, True, "docs/plans/a.md")
    assert of(row, "diff_files", "num_turns") == (1, 6), "the plan is no part of the churn"
    assert [session["phase"] for session in row["sessions"]] == ["plan", "work"]
    assert set(row["skill_digests"]) == {"acme-plan", "acme-work"}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("mkdir -p docs/plans && echo x > docs/plans/a.md && echo >> calc.py", "other paths: calc.py"),
        ("mkdir -p docs/plans && echo x > docs/plans/a.md && echo y > docs/plans/b.md", "2 artifacts"),
        ("mkdir -p docs/plans && ln -s ../../calc.py docs/plans/a.md", "not a plain file"),
        ("mkdir -p docs/plans && echo x > docs/plans/$(printf '\\377').md", "no text"),
        ("true", "0 artifacts"),
        ("mkdir -p docs/plans/x && echo x > docs/plans/x/a.md", "other paths"),
        ("mkdir -p .claude/skills/acme-work && echo > .claude/skills/acme-work/x", "changed a skill"),
    ],
)
def test_a_plan_phase_may_change_its_plan_only_and_work_does_not_begin(
    trial: RunTrial, command: str, words: str
) -> None:
    row = trial([skill("acme-plan"), bash(command), DONE], arm="workflow")
    assert of(row, "resolved", "error_kind") == (False, "plan-evidence-invalid")
    assert words in row["error_detail"]
    assert len(row["sessions"]) == 1


def test_a_skill_that_was_not_used_is_the_arms_failure(trial: RunTrial) -> None:
    row = trial([bash(MEND), DONE], arm="workflow_direct")
    assert of(row, "resolved", "error_kind", "skill_invoked", "oracle_passed") == (
        False,
        "skill-not-invoked",
        False,
        True,
    )


def test_rewriting_a_skill_of_the_repository_is_found_before_the_check(trial: RunTrial) -> None:
    rewrite = "mkdir -p .claude/skills/acme-work && echo x > .claude/skills/acme-work/SKILL.md"
    row = trial([skill("acme-work"), bash(f"{MEND} && {rewrite}"), DONE], arm="workflow_direct")
    assert of(row, "resolved", "error_kind") == (False, "implementation-evidence-invalid")


def test_an_agent_out_of_time_is_judged_and_not_resolved(trial: RunTrial) -> None:
    row = trial([bash(f"{MEND} && sleep 600"), DONE], timeout_s=8)
    assert of(row, "resolved", "ok", "error_kind") == (False, False, "agent-timeout")
    assert row["oracle_passed"] is not None


def test_an_agent_that_gets_a_refusal_has_crashed(trial: RunTrial) -> None:
    fault = {"kind": "status", "parameter": 400, "times": 0}
    row = trial([{**DONE, "fault": fault}])
    assert of(row, "resolved", "error_kind") == (False, "agent-crash")


def test_a_provider_that_fails_makes_a_void(trial: RunTrial) -> None:
    fault = {"kind": "status", "parameter": 529, "retry_after_s": 0, "times": 0}
    row = trial([bash(MEND), {**DONE, "fault": fault}])
    assert of(row, "resolved", "error_kind", "oracle_passed") == (False, "session-error", None)
    assert row["input_tokens"] == 100, "what was spent is known"


def test_a_look_for_history_or_elsewhere_is_named_and_changes_no_verdict(trial: RunTrial) -> None:
    """B2."""
    row = trial([bash("git log --all -S name; git show 1a2b3c4d; curl -s -m 1 github"), bash(MEND), DONE])
    assert row["integrity_flags"] == ["history_probe", "remote_fetch"]
    assert of(row, "resolved", "error_kind") == (True, None)


def test_without_a_gateway_the_trial_is_void(trial: RunTrial, tmp_path: Path) -> None:
    row = trial([DONE], gateway=str(tmp_path / "nobody"))
    assert of(row, "resolved", "error_kind", "input_tokens") == (False, "session-error", None)


def test_a_set_up_is_frozen_for_all_and_its_failure_is_void(trial: RunTrial) -> None:
    row = trial([bash(f"test -f build/made && {MEND}"), DONE], setup="mkdir build && echo > build/made")
    assert of(row, "resolved", "diff_files") == (True, 1), "what set-up made is no part of the change"
    assert len(row["setup_layer_digest"]) == 64
    same = "mkdir build && echo > build/made && mkdir build/__pycache__ && date +%N > build/__pycache__/when"
    assert trial([DONE], setup=same)["setup_layer_digest"] == row["setup_layer_digest"]
    assert trial([DONE], setup="mkdir build && echo 2 > build/made")["setup_layer_digest"] != row["setup_layer_digest"]
    assert trial([DONE])["setup_layer_digest"] is None
    row = trial([DONE], setup="echo broken >&2; exit 3")
    assert of(row, "resolved", "error_kind") == (False, "infra-error")
    assert "broken" in row["error_detail"]


def test_only_a_set_up_that_may_use_the_network_has_it_and_none_inherits_what_another_fetched(trial: RunTrial) -> None:
    ours = Path("/proc/self/ns/net").readlink()
    setup = "mkdir build && readlink /proc/self/ns/net > build/made"
    row = trial([bash(f"grep -qF '{ours}' build/made || {MEND}"), DONE], setup=setup)
    assert of(row, "resolved", "setup_network") == (True, False)
    row = trial([bash(f"grep -qF '{ours}' build/made && {MEND}"), DONE], setup=setup, setup_network=True)
    assert of(row, "resolved", "setup_network") == (True, True)


def test_copies_and_dependencies_are_there_and_no_part_of_the_change(trial: RunTrial, world: Path) -> None:
    lib = world / "repo" / "build" / "lib"  # ignored, so no commit has it
    lib.mkdir(parents=True)
    (lib / "dep.py").write_text("X = 1\n")
    (lib / "again.py").symlink_to("dep.py")
    (world / "repo" / "build" / "settings").write_text("s\n")
    packages = world / "repo" / "build" / "node_modules"
    packages.mkdir()
    (packages / "package.js").write_text("1\n")
    vite = 'test -z "$(ls node_modules/.vite-temp)" && echo > node_modules/.vite-temp/x && ! echo > node_modules/x'
    look = f"test -f vendor/again.py && ! echo > vendor/new && grep -q s build/settings && {vite}"
    row = trial(
        [bash(f"{look} && {MEND}"), DONE],
        sandbox_copy=["build/settings"],
        sandbox_dependencies=[
            {"source": "build/lib", "target": "vendor"},
            {"source": "build/node_modules", "target": "node_modules"},
        ],
        verify=f"{vite} && python3 -c 'import sys; sys.path.insert(0, \"vendor\"); import dep, calc'",
    )
    assert of(row, "resolved", "error_kind", "diff_files") == (True, None, 1), row["verify_output"]


def test_hidden_paths_are_not_there(trial: RunTrial) -> None:
    row = trial([bash(f"test ! -e tests && {MEND}"), DONE], hidden=["tests"], verify="true")
    assert row["resolved"] is True
    assert row["source_tree"] != row["sanitized_tree"]


def test_a_set_up_that_makes_what_is_hidden_is_one_that_failed(trial: RunTrial) -> None:
    row = trial([DONE], hidden=["tests"], verify="true", setup="mkdir tests && echo > tests/again")
    assert row["error_kind"] == "infra-error"
    assert "setup makes 'tests', which is hidden" in row["error_detail"]


def test_the_transcript_is_events_with_sorted_keys(trial: RunTrial) -> None:
    row = trial([bash("echo sk-ant-REDACTED"), DONE])
    lines = (row["directory"] / "transcript-work.jsonl").read_text().splitlines()
    assert all(list(json.loads(line)) == sorted(json.loads(line)) for line in lines)
    text = "".join(path.read_bytes().decode(errors="replace") for path in row["directory"].iterdir())
    assert "sk-ant-REDACTED" not in text
    assert "[redacted:anthropic-key]" in text


def test_an_arm_of_ones_own_runs(trial: RunTrial, tmp_path: Path) -> None:
    arms = tmp_path / "arms.yaml"
    arms.write_text(
        "arms:\n  mine:\n    phases:\n      - {name: look, prompt: 'Look: {task}', produces: notes.txt}\n"
        "      - {name: work, prompt: 'Use {look}'}\n"
    )
    agents = [
        {"name": "look", "match": {"prompt_contains": "Look: "}, "turns": [bash("echo x > notes.txt"), DONE]},
        {"name": "work", "match": {"prompt_contains": "Use notes.txt"}, "turns": [bash(MEND), DONE]},
    ]
    row = trial(arm="mine", arms=read_arms(arms), agents=agents)
    assert of(row, "resolved", "error_kind") == (True, None)


UPSTREAM = {
    "runner": "unittest",
    "command": "tests.test_upstream",
    "expect_tests": 1,
    "files": [
        {"source": "test_hidden.py", "target": "tests/test_upstream.py", "into": "workspace"},
        {"source": "empty", "target": "tests/__init__.py", "into": "workspace"},
    ],
}


def test_upstream_tests_are_placed_over_the_tree(trial: RunTrial, world: Path) -> None:
    (world / "empty").write_text("")
    row = trial([bash(MEND), DONE], oracle=UPSTREAM)
    assert of(row, "resolved", "error_kind") == (True, None), row["error_detail"]


def test_a_test_that_the_agent_puts_in_the_place_of_the_oracles_is_replaced(trial: RunTrial, world: Path) -> None:
    (world / "empty").write_text("")
    forge = (
        "rm -rf tests; mkdir tests; printf 'import unittest\n' > tests/test_upstream.py; ln -s /etc tests/__init__.py"
    )
    row = trial([bash(forge), DONE], oracle=UPSTREAM, verify="true")
    assert of(row, "resolved", "error_kind") == (False, "oracle-failed"), row["error_detail"]


def test_a_command_of_ones_own_proves_that_it_finished_by_the_nonce(trial: RunTrial) -> None:
    check = "python3 -c 'import calc; assert calc.add(2, 3) == 5'"
    files = [{"source": "test_hidden.py", "target": "test_hidden.py"}]
    proving = {"command": f'{check} && echo "$FAIRTRIAL_NONCE" >&"$FAIRTRIAL_PROOF_FD"', "files": files}
    assert trial([bash(MEND), DONE], oracle=proving)["resolved"] is True
    row = trial([bash(MEND), DONE], oracle={"command": check, "files": files})
    assert of(row, "resolved", "error_kind", "oracle_proof") == (False, "oracle-failed", "missing")


def test_a_lost_oracle_is_void(trial: RunTrial, scratch: Path) -> None:
    row = trial([bash(MEND), DONE])
    assert row["resolved"] is True
    digest = json.loads((row["directory"] / "judgement-whole.json").read_text())["files"][0]["sha256"]
    kept = scratch / "blobs" / digest
    content = kept.read_bytes()
    kept.chmod(0o600)
    kept.write_bytes(b"changed")
    try:
        lost = trial([bash(MEND), DONE])
    finally:
        kept.write_bytes(content)
    assert of(lost, "resolved", "error_kind") == (False, "oracle-unavailable")
