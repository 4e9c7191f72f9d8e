"""Every arm of the presets, and the candidate form of each that loads a skill of the project, with real Claude Code.

Each runs on every task of its kind that ships, by the scripts that ship, with the context `ctags`; the plugin alone is
the test's own, since nobody but its makers ships compound-engineering. What is asserted is what a reader of the results
can see: that each arm's treatment was there, and was used.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final, cast

import pytest

from fairtrial.config.read import read_yaml
from fairtrial.host.files import remove_tree

pytestmark = [
    pytest.mark.needs("bwrap", "git", "claude", "ctags"),
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("every-arm"),
]

Row = dict[str, Any]

CE: Final = "compound-engineering"
CE_SKILLS: Final = ("ce-code-review", "ce-plan", "ce-work")
MODEL: Final = "claude-sonnet-4-5"
CTAGS: Final = ["find_symbol", "list_symbols", "search_symbols"]
KINDS: Final = {
    "explore": {"read", "search", "edit", "shell", "skill"},
    "implement": {"read", "search", "edit", "shell", "skill", "subagent"},
}
"""What the shorthands of a preset grant."""
TOOL_OF: Final = {"shell": "Bash", "edit": "Edit", "read": "Read", "skill": "Skill", "subagent": "Agent"}
"""A tool of Claude Code for each kind of which it offers one without being asked."""

ARMS: Final = (
    *("workflow", "candidate_workflow", "workflow_direct", "candidate_workflow_direct"),
    *("ce_workflow", "ce_workflow_direct", "baseline", "baseline_nomcp"),
    *("review", "candidate_review", "ce_review"),
)
"""Those of the specification."""
CANDIDATES: Final = tuple(arm for arm in ARMS if arm.startswith("candidate_"))
PLUGIN_ARMS: Final = tuple(arm for arm in ARMS if arm.startswith("ce_"))
REVIEWERS: Final = tuple(arm for arm in ARMS if arm.endswith("review"))
WORKERS: Final = tuple(arm for arm in ARMS if arm not in REVIEWERS)
TASKS: Final = {"tasks": ("amounts", "json", "rounding", "linear"), "reviews": ("review-options", "review-since")}
"""Those that ship, by their file."""
WORKS: Final = tuple(f"{arm} on {task}" for arm in WORKERS for task in TASKS["tasks"])
REVIEWS: Final = tuple(f"{arm} on {task}" for arm in REVIEWERS for task in TASKS["reviews"])
EVERY: Final = (*WORKS, *REVIEWS)
"""The trials, by the names that they have here."""
UNRESOLVED: Final = {
    "baseline on amounts",  # without a plan it takes commas anywhere
    "baseline_nomcp on amounts",
    "review on review-options",  # the skill in use overlooks the third defect: a review that is good, and not perfect
}
"""What the judge refuses; all else is resolved."""
ANSWERS: Final = {
    "amounts": ("find_symbol", "tally/entries.py:22: function parse_line (line)"),
    "json": ("find_symbol", "tally/report.py:18: function by_month (entries)"),
    "rounding": ("search_symbols", "tally/__main__.py:11: function main (arguments=None)"),
    "linear": ("find_symbol", "tally/report.py:6: function by_category (entries)"),
}
"""What the context is asked on each task, and a line of what it answers."""
SKILL_OF: Final = {"plan": "tally-plan", "work": "tally-work", "review": "tally-review"}
"""The example's skill for each that a preset names."""


def presets() -> dict[str, dict[str, Any]]:
    """What ships."""
    with as_file(files("fairtrial.bench") / "presets.yaml") as shipped:
        return cast("dict[str, dict[str, dict[str, Any]]]", read_yaml(shipped).value)["arms"]


def preset_of(arm: str) -> dict[str, Any]:
    """What an arm runs as: a candidate arm as its incumbent."""
    return presets()[arm_of(arm).removeprefix("candidate_")]


def arm_of(name: str) -> str:
    """The arm of a trial."""
    return name.partition(" on ")[0]


def task_of(name: str) -> str:
    """The task of a trial."""
    return name.partition(" on ")[2]


def of_arms(*arms: str) -> list[str]:
    """The trials of these arms."""
    return [name for name in EVERY if arm_of(name) in arms]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One arm's row, and where its attempt's files are."""

    row: Row
    directory: Path

    def text(self, name: str) -> str:
        return (self.directory / name).read_text()

    def wire(self, phase: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.text(f"wire-{phase}.jsonl").splitlines())
        return [line for line in lines if line.get("ask") == "generate"]


def fairtrial(*arguments: object) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "fairtrial", "-q", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=900, env=os.environ)


def make_project(directory: Path) -> None:
    """The example, as a project whose skills are committed and whose tasks were checked."""
    assert fairtrial("init", directory).returncode == 0
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("init", "-q"), ("add", "skills"), (*identity, "commit", "-qm", "skills")):
        subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True)
    for tasks in TASKS:
        done = fairtrial("check", directory / f"{tasks}.yaml", "--runs", 1, "--out", directory / f"checked-{tasks}")
        assert done.returncode == 0, done.stderr


def write_plugin(root: Path) -> None:
    (root / ".claude-plugin").mkdir(parents=True)
    (root / ".claude-plugin" / "plugin.json").write_text(json.dumps({"name": CE, "version": "3.1.0"}))
    for skill in CE_SKILLS:
        (root / "skills" / skill).mkdir(parents=True)
        text = f"---\nname: {skill}\ndescription: How {skill} goes\n---\nBODY of {skill}\n"
        (root / "skills" / skill / "SKILL.md").write_text(text)


def sweep(root: Path, tasks: str, arms: tuple[str, ...], *more: object) -> dict[str, Trial]:
    """Run one sweep of the example; each trial by its name here."""
    example, out = root / "ex", root / f"r-{tasks}-{arms[0]}"
    script = "script.yaml" if tasks == "tasks" else "reviews-script.yaml"
    done = fairtrial(
        *("bench", "--tasks", example / f"{tasks}.yaml", "--arms", ",".join(arms), "--agent", "claude-code"),
        *("--model", MODEL, "--script", example / script, "--context", "ctags"),
        *("--runs", 1, "--workers", 2, "--timeout", 400, "--out", out, *more),
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Trial] = {}
    for row in map(json.loads, (out / "results.jsonl").read_text().splitlines()):
        trial = hashlib.sha256(row["key"].encode()).hexdigest()[:16]
        found[f"{row['arm']} on {row['task']}"] = Trial(row=row, directory=out / "trials" / trial / "1")
    assert found.keys() == {f"{arm} on {task}" for arm in arms for task in TASKS[tasks]}, done.stderr
    return found


@pytest.fixture(scope="module")
def trials() -> Iterator[Mapping[str, Trial]]:
    """The trial of each arm. A candidate has a sweep of its own, in which there are pairs and nothing else."""
    root = Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"]))
    example = root / "ex"
    make_project(example)
    write_plugin(root / "ce")
    plugin = ("--plugin", f"{CE}@3.1.0={root / 'ce'}")
    skills = [word for role, name in SKILL_OF.items() for word in ("--skill", f"{role}={example / 'skills' / name}")]
    project = ("--project", example, "--skill-layout", example / "skills.yaml", "--rehearsal", "--min-runs", 1)

    def overlay(name: str) -> tuple[object, ...]:
        return (*project, "--candidate-overlay", example / "candidates" / name)

    found = {
        **sweep(root, "tasks", WORKERS[4:], *plugin),
        **sweep(root, "tasks", WORKERS[:4], *skills, *overlay("lean")),
        **sweep(root, "reviews", REVIEWERS[:2], *skills, *overlay("edges")),
        **sweep(root, "reviews", REVIEWERS[2:], *plugin),
    }
    yield found
    remove_tree(root)


def test_these_are_all_arms_that_ship() -> None:
    candidates = {
        f"candidate_{name}"
        for name, preset in presets().items()
        if "plugin" not in preset and any("skill" in phase for phase in preset["phases"])
    }
    assert set(ARMS) == presets().keys() | candidates


def test_these_are_all_tasks_that_ship() -> None:
    with as_file(files("fairtrial") / "examples") as shipped:
        for name, tasks in TASKS.items():
            listed = cast("dict[str, list[dict[str, Any]]]", read_yaml(shipped / f"{name}.yaml").value)["tasks"]
            assert tuple(task["id"] for task in listed) == tasks


@pytest.mark.parametrize("name", EVERY)
def test_an_arm_runs_to_its_verdict(trials: Mapping[str, Trial], name: str) -> None:
    row = trials[name].row
    expected = (False, "oracle-failed") if name in UNRESOLVED else (True, None)
    assert (row["resolved"], row["error_kind"]) == expected, row["error_detail"]
    assert (row["ok"], row["authored_tests_passed"], row["integrity_flags"]) == (True, True, [])
    assert (row["scripted_model"], row["agent"], row["usage_source"]) == (True, "claude-code", "wire")
    assert (row["diff_files"] > 0) is (name in WORKS)


@pytest.mark.parametrize("name", EVERY)
def test_an_arm_has_the_phases_of_its_preset_in_order(trials: Mapping[str, Trial], name: str) -> None:
    row = trials[name].row
    phases = [phase.get("name", "work") for phase in preset_of(name)["phases"]]
    assert [each["phase"] for each in row["sessions"]] == phases
    assert all(trials[name].wire(phase) for phase in phases), "each asked the model"
    assert row["plan_produced"] == (f"docs/plans/{task_of(name)}.md" if "plan" in phases else None)


@pytest.mark.parametrize("name", EVERY)
def test_each_skill_of_an_arm_was_called_and_answered_on_the_wire(trials: Mapping[str, Trial], name: str) -> None:
    trial, prefix = trials[name], f"{CE}:" if arm_of(name) in PLUGIN_ARMS else ""
    demanded = {phase.get("name", "work"): phase.get("skill") for phase in preset_of(name)["phases"]}
    assert trial.row["skill_invoked"] is (True if any(demanded.values()) else None)
    assert trial.row["skill_digests"].keys() == {SKILL_OF[each] for each in demanded.values() if each in SKILL_OF}
    for phase, skill in demanded.items():
        rows = trial.wire(phase)
        calls = [call for row in rows for call in row["tool_calls"] if call["name"] == "Skill"]
        expected = [] if skill is None else [{"skill": prefix + SKILL_OF.get(skill, skill)}]
        assert [json.loads(call["input"]) for call in calls] == expected
        answered = {each["call_id"]: each["is_error"] for row in rows for each in row["tool_results"]}
        assert [answered[call["id"]] for call in calls] == [False] * len(calls)


@pytest.mark.parametrize("name", EVERY)
def test_an_arm_has_the_tools_that_it_is_granted_and_no_other(trials: Mapping[str, Trial], name: str) -> None:
    trial = trials[name]
    for phase, seen in zip(preset_of(name)["phases"], trial.row["environment"], strict=True):
        granted = KINDS[phase["tools"]] - set(phase.get("deny", ()))
        assert set(seen["tools"]["granted"].split(",")) == granted
        offered = set(trial.wire(seen["phase"])[0]["tools"])
        assert not offered & set(seen["tools"]["withheld"])
        assert {kind for kind, tool in TOOL_OF.items() if tool in offered} == granted & TOOL_OF.keys()


@pytest.mark.parametrize("name", [name for name in EVERY if arm_of(name) != "baseline_nomcp"])
def test_an_arm_with_the_context_was_offered_its_tools(trials: Mapping[str, Trial], name: str) -> None:
    row = trials[name].row
    index = row["context_index"]
    assert (row["context"], index["commit"], index["tools"]) == ("ctags", row["sanitized_task_sha"], CTAGS)
    assert index["bytes"] > 0
    if name in WORKS:  # all work on one tree
        assert (
            row["sanitized_graph_manifest_digest"] == trials["baseline on json"].row["sanitized_graph_manifest_digest"]
        )
    assert [each["phase"] for each in row["context_sessions"]] == [each["phase"] for each in row["sessions"]]
    for seen in row["context_sessions"]:
        assert (seen["offered"], seen["server_listed"], seen["server_ended"]) == (CTAGS, CTAGS, "stopped")
        assert seen["calls"] == seen["server_calls"], "the wire and the server agree"
        assert (seen["server_failed_calls"], seen["server_refused_calls"]) == ({}, {})


@pytest.mark.parametrize("name", of_arms("baseline"))
def test_the_baseline_asked_the_context_and_worked_by_its_answers(trials: Mapping[str, Trial], name: str) -> None:
    trial, (asked, answer) = trials[name], ANSWERS[task_of(name)]
    (seen,) = trial.row["context_sessions"]
    assert seen["calls"] == dict.fromkeys([asked, "list_symbols"], 1)
    transcript = trial.text("transcript-work.jsonl")
    assert answer in transcript
    assert "cat tally" not in transcript


@pytest.mark.parametrize("name", of_arms("baseline_nomcp"))
def test_the_arm_without_has_no_trace_of_the_context(trials: Mapping[str, Trial], name: str) -> None:
    trial = trials[name]
    row = trial.row
    assert (row["context"], row["context_index"], row["context_sessions"]) == (None, None, [])
    assert (row["sanitized_graph_snapshot_digest"], row["sanitized_graph_manifest_digest"]) == (None, None)
    assert row["environment"][0]["mcp_servers"] == {}
    assert not list(trial.directory.glob("tools-*"))
    for file in ("transcript-work.jsonl", "wire-work.jsonl"):
        assert "ctags" not in trial.text(file)
        assert "ctags" in trials[f"baseline on {task_of(name)}"].text(file)
    assert "cat tally" in trial.text("transcript-work.jsonl"), "it read what the other asked for"


@pytest.mark.parametrize("name", of_arms(*PLUGIN_ARMS))
def test_the_plugin_was_listed_and_its_skills_were_loaded(trials: Mapping[str, Trial], name: str) -> None:
    row = trials[name].row
    phases = [(phase.get("name", "work"), phase["skill"]) for phase in preset_of(name)["phases"]]
    listed = [f"{CE}:{skill}" for skill in CE_SKILLS]
    assert row["plugin_seen"] == [{"phase": phase, "listed": listed, "loaded": [skill]} for phase, skill in phases]
    assert (row["ce_plugin_version"], row["plugin"]["file_count"]) == ("3.1.0", 1 + len(CE_SKILLS))
    assert row["ce_plugin_manifest_digest"] == trials["ce_workflow on linear"].row["ce_plugin_manifest_digest"]
    for seen, (phase, skill) in zip(row["environment"], phases, strict=True):
        assert seen["plugins"] == {CE: row["ce_plugin_manifest_digest"]}
        assert "/opt/plugin" in seen["mounts"]
        assert f"BODY of {skill}" in trials[name].text(f"transcript-{phase}.jsonl")


@pytest.mark.parametrize("name", of_arms(*(arm for arm in ARMS if arm not in PLUGIN_ARMS)))
def test_no_other_arm_has_a_plugin(trials: Mapping[str, Trial], name: str) -> None:
    row = trials[name].row
    assert (row["plugin"], row["plugin_seen"], row["ce_plugin_version"]) == (None, None, None)
    assert not any(each["plugins"] or "/opt/plugin" in each["mounts"] for each in row["environment"])


@pytest.mark.parametrize("name", REVIEWS)
def test_a_review_left_its_artifact_and_was_scored(trials: Mapping[str, Trial], name: str) -> None:
    trial = trials[name]
    row, left = trial.row, json.loads(trial.text("review-output.json"))
    assert row["review_evidence_valid"] is True
    if task_of(name) == "review-options":
        found, verdict, prose = 2 if name in UNRESOLVED else 3, "request_changes", "The budget is run as code"
        expected = {"false_positives": 0, "false_negatives": 3 - found, "blocker_recall": 1.0}
        expected["weighted_f1"] = 0.928571 if name in UNRESOLVED else 1.0
    else:  # a clean control: nothing is wrong, and nothing was found
        found, verdict, prose = 0, "approve", "Nothing is wrong"
        expected = {"false_positives": 0, "false_negatives": 0, "blocker_recall": None, "weighted_f1": None}
    assert (left["verdict"], len(left["findings"])) == (verdict, found)
    assert prose in trial.text("review-output.md")
    assert {key: row["review"][key] for key in expected} == expected


@pytest.mark.parametrize("name", WORKS)
def test_no_other_arm_is_scored_as_a_review(trials: Mapping[str, Trial], name: str) -> None:
    assert (trials[name].row["review"], trials[name].row["review_evidence_valid"]) == (None, None)


@pytest.mark.parametrize("arm", CANDIDATES)
def test_a_candidate_was_promoted_by_these_trials(trials: Mapping[str, Trial], arm: str) -> None:
    for name in of_arms(arm):
        promotion = json.loads((trials[name].directory.parents[2] / "promotion.json").read_text())
        assert trials[name].row["candidate_overlay_digest"] == promotion["binding"]["candidate_overlay_digest"]
        assert {each["candidate_arm"]: each["decision"]["decision"] for each in promotion["decisions"]}[
            arm
        ] == "promote"


@pytest.mark.parametrize("name", of_arms(*CANDIDATES))
def test_a_candidate_ran_with_its_overlay_and_its_incumbent_without(trials: Mapping[str, Trial], name: str) -> None:
    candidate, incumbent = trials[name], trials[name.removeprefix("candidate_")]
    assert candidate.row["candidate_overlay_digest"] is not None
    assert incumbent.row["candidate_overlay_digest"] is None
    ours, theirs = (each.row["skill_digests"] for each in (candidate, incumbent))
    changed = "tally-review" if name in REVIEWS else "tally-work"
    assert {skill for skill in ours if ours[skill] != theirs[skill]} == {changed}
    phase = candidate.row["sessions"][-1]["phase"]
    text = "try the first and the last by hand" if name in REVIEWS else "Read no more than the lines"
    assert text in candidate.text(f"transcript-{phase}.jsonl")
    assert text not in incumbent.text(f"transcript-{phase}.jsonl")
    assert candidate.row["cost_usd"] != incumbent.row["cost_usd"], "the model answered to the candidate's words"


def test_no_arm_in_use_runs_with_a_candidate(trials: Mapping[str, Trial]) -> None:
    with_overlay = {name for name, trial in trials.items() if trial.row["candidate_overlay_digest"] is not None}
    assert with_overlay == set(of_arms(*CANDIDATES))
