"""What counts as a plan, what does not, and that without one no work begins: whole trials with a scripted model."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.needs("bwrap", "git")

Row = dict[str, Any]
RunTrial = Callable[..., Row]
USAGE: Final = {"uncached_input": 100, "output": 10}
DONE: Final = {"text": "Done.", "usage": USAGE}
MEND: Final = "sed -i 's/a - b/a + b/' calc.py"
PLAN: Final = "mkdir -p docs/plans && echo x >docs/plans/a.md"


def bash(command: str) -> dict[str, Any]:
    return {"calls": [{"tool": "Bash", "input": {"command": command}}], "usage": USAGE}


def skill(name: str) -> dict[str, Any]:
    return {"calls": [{"tool": "Skill", "input": {"skill": name}}], "usage": USAGE}


def of(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def planned(trial: RunTrial, plan: list[dict[str, Any]], work: str = MEND, **more: object) -> Row:
    """A trial of `workflow` whose work would solve the task, if it began."""
    agents = [
        {"name": "plan", "match": {"prompt_contains": "acme-plan"}, "turns": [skill("acme-plan"), *plan]},
        {"name": "work", "match": {"prompt_contains": "acme-work"}, "turns": [skill("acme-work"), bash(work), DONE]},
    ]
    return trial(arm="workflow", agents=agents, **more)


def assert_no_work_began(row: Row) -> None:
    assert [session["phase"] for session in row["sessions"]] == ["plan"]
    assert not (row["directory"] / "wire-work.jsonl").exists(), "no model was asked to work"
    assert of(row, "resolved", "ok", "plan_produced") == (False, False, None)


@pytest.fixture
def with_a_plan(world: Path) -> Path:
    """A repository whose base holds a plan already."""
    repository = world / "repo"
    (repository / "docs" / "plans").mkdir(parents=True)
    (repository / "docs" / "plans" / "a.md").write_text("x\n")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("add", "-A"), (*identity, "commit", "-q", "-m", "a plan")):
        subprocess.run(["git", *words], cwd=repository, env=env, check=True)
    return repository


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        ({**DONE, "fault": {"kind": "status", "parameter": 400, "times": 0}}, "agent-crash"),
        ({**DONE, "fault": {"kind": "status", "parameter": 529, "retry_after_s": 0, "times": 0}}, "session-error"),
        (bash("kill -9 $PPID; sleep 60"), "agent-crash"),
    ],
    ids=["refused", "overloaded", "killed"],
)
def test_a_failed_plan_session_starts_no_work_though_its_plan_is_there(
    trial: RunTrial, last: dict[str, Any], kind: str
) -> None:
    row = planned(trial, [bash(PLAN), last])
    assert_no_work_began(row)
    assert row["error_kind"] == kind, row["error_detail"]


def test_a_plan_session_that_is_out_of_time_starts_no_work(trial: RunTrial) -> None:
    row = planned(trial, [bash(f"{PLAN} && sleep 600"), DONE], timeout_s=20)
    assert_no_work_began(row)
    assert row["error_kind"] == "agent-timeout", row["error_detail"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("true", "0 artifacts"),
        ("touch docs/plans/a.md", "0 artifacts"),
        ("cp docs/plans/a.md /tmp/a && rm -r docs && mkdir -p docs/plans && cp /tmp/a docs/plans/a.md", "0 artifacts"),
        ("chmod +x docs/plans/a.md", "not a plain file"),
        ("rm docs/plans/a.md", "is gone, not a plain file"),
        ("mv docs/plans/a.md docs/plans/b.md", "2 artifacts"),
        ("rm docs/plans/a.md && echo y >docs/plans/b.md", "2 artifacts"),
        ("ln -sf /etc/passwd docs/plans/a.md", "is link, not a plain file"),
    ],
)
@pytest.mark.usefixtures("with_a_plan")
def test_a_plan_that_was_there_before_is_no_evidence(trial: RunTrial, command: str, words: str) -> None:
    row = planned(trial, [bash(command), DONE])
    assert_no_work_began(row)
    assert row["error_kind"] == "plan-evidence-invalid", row["error_detail"]
    assert words in row["error_detail"]


SOCKET: Final = "python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])'"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("mkdir -p docs/plans && mkfifo docs/plans/a.md", "other paths: docs/plans/a.md"),
        (f"mkdir -p docs/plans && {SOCKET} docs/plans/a.md", "other paths: docs/plans/a.md"),
        ("mkdir -p docs/plans && mknod docs/plans/a.md c 1 5", "0 artifacts"),
        ("mkdir -p docs/plans && ln -s /dev/zero docs/plans/a.md", "not a plain file"),
        ("mkdir -p docs/plans/a.md", "0 artifacts"),
        ("mkdir docs && mkfifo docs/plans", "other paths"),
        ("mkdir docs && ln -s /dev docs/plans", "other paths"),
        (f"{PLAN} && mkfifo docs/plans/b.md", "other paths: docs/plans/b.md"),
        (f"{PLAN} && mkfifo pipe", "other paths"),
    ],
)
def test_what_is_no_plain_file_in_a_plans_place_is_no_plan_and_is_not_waited_for(
    trial: RunTrial, command: str, words: str
) -> None:
    row = planned(trial, [bash(command), DONE])
    assert_no_work_began(row)
    assert row["error_kind"] == "plan-evidence-invalid", row["error_detail"]
    assert words in row["error_detail"]


def test_a_plan_that_the_set_up_made_is_no_evidence(trial: RunTrial) -> None:
    row = planned(trial, [DONE], setup=PLAN)
    assert_no_work_began(row)
    assert row["error_kind"] == "plan-evidence-invalid", row["error_detail"]
    assert "0 artifacts" in row["error_detail"]


@pytest.mark.usefixtures("with_a_plan")
def test_a_plan_that_was_there_before_and_is_written_anew_is_one(trial: RunTrial) -> None:
    row = planned(trial, [bash("echo y >>docs/plans/a.md"), DONE])
    assert of(row, "resolved", "error_kind", "plan_produced") == (True, None, "docs/plans/a.md"), row["error_detail"]


def test_a_plan_that_is_deleted_during_the_work_stays_a_plan_that_was_made(trial: RunTrial) -> None:
    row = planned(trial, [bash(PLAN), DONE], work=f"{MEND} && rm -r docs")
    assert of(row, "resolved", "error_kind", "plan_produced") == (True, None, "docs/plans/a.md"), row["error_detail"]
    assert row["diff_files"] == 1, "neither the plan nor its end is part of the churn"
