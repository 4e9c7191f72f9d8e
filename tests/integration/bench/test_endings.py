"""Endings that only a whole trial can show, and a proof that every row of the table of endings is shown somewhere."""

import json
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from fairtrial.bench import judge as judge_module
from fairtrial.bench import trial as trial_module
from fairtrial.bench.arms import read_arms
from fairtrial.bench.node import FoundAgent, Node
from fairtrial.bench.session import Session, SessionOrder
from fairtrial.errors import HostError
from fairtrial.evidence.endings import ENDINGS, EndingKind
from fairtrial.host.slot import Slot
from fairtrial.model.trial import BenchSpec
from fairtrial.store.layout import Results
from fairtrial.sweep.worker import Desk, run_attempt
from fairtrial.workspace.layers import Base, Layer, Room, Storage, open_layer

pytestmark = pytest.mark.needs("bwrap", "git")

Row = dict[str, Any]
RunTrial = Callable[..., Row]
USAGE = {"uncached_input": 100, "output": 10}
DONE = {"text": "Done.", "usage": USAGE}
MEND = "sed -i 's/a - b/a + b/' calc.py"
TRIALS: Final = "integration/bench/test_trials.py"
CHEATS: Final = "attack/bench/test_cheats.py"
HERE: Final = "integration/bench/test_endings.py"
COMMAND: Final = "integration/cli/test_bench_command.py"
SHOWN: Final = {
    EndingKind.VERIFY_FAILED: (TRIALS, "test_a_failed_check_comes_before_the_oracle"),
    EndingKind.ORACLE_FAILED: (TRIALS, "test_the_nop_agent_fails_by_the_oracle"),
    EndingKind.NO_WORK_PRODUCED: (TRIALS, "test_no_work_is_not_resolved_even_where_everything_passes"),
    EndingKind.SKILL_NOT_INVOKED: (TRIALS, "test_a_skill_that_was_not_used_is_the_arms_failure"),
    EndingKind.PLAN_EVIDENCE_INVALID: (TRIALS, "test_a_plan_phase_may_change_its_plan_only_and_work_does_not_begin"),
    EndingKind.REVIEW_EVIDENCE_INVALID: (HERE, "test_a_review_may_change_its_one_artifact_only"),
    EndingKind.IMPLEMENTATION_EVIDENCE_INVALID: (
        TRIALS,
        "test_rewriting_a_skill_of_the_repository_is_found_before_the_check",
    ),
    EndingKind.AGENT_TIMEOUT: (TRIALS, "test_an_agent_out_of_time_is_judged_and_not_resolved"),
    EndingKind.AGENT_CRASH: (TRIALS, "test_an_agent_that_gets_a_refusal_has_crashed"),
    EndingKind.LIMIT_EXCEEDED: (CHEATS, "test_a_limit_ends_the_trial_and_nothing_else"),
    EndingKind.BUDGET_EXHAUSTED: (HERE, "test_a_spent_budget_ends_the_trial_over_all_its_sessions"),
    EndingKind.SANDBOX_BROKEN: (HERE, "test_a_tree_that_no_later_session_can_use_is_the_arms_failure"),
    EndingKind.SESSION_ERROR: (TRIALS, "test_a_provider_that_fails_makes_a_void"),
    EndingKind.INFRA_ERROR: (TRIALS, "test_a_set_up_is_frozen_for_all_and_its_failure_is_void"),
    EndingKind.CLEANUP_FAILURE: (HERE, "test_a_failed_clean_up_voids_what_was_resolved"),
    EndingKind.EVIDENCE_UNVERIFIED: (HERE, "test_a_transcript_that_cannot_be_kept_makes_a_void"),
    EndingKind.ORACLE_UNAVAILABLE: (TRIALS, "test_a_lost_oracle_is_void"),
    EndingKind.INTERRUPTED: (COMMAND, "test_a_sweep_that_is_killed_counts_every_trial_once"),
    EndingKind.CANCELLED: (COMMAND, "test_an_interrupt_ends_a_sweep_cleanly_and_resume_finishes_it"),
    EndingKind.UNKNOWN: (HERE, "test_a_bug_of_ours_makes_a_void_and_nothing_else"),
}


def bash(command: str) -> dict[str, Any]:
    return {"calls": [{"tool": "Bash", "input": {"command": command}}], "usage": USAGE}


def of(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


@pytest.mark.parametrize("kind", ENDINGS)
def test_every_row_of_the_table_is_shown_by_a_test(kind: EndingKind, clone: Path) -> None:
    file, name = SHOWN[kind]
    found = re.search(rf"def {name}\(.*?(?=\n\n\n|\Z)", (clone / "tests" / file).read_text(), re.DOTALL)
    assert found is not None, f"{file}::{name} is gone"
    assert f'"{kind}"' in found[0]


def test_a_review_may_change_its_one_artifact_only(trial: RunTrial, tmp_path: Path) -> None:
    arms = tmp_path / "arms.yaml"
    arms.write_text(
        "arms:\n  mine:\n    phases:\n      - {name: review, prompt: '{task}', produces: review-output.md}\n"
    )
    found = read_arms(arms)
    good = trial([bash("echo fine > review-output.md"), DONE], arm="mine", arms=found, verify="true")
    assert good["error_kind"] == "oracle-failed", "the review itself was in order"
    row = trial([bash(f"echo fine > review-output.md; {MEND}"), DONE], arm="mine", arms=found, verify="true")
    assert of(row, "resolved", "ok", "error_kind") == (False, False, "review-evidence-invalid")


@pytest.mark.parametrize("budget", ["requests: 3", "tokens: 250", "cost_usd: 0.0011"])
def test_a_spent_budget_ends_the_trial_over_all_its_sessions(trial: RunTrial, tmp_path: Path, budget: str) -> None:
    arms = tmp_path / "arms.yaml"
    arms.write_text(
        f"arms:\n  mine:\n    budget: {{{budget}}}\n    phases:\n"
        "      - {name: look, prompt: 'Look: {task}', produces: notes.txt}\n"
        "      - {name: work, prompt: 'Use {look}'}\n"
    )
    agents = [
        {"name": "look", "match": {"prompt_contains": "Look: "}, "turns": [bash("echo x > notes.txt"), DONE]},
        {"name": "work", "match": {"prompt_contains": "Use notes.txt"}, "turns": [bash(MEND), DONE]},
    ]
    row = trial(arm="mine", arms=read_arms(arms), agents=agents)
    assert of(row, "resolved", "error_kind", "oracle_passed") == (False, "budget-exhausted", True), row["error_detail"]
    assert row["wire"]["requests"] == 3
    assert row["wire"]["refused"]["budget"] >= 1
    assert [session["phase"] for session in row["sessions"]] == ["look", "work"]


def test_a_tree_that_no_later_session_can_use_is_the_arms_failure(trial: RunTrial, world: Path) -> None:
    library = world / "repo" / "build" / "lib"
    library.mkdir(parents=True)
    (library / "dep.py").write_text("X = 1\n")
    arms = world / "arms.yaml"
    arms.write_text(
        "arms:\n  mine:\n    phases:\n"
        "      - {name: first, prompt: 'First: {task}'}\n      - {name: second, prompt: 'Second: {task}'}\n"
    )
    lead_away = f"{MEND} && mv vendor away && ln -s nowhere vendor"
    row = trial(
        [bash(lead_away), DONE],
        arm="mine",
        arms=read_arms(arms),
        sandbox_dependencies=[{"source": "build/lib", "target": "vendor/lib"}],
    )
    assert of(row, "resolved", "ok", "error_kind") == (False, False, "sandbox-broken"), row["error_detail"]
    assert of(row, "authored_tests_passed", "oracle_passed") == (True, True), "what was done by then is judged"
    assert [session["state"] for session in row["sessions"]] == ["exited", "broken"]


def test_a_transcript_that_cannot_be_kept_makes_a_void(trial: RunTrial) -> None:
    row = trial([bash(MEND), DONE], artifacts={"transcript-work.jsonl": b"somebody was here\n"})
    assert of(row, "resolved", "error_kind", "transcript_missing") == (False, "evidence-unverified", True)
    assert row["evidence_diagnostics"] == ["transcript-work.jsonl: File exists"]


@contextmanager
def leaving_something(base: Base, *, slot: Slot, room: Room, storage: Storage) -> Generator[Layer]:
    """A layer whose removal fails at the end, as it does where somebody mounts something below it."""
    with open_layer(base, slot=slot, room=room, storage=storage) as layer:
        yield layer
    raise HostError(f"{layer.merged}: Device or resource busy; remove it by hand")


@pytest.mark.parametrize(
    ("turns", "kind", "problem"),
    [([bash(MEND), DONE], "cleanup-failure", False), ([DONE], "oracle-failed", True)],
    ids=["resolved", "failed"],
)
def test_a_failed_clean_up_voids_what_was_resolved(
    trial: RunTrial, monkeypatch: pytest.MonkeyPatch, turns: list[dict[str, Any]], kind: str, *, problem: bool
) -> None:
    assert kind in {"cleanup-failure", "oracle-failed"}
    monkeypatch.setattr(trial_module, "open_layer", leaving_something)
    row = trial(turns)
    assert of(row, "resolved", "error_kind") == (False, kind)
    assert ("cleanup_problem" in row) is problem, "a failure of the arm stays one, and the clean-up's stands beside it"
    assert "remove it by hand" in (row["cleanup_problem"] if problem else row["error_detail"])


@contextmanager
def no_room(base: Base, *, slot: Slot, room: Room, storage: Storage) -> Generator[Layer]:
    """A layer that cannot be made, as where the host's disk is full."""
    with open_layer(base, slot=slot, room=room, storage=storage) as layer:
        raise HostError(f"{layer.merged}: No space left on device")
        yield layer


@pytest.mark.parametrize(
    ("session", "kind", "problem"),
    [
        ({"turns": [bash(MEND), DONE]}, "infra-error", False),
        ({"agent": "nop", "cheat": "exit 3"}, "agent-crash", True),
    ],
    ids=["well until then", "failed"],
)
def test_a_host_that_cannot_judge_voids_no_failure(
    trial: RunTrial, monkeypatch: pytest.MonkeyPatch, session: dict[str, Any], kind: str, *, problem: bool
) -> None:
    monkeypatch.setattr(judge_module, "open_layer", no_room)
    row = trial(**session)
    assert of(row, "resolved", "error_kind", "oracle_passed") == (False, kind, None), row["error_detail"]
    assert ("judging_problem" in row) is problem
    assert "No space left" in (row["judging_problem"] if problem else row["error_detail"])


def test_a_failed_clean_up_keeps_what_it_replaces_in_its_detail(
    trial: RunTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_module, "open_layer", leaving_something)
    fault = {"kind": "status", "parameter": 529, "retry_after_s": 0, "times": 0}
    row = trial([{"text": "never", "usage": USAGE, "fault": fault}])
    assert row["error_kind"] == "cleanup-failure", row["error_detail"]
    assert "(after session-error: the provider failed" in row["error_detail"]


def test_a_fault_of_the_host_after_the_session_does_not_forget_what_that_spent(
    trial: RunTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise HostError("scratch: No space left on device")

    monkeypatch.setattr(trial_module, "judge", full)
    row = trial([bash(MEND), DONE])
    assert of(row, "resolved", "error_kind", "error_detail") == (
        False,
        "infra-error",
        "scratch: No space left on device",
    )
    assert of(row, "input_tokens", "output_tokens", "num_turns", "usage_source") == (200, 20, 2, "wire")
    assert of(row, "usage_is_lower_bound", "transcript_missing") == (True, False)


def run_as_a_worker(work: Callable[[], None]) -> None:
    """Run it in a process of its own: a worker kills whatever it finds below itself, here our gateway."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_bug_of_ours_makes_a_void_and_nothing_else(
    trial: RunTrial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    specs: list[BenchSpec] = []

    def broken(_node: Node, order: SessionOrder, _layer: Layer, _agent: FoundAgent) -> Session:
        specs.append(order.spec)
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(trial_module, "run_session", broken)
    with pytest.raises(ZeroDivisionError):
        trial([DONE])
    spec = replace(specs[0], results=str(tmp_path / "results"))
    results = Results(root=tmp_path / "results")
    (results.root / "trials").mkdir(parents=True)

    def work() -> None:
        with Desk() as desk:
            for attempt in (1, 2):
                assert run_attempt(replace(spec, attempt=attempt), desk).error is None, "the worker goes on"

    run_as_a_worker(work)
    for attempt in (1, 2):
        directory = results.attempt_dir(spec.key, attempt)
        (row,) = json.loads((directory / "outcome.json").read_text())["rows"]
        assert of(row, "resolved", "error_kind") == (False, "unknown")
        assert row["error_detail"] == "ZeroDivisionError: division by zero"
        assert "in broken" in (directory / "exception.txt").read_text()


@pytest.mark.timeout(580)
def test_a_row_that_a_session_made_too_long_is_a_short_failure_and_the_worker_goes_on(
    trial: RunTrial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    specs: list[BenchSpec] = []

    def noted(_node: Node, order: SessionOrder, _layer: Layer, _agent: FoundAgent) -> Session:
        specs.append(order.spec)
        raise ZeroDivisionError

    names = """python3 - <<'END'
import os
os.chdir("tests")
for part in range(7):
    os.mkdir(b"\\1" * 250)
    os.chdir(b"\\1" * 250)
for number in range(1800):
    open(b"%d.py" % number, "w").close()
END
"""
    with monkeypatch.context() as patch:
        patch.setattr(trial_module, "run_session", noted)
        with pytest.raises(ZeroDivisionError):
            trial(agent="nop", cheat=f"{MEND}\n{names}")
    spec = replace(specs[0], results=str(tmp_path / "results"))
    results = Results(root=tmp_path / "results")
    (results.root / "trials").mkdir(parents=True)

    def work() -> None:
        with Desk() as desk:
            assert run_attempt(spec, desk).error is None
            assert run_attempt(replace(spec, attempt=2, bench=replace(spec.bench, cheat=None)), desk).error is None

    run_as_a_worker(work)
    (row,), (next_row,) = (
        json.loads((results.attempt_dir(spec.key, attempt) / "outcome.json").read_text())["rows"] for attempt in (1, 2)
    )
    assert of(row, "ok", "resolved", "error_kind") == (False, False, "limit-exceeded")
    assert row["error_detail"].startswith("a row of ")
    assert of(row, "tests_edited", "sandboxed", "oracle_passed", "stray_processes") == (None, True, True, 0)
    assert of(next_row, "error_kind", "tests_edited") == ("oracle-failed", []), "the worker goes on"
