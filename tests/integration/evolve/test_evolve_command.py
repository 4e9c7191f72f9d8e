"""`fairtrial evolve` from the command line, with a scripted model in every part."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evolve.bound import DriftError, bind_evolution, require_unchanged
from fairtrial.evolve.evolution import resume_evolution
from fairtrial.evolve.next_step import Bounds
from fairtrial.evolve.record import (
    EVOLUTION_SCHEMA,
    EvolutionFiles,
    create_evolution,
    write_evolution,
    write_intent,
    write_outcome,
)
from fairtrial.evolve.values import (
    OUTCOME_SCHEMA,
    Ending,
    EndKind,
    EvolveOptions,
    Step,
    StepKind,
    StepOutcome,
    StepResult,
)
from fairtrial.evolve.work import Work
from fairtrial.host.clock import monotonic_s, rfc3339, utc_now
from fairtrial.host.files import remove_tree
from fairtrial.store.layout import Results
from fairtrial.sweep.bench_plan import BenchOptions, CandidateOptions
from fairtrial.sweep.execute import Event
from fairtrial.sweep.loop_sweep import SweepOptions
from fairtrial.workspace.skill_layout import read_layout

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(900), pytest.mark.xdist_group("evolve")]

MODEL = "claude-sonnet-4-5"
SKILL = ".claude/skills/tally-work/SKILL.md"
BRIEF = "BE-BRIEF"
"""The word in a skill that makes the scripted model's work cheaper."""
Done = subprocess.CompletedProcess[str]


def fairtrial(*arguments: object) -> Done:
    command = [sys.executable, "-m", "fairtrial", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


def printed(done: Done, code: int) -> dict[str, Any]:
    """The object that a command printed, when it ended as it should."""
    assert done.returncode == code, done.stdout + done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    assert value["exit_code"] == code
    return value


def usage(output: int) -> dict[str, int]:
    return {"uncached_input": 40, "cache_write": 700, "cache_read": 6000, "output": output}


def bash(command: str) -> list[dict[str, object]]:
    return [{"tool": "Bash", "input": {"command": command}}]


def proposer(generation: int, command: str) -> dict[str, object]:
    return {
        "name": f"proposer-{generation}",
        "match": {"prompt_contains": f"This is generation {generation}."},
        "turns": [
            {"usage": usage(100), "calls": bash(f"set -e; find . -path ./.git -prune -o -type f -print; {command}")},
            {"usage": usage(10), "text": "Proposed."},
        ],
    }


def write(addition: str) -> str:
    """The command by which a proposer adds a line to the skill."""
    return (
        "mkdir -p overlay/.claude/skills/tally-work;"
        f" {{ cat incumbent/{SKILL}; echo '{addition}'; }} > overlay/{SKILL}; echo why > proposal.md"
    )


def worker(task: str, words: str, patch: str, *, brief_s: int = 0) -> dict[str, object]:
    work = f"git apply <<'PATCH'\n{patch}PATCH\npython3 -m unittest discover -s tests -t . -q"
    calls = bash(work)
    brief = bash(f"{work}; sleep {brief_s}") if brief_s else calls
    return {
        "name": task,
        "match": {"prompt_contains": words},
        "turns": [
            {"usage": usage(60), "calls": [{"tool": "Skill", "input": {"skill": "tally-work"}}]},
            {
                "usage": usage(4000),
                "calls": calls,
                "cases": [{"when": {"contains": BRIEF}, "usage": usage(1000), "calls": brief}],
            },
            {"usage": usage(50), "text": "Done."},
        ],
    }


@dataclass(frozen=True)
class World:
    """A task file and the project whose skill is improved."""

    root: Path

    @property
    def tasks(self) -> Path:
        return self.root / "tasks.yaml"

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def skill(self) -> Path:
        return self.project / SKILL

    def script(self, *proposers: dict[str, object], holdout_s: int = 0) -> Path:
        """Write the script of the model: the work on both tasks, and some proposers.

        A candidate with the brief word takes so long, at least, for the held-out task.
        """
        work = [
            worker("linear", "by_category and by_month", (self.root / "references/linear.patch").read_text()),
            worker(
                "amounts",
                "misreads amounts",
                (self.root / "references/amounts.patch").read_text(),
                brief_s=holdout_s,
            ),
        ]
        path = self.root / "evolve.yaml"
        path.write_text(json.dumps({"schema": "script/1", "agents": [*proposers, *work]}))
        return path

    def evolve(self, out: Path, script: Path, *more: object) -> list[object]:
        return [
            *("evolve", "--tasks", self.tasks, "--arms", "direct", "--agent", "bash-agent", "--model", MODEL),
            *("--arms-file", self.root / "own.yaml", "--project", self.project),
            *("--script", script, "--rehearsal", "--runs", 1, "--min-runs", 1, "--out", out, "--json"),
            *more,
        ]


def git(project: Path, *arguments: str) -> None:
    env = os.environ | {
        f"GIT_{role}_{part}": "ada@example.invalid" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
    }
    subprocess.run(["git", *arguments], cwd=project, check=True, env=env, capture_output=True)


@pytest.fixture
def world(checked: World) -> Iterator[World]:
    """The world as it was made: its paths are part of what is bound, so that it cannot be copied."""
    yield checked
    git(checked.project, "checkout", "-q", "--", ".")
    (checked.root / "tasks.holdout.jsonl").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The example with one task to learn on and one held out, its controls held, its skills in a project."""
    world = World(tmp_path_factory.mktemp("evolve") / "ex")
    assert fairtrial("init", world.root).returncode == 0
    (world.project / ".claude").mkdir(parents=True)
    shutil.copytree(world.root / "skills", world.project / ".claude/skills")
    git(world.project, "init", "-q", "-b", "main", ".")
    git(world.project, "add", "--all")
    git(world.project, "commit", "-q", "-m", "skills")
    (world.root / "own.yaml").write_text(
        "arms:\n  direct: {like: workflow_direct, names: {work: tally-work},"
        " skills: {tally-work: project/.claude/skills/tally-work}}\n"
    )
    text = world.tasks.read_text()
    head, tasks = text.split("  - id: amounts", 1)
    kept = "  - id: amounts" + tasks.split("  - id: json", 1)[0].replace(
        "    class: bug-fix", "    class: bug-fix\n    holdout: true"
    )
    kept += "  - id: linear" + tasks.split("  - id: linear", 1)[1]
    world.tasks.write_text(head + kept)
    done = fairtrial("check", world.tasks, "--runs", 1, "--out", world.root.parent / "check")
    assert done.returncode == 0, done.stdout + done.stderr
    return world


def steps_of(printed: dict[str, Any]) -> Sequence[tuple[int, str, str]]:
    return [(step["generation"], step["step"], step["result"]) for step in printed["steps"]]


USELESS = proposer(0, write("Be thorough."))
GOOD = proposer(1, write(BRIEF))
UP_TO_THE_FINAL_GATE = [
    (0, "propose", "proposed"),
    (0, "measure", "kept"),
    (1, "propose", "proposed"),
    (1, "measure", "promotable"),
    (1, "confirm", "promotable"),
]


def test_a_candidate_that_is_useless_is_kept_out_and_a_good_one_is_promoted_on_the_held_out_task_and_applied(
    world: World, tmp_path: Path
) -> None:
    out = tmp_path / "e"
    done = fairtrial(*world.evolve(out, world.script(USELESS, GOOD), "--generations", 5, "--apply", "--budget-usd", 9))
    value = printed(done, 0)
    assert steps_of(value) == [*UP_TO_THE_FINAL_GATE, (1, "apply", "applied")]
    assert (value["ended"], value["promoted"]) == ("promoted", "generations/1/confirm")
    assert (value["learning_tasks"], value["holdout_tasks"]) == (["linear"], ["amounts"])
    assert 0 < value["spent_usd"] < 9
    assert world.skill.read_text().endswith(f"{BRIEF}\n")

    # What the learning task alone promotes is for the final gate to decide.
    words = ("--project", world.project, "--rehearsal", "--check")
    said = {name: fairtrial("apply", out / f"generations/1/{name}", *words) for name in ("measure", "confirm")}
    assert {name: done.returncode for name, done in said.items()} == {"measure": 1, "confirm": 2}
    assert "asks for the final gate" in said["measure"].stderr
    assert "drifted" in said["confirm"].stderr, "the project holds the candidate already"

    # The held-out task was asked once, about the one candidate that the learning task promotes.
    uses = [json.loads(line) for line in (world.root / "tasks.holdout.jsonl").read_text().splitlines()]
    assert [(use["evolution"], use["generation"], list(use["tasks"])) for use in uses] == [
        (value["evolution"], 1, ["amounts"])
    ]
    assert value["steps"][4]["holdout_uses"] == {"amounts": 1}
    for sweep in out.glob("generations/*/*/sweep.json"):
        tasks = {entry["task"] for entry in json.loads(sweep.read_text())["plan"]}
        assert tasks == ({"amounts"} if sweep.parent.name == "confirm" else {"linear"})
    for step in value["steps"]:
        assert fairtrial("audit", out / step["results"], "--expect", step["seal"]).returncode == 0

    # A proposer saw the skill and the evidence, and nothing that it is judged by.
    given = out / "generations/1/proposal/repository"
    seen = {path.relative_to(given).as_posix() for path in given.rglob("*") if ".git" not in path.parts[:-1]}
    shown = {each for each in seen if (given / each).is_file()}
    assert shown == {
        f"earlier/0/{SKILL}",
        "evidence/evidence.json",
        "evidence/transcripts/00.jsonl",
        "evidence/transcripts/01.jsonl",
        f"incumbent/{SKILL}",
    }
    everything = b"".join((given / each).read_bytes() for each in shown)
    hidden = [*world.root.glob("oracles/*.py"), *world.root.glob("cheats/*")]
    for path in hidden:
        assert path.read_bytes() not in everything
    for word in (b"FAIRTRIAL_ORACLE_ROOT", b"amounts", b"test_linear", b"forges-the-library"):
        assert word not in everything
    (listing,) = out.glob("generations/1/proposal/results/trials/*/1/transcript-propose.jsonl")
    listed = listing.read_text()
    assert "./evidence/evidence.json" in listed
    assert "tally/" not in listed


def test_when_no_candidate_is_better_all_generations_run_and_the_project_stays_as_it_is(
    world: World, tmp_path: Path
) -> None:
    before = world.skill.read_bytes()
    first = tmp_path / "first" / SKILL
    first.parent.mkdir(parents=True)
    first.write_bytes(before + b"Be thorough.\n")
    script = world.script(proposer(1, write("Be more thorough.")))
    more = ("--initial-overlay", tmp_path / "first", "--generations", 2, "--apply")
    value = printed(fairtrial(*world.evolve(tmp_path / "e", script, *more)), 0)
    assert value["ended"] == "all-generations-ran"
    assert steps_of(value) == [
        (generation, step, result)
        for generation in (0, 1)
        for step, result in (("propose", "proposed"), ("measure", "kept"))
    ]
    assert world.skill.read_bytes() == before
    bindings = [
        json.loads((tmp_path / f"e/generations/{number}/measure/promotion.json").read_text())["binding"]
        for number in (0, 1)
    ]
    assert [binding["candidate_origin"] for binding in bindings] == ["manual-overlay", "model-proposer"]
    assert [binding["proposer_model"] for binding in bindings] == [None, MODEL]
    assert not (world.root / "tasks.holdout.jsonl").exists()
    again = printed(fairtrial("resume", tmp_path / "e", "--json"), 0)
    assert again == value


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("mkdir -p overlay; echo x > overlay/run.sh; echo why > proposal.md", "the proposal is no candidate: "),
        (
            "mkdir over; echo x > over/a.md; ln -s over overlay; echo why > proposal.md",
            "the proposer failed: oracle-failed",
        ),
    ],
)
def test_a_proposal_that_is_no_candidate_ends_it_with_1_before_anything_is_measured(
    world: World, tmp_path: Path, command: str, why: str
) -> None:
    # Evidence of controls is none: their changes and transcripts are references and cheats.
    more = ("--seed-results", world.root.parent / "check")
    value = printed(fairtrial(*world.evolve(tmp_path / "e", world.script(proposer(0, command)), *more)), 1)
    assert (value["ended"], steps_of(value)) == ("refused", [(0, "propose", "refused")])
    assert value["detail"].startswith(why)
    assert not (tmp_path / "e/generations/0/measure").exists()
    evidence = tmp_path / "e/generations/0/proposal/repository/evidence"
    assert json.loads((evidence / "evidence.json").read_text())["rows"] == []
    assert not (evidence / "transcripts").exists()


@pytest.mark.parametrize(
    ("option", "code", "ended", "steps"),
    [
        ("--proposer-budget-usd", 1, "refused", [(0, "propose", "refused")]),
        ("--budget-usd", 5, "budget", []),
    ],
)
def test_a_proposal_cannot_cost_more_than_it_may_and_is_run_as_asked(
    world: World, tmp_path: Path, option: str, code: int, ended: str, steps: Sequence[tuple[int, str, str]]
) -> None:
    out, scratch = tmp_path / "e", Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"]))
    scratch.chmod(0o711)
    how = ("--engine", "local", "--record", "--keep-workspaces", "--scratch", scratch, "--provider-wait", 1)
    value = printed(fairtrial(*world.evolve(out, world.script(USELESS), option, 0.0001, *how)), code)
    assert (value["ended"], steps_of(value)) == (ended, steps)
    assert code == 5 or value["detail"].startswith("the proposer failed: budget-exhausted")
    arms = json.loads((out / "generations/0/proposal/arms.yaml").read_text())
    assert arms["arms"]["proposer"]["budget"] == {"cost_usd": 0.0001}
    (row,) = map(json.loads, (out / "generations/0/proposal/results/results.jsonl").read_text().splitlines())
    assert row["wire"]["requests"] == 1
    options = json.loads((out / "evolve.json").read_text())["bound"]["options"]["bench"]
    assert (options["engine"], options["record"]) == ("local", True)
    assert any(out.glob("generations/0/proposal/results/trials/*/1/script-propose.yaml"))
    assert any(scratch.iterdir())
    remove_tree(scratch)


def test_a_dry_run_says_what_would_be_done_and_makes_nothing(world: World, tmp_path: Path) -> None:
    words = world.evolve(tmp_path / "e", world.script(USELESS), "--generations", 4, "--runs", 3, "--dry-run")
    done = fairtrial(*words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "schema": "evolve-plan/1",
        "generations": 4,
        "learning_tasks": ["linear"],
        "holdout_tasks": ["amounts"],
        "skills": {"direct": ["tally-work"]},
        "measure_trials": 6,
        "confirm_trials": 6,
    }
    words.remove("--json")
    said = fairtrial(*words).stdout
    assert "measure: 6 trials at most, on linear" in said
    assert "confirm: 6 trials at most, on amounts" in said
    assert not (tmp_path / "e").exists()
    assert not (world.root / "tasks.holdout.jsonl").exists()


def test_bench_refuses_a_task_that_is_held_out_for_the_final_gate(world: World, tmp_path: Path) -> None:
    common = ("--tasks", world.tasks, "--arms", "baseline", "--agent", "nop", "--model", MODEL, "--out", tmp_path / "r")
    value = printed(fairtrial("bench", *common, "--only", "linear,amounts", "--json"), 2)
    assert "--only: 'amounts' is held out for the final gate" in value["message"]
    assert not (tmp_path / "r").exists()
    plan = fairtrial("bench", *common, "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert "linear" in plan.stdout
    assert "amounts" not in plan.stdout


def test_a_spent_budget_ends_it_with_5_between_two_trials_and_no_pass_goes_beyond_it(
    world: World, tmp_path: Path
) -> None:
    out = tmp_path / "e"
    value = printed(fairtrial(*world.evolve(out, world.script(USELESS), "--budget-usd", 0.05)), 5)
    assert (value["ended"], steps_of(value)) == ("budget", [(0, "propose", "proposed")])
    rows = (out / "generations/0/measure/results.jsonl").read_text().splitlines()
    assert [json.loads(row)["error_kind"] for row in rows] == [None]  # of two trials
    assert json.loads((out / "generations/0/measure/promotion.json").read_text())["run_status"] == "aborted"
    again = printed(fairtrial("resume", out, "--json"), 5)
    assert again["spent_usd"] == value["spent_usd"] > 0.05
    assert (out / "generations/0/measure/results.jsonl").read_text().splitlines() == rows


def test_when_the_time_of_a_pass_is_over_no_trial_begins_those_that_run_end_and_the_next_pass_runs_the_others(
    world: World, tmp_path: Path
) -> None:
    first = tmp_path / "first" / SKILL
    first.parent.mkdir(parents=True)
    first.write_bytes(world.skill.read_bytes() + b"Be thorough.\n")
    options = options_of(world)
    options = replace(options, bench=replace(options.bench, runs=2), initial_overlay=str(tmp_path / "first"))
    bound, _ = bind_evolution(options, tmp_path)
    files = create_evolution(tmp_path / "e", now=utc_now(), base=tmp_path)
    scratch = Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"]))
    scratch.chmod(0o711)

    def let_time_pass(_event: Event) -> None:
        over.started_s = monotonic_s() - 3600.0  # it is over when the first trial ends, however fast that is

    how = SweepOptions(
        out=None,
        scratch=scratch,
        keep_workspaces=False,
        lock_wait_s=0.0,
        report=lambda _results: None,
        say=lambda _line: None,
        watch=let_time_pass,
    )
    bounds = Bounds(generations=1, wall_time_s=3600.0)
    over = Work(
        files=files,
        evolution="e",
        bound=bound,
        bounds=bounds,
        how=how,
        n_workers=2,
        started_s=monotonic_s(),
    )
    measure = Step(generation=0, kind=StepKind.MEASURE)
    proposed = over.run(Step(generation=0, kind=StepKind.PROPOSE), ())
    assert isinstance(proposed, StepOutcome)
    ended = over.run(measure, (proposed,))
    assert isinstance(ended, Ending)
    assert (ended.kind, ended.exit_code) == (EndKind.WALL_TIME, 5)
    results = Results(root=files.generation(0).results(StepKind.MEASURE))
    before = results.results_jsonl.read_text()
    rows = [json.loads(line) for line in before.splitlines()]
    assert [(row["position_in_block"], row["error_kind"]) for row in rows] == [(0, None), (0, None)]  # of four trials

    came_to = replace(over, bounds=Bounds(generations=1)).run(measure, (proposed,))
    assert isinstance(came_to, StepOutcome)
    assert came_to.result is StepResult.KEPT
    after = results.results_jsonl.read_text()
    assert after.startswith(before)
    assert [json.loads(line)["error_kind"] for line in after.splitlines()] == [None] * 4
    assert results.seal_json.exists()
    remove_tree(scratch)


@pytest.mark.parametrize("kind", [StepKind.MEASURE, StepKind.CONFIRM], ids=str)
def test_a_candidate_that_is_another_than_the_step_before_had_is_not_measured(
    kind: StepKind, world: World, tmp_path: Path
) -> None:
    first = tmp_path / "first" / SKILL
    first.parent.mkdir(parents=True)
    first.write_bytes(world.skill.read_bytes() + b"Be thorough.\n")
    bound, _ = bind_evolution(replace(options_of(world), initial_overlay=str(tmp_path / "first")), tmp_path)
    files = create_evolution(tmp_path / "e", now=utc_now(), base=tmp_path)
    how = SweepOptions(
        out=None,
        scratch=tmp_path,
        keep_workspaces=False,
        lock_wait_s=0.0,
        report=lambda _results: None,
        say=lambda _line: None,
        watch=lambda _event: None,
    )
    work = Work(
        files=files,
        evolution="e",
        bound=bound,
        bounds=Bounds(generations=1),
        how=how,
        n_workers=1,
        started_s=monotonic_s(),
    )
    before = work.run(Step(generation=0, kind=StepKind.PROPOSE), ())
    assert isinstance(before, StepOutcome)
    if kind is StepKind.CONFIRM:
        before = replace(before, step=StepKind.MEASURE, result=StepResult.PROMOTABLE)
    candidate = files.generation(0).candidate
    remove_tree(candidate)
    (candidate / SKILL).parent.mkdir(parents=True)
    (candidate / SKILL).write_bytes(first.read_bytes() + b"And use the answer.\n")
    with pytest.raises(IntegrityError, match=f"another candidate than the one that was {before.step}d"):
        work.run(Step(generation=0, kind=kind), (before,))
    assert not files.generation(0).results(kind).exists()
    assert not (world.root / "tasks.holdout.jsonl").exists()


def test_an_evolution_that_is_killed_again_and_again_comes_to_the_same_end(world: World, tmp_path: Path) -> None:
    out = tmp_path / "e"
    # A pass is killed when it has come so far. Not in a trial of the final gate: that is another test.
    milestones = [
        "generations/0/proposal/results/trials/*/1/intent.json",
        "generations/0/candidate",
        "generations/0/measure/trials/*/1/outcome.json",
        "generations/1/confirm.intent.json",
        "generations/1/confirm/sweep.json",
    ]
    command: list[object] = world.evolve(out, world.script(USELESS, GOOD), "--generations", 2)
    for milestone in milestones:
        kill_at(lambda milestone=milestone: any(out.glob(milestone)), command)  # type: ignore[misc] # bound now
        command = ["resume", out, "--json"]
    value = printed(fairtrial(*command), 0)
    assert steps_of(value) == UP_TO_THE_FINAL_GATE
    # Late enough, the last kill cuts a trial off, and the final gate measures once more: that is the test below.
    assert value["steps"][4]["holdout_uses"] == {"amounts": len([*out.glob("generations/1/confirm*/sweep.json")])}
    for step in ("generations/0/measure", "generations/1/measure", value["promoted"]):
        rows = [json.loads(line) for line in (out / step / "results.jsonl").read_text().splitlines()]
        counting = [row["key"] for row in rows if row["error_kind"] is None]
        assert sorted(counting) == sorted(set(counting))
        assert len(counting) == 2


@pytest.mark.needs("claude")
def test_a_real_command_line_proposes_and_finds_nothing_that_it_is_judged_by(world: World, tmp_path: Path) -> None:
    out = tmp_path / "e"
    # The patterns match the names of oracles, cheats and the task file, without being them: what is found stands in
    # the transcript as it is, and what was looked for does not.
    look = (
        "find / -xdev \\( -name 'test_amo[u]nts*' -o -name 'test_lin[e]ar*' -o -name '*-forges-the-libr[a]ry*'"
        " -o -name 'tasks.y[a]ml' -o -name '*.hold[o]ut.jsonl' -o -name 'given.s[h]' \\) 2>/dev/null; env | sort;"
    )
    script = world.script(proposer(0, look + write(BRIEF)))
    value = printed(fairtrial(*world.evolve(out, script, "--proposer-agent", "claude-code")), 0)
    assert value["ended"] == "promoted"
    assert steps_of(value) == [(0, "propose", "proposed"), (0, "measure", "promotable"), (0, "confirm", "promotable")]
    (row,) = (
        json.loads(line) for line in (out / "generations/0/proposal/results/results.jsonl").read_text().splitlines()
    )
    assert (row["agent"], row["resolved"], row["sandboxed"]) == ("claude-code", True, True)
    assert row["wire"]["requests"] == 2
    (listing,) = out.glob("generations/0/proposal/results/trials/*/1/transcript-propose.jsonl")
    said = listing.read_text()
    assert "./evidence/evidence.json" in said
    assert "FAIRTRIAL_DEADLINE" in said
    for hidden in ("test_amounts", "test_linear", "forges-the-library", "tasks.yaml", "holdout.jsonl", "given.sh"):
        assert hidden not in said
    for word in ("FAIRTRIAL_ORACLE_ROOT", "amounts", "tally/"):
        assert word not in said
    binding = json.loads((out / "generations/0/confirm/promotion.json").read_text())["binding"]
    assert (binding["candidate_origin"], binding["proposer_model"]) == ("model-proposer", MODEL)


def test_a_kill_inside_a_trial_of_the_final_gate_costs_a_good_candidate_nothing_but_another_use(
    world: World, tmp_path: Path
) -> None:
    out, first = tmp_path / "e", tmp_path / "first" / SKILL
    first.parent.mkdir(parents=True)
    first.write_bytes(world.skill.read_bytes() + f"{BRIEF}\n".encode())
    confirm = out / "generations/0/confirm"

    def in_a_trial_of_the_candidate(confirm: Path) -> bool:
        return any("candidate_direct" in path.read_text() for path in confirm.glob("trials/*/1/intent.json"))

    slow = world.script(USELESS, holdout_s=5)  # the kill comes within it, however busy the machine is
    command: list[object] = world.evolve(out, slow, "--initial-overlay", tmp_path / "first")
    # A kill cuts a trial off, or comes too late for that: then the measurement counts as it is.
    kill_at(lambda: in_a_trial_of_the_candidate(confirm), command)
    kill_at(lambda: in_a_trial_of_the_candidate(confirm.with_name("confirm-1")), ["resume", out, "--json"])
    value = printed(fairtrial("resume", out, "--json"), 0)
    assert value["ended"] == "promoted"
    assert steps_of(value) == [(0, "propose", "proposed"), (0, "measure", "promotable"), (0, "confirm", "promotable")]

    measured = [confirm, *sorted(confirm.parent.glob("confirm-*"))]
    assert len(measured) > 1, "no trial was cut off"
    assert value["promoted"] == f"generations/0/{measured[-1].name}"
    for each in measured:
        rows = [json.loads(line) for line in (each / "results.jsonl").read_text().splitlines()]
        cut = [row for row in rows if row["error_kind"] == "interrupted" and row["arm"] == "candidate_direct"]
        assert bool(cut) is (each != measured[-1])
        assert json.loads((each / "promotion.json").read_text())["promotable"] is not bool(cut)
        assert fairtrial("audit", each).returncode == 0
    assert value["steps"][2]["holdout_uses"] == {"amounts": len(measured)}
    uses = [json.loads(line) for line in (world.root / "tasks.holdout.jsonl").read_text().splitlines()]
    assert [use["repeat"] for use in uses] == list(range(len(measured)))
    done = fairtrial("apply", out / value["promoted"], "--project", world.project, "--rehearsal", "--check")
    assert done.returncode == 0, done.stderr


def kill_at(reached: Callable[[], bool], command: Sequence[object]) -> None:
    """Run a command until something is on disk, and kill it then."""
    argv = [sys.executable, "-m", "fairtrial", "-q", *map(str, command)]
    running = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + 500
        while running.poll() is None and not reached():
            assert time.monotonic() < deadline_s
            time.sleep(0.005)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()


def options_of(world: World) -> EvolveOptions:
    return EvolveOptions(
        bench=BenchOptions(
            tasks=str(world.tasks),
            arms=("direct",),
            arms_file=str(world.root / "own.yaml"),
            model=MODEL,
            agent="bash-agent",
            runs=1,
            script=str(world.script(USELESS)),
        ),
        candidate=CandidateOptions(
            overlay="", layout=read_layout("plain"), project=str(world.project), min_runs=1, rehearsal=True
        ),
        proposer_agent="bash-agent",
        proposer_model=MODEL,
    )


def test_an_expensive_task_that_is_held_out_stays_hidden_and_does_not_do_away_with_the_final_gate(
    world: World, tmp_path: Path
) -> None:
    text, held_out = world.tasks.read_text(), "    holdout: true"
    assert text.count(held_out) == 1
    start, end = text.index("  - id: amounts"), text.index("  - id: linear")
    slow = text[start:end].replace("amounts", "slow", 1).replace(held_out, f"    expensive: true\n{held_out}")
    try:
        world.tasks.write_text(text[:end] + slow + text[end:])
        bound, _ = bind_evolution(options_of(world), tmp_path)
        assert (bound.holdout_ids, bound.held_out) == (("amounts",), ("amounts", "slow"))
        with pytest.raises(DriftError, match="other tasks are held out"):
            require_unchanged(replace(bound, held_out=("amounts",)), tmp_path)

        world.tasks.write_text(text[:start] + slow + text[end:])
        with pytest.raises(UsageError, match="there would be no final gate; give --include-expensive"):
            bind_evolution(options_of(world), tmp_path)
        world.tasks.write_text(text.replace(held_out, "    holdout: false"))
        assert bind_evolution(options_of(world), tmp_path)[0].held_out == ()
    finally:
        world.tasks.write_text(text)


def test_what_was_fixed_may_not_change_and_a_ref_that_moves_changes_nothing(world: World, tmp_path: Path) -> None:
    bound, base = bind_evolution(options_of(world), tmp_path)
    assert sorted(bound.base_digests) == [SKILL]
    assert require_unchanged(bound, tmp_path) == base

    repository = world.root / "repository"
    git(repository, "commit", "-q", "--allow-empty", "-m", "later")
    try:
        assert require_unchanged(bound, tmp_path) == base
    finally:
        git(repository, "reset", "-q", "--hard", "HEAD~1")
    world.skill.write_text("other\n")
    with pytest.raises(DriftError, match="differs from what is committed"):
        require_unchanged(bound, tmp_path)
    git(world.project, "checkout", "-q", "--", ".")
    digests = dict.fromkeys(bound.base_digests, "0" * 64)
    with pytest.raises(DriftError, match=r"SKILL\.md is not what it was"):
        require_unchanged(replace(bound, base_digests=digests), tmp_path)
    with pytest.raises(DriftError, match="the holdout tasks are others"):
        require_unchanged(replace(bound, holdout=()), tmp_path)


def drift_of(path: Path, text: str, files: EvolutionFiles, scratch: Path) -> str:
    """What the next pass says when a file holds another text meanwhile."""
    before = path.read_text()
    path.write_text(text)
    how = SweepOptions(
        out=None,
        scratch=scratch,
        keep_workspaces=False,
        lock_wait_s=0.0,
        report=lambda _results: None,
        say=lambda _line: None,
        watch=lambda _event: None,
    )
    try:
        with pytest.raises(DriftError) as refused:
            resume_evolution(files, how, n_workers=1)
    finally:
        path.write_text(before)
    assert refused.value.exit_code == 1
    return str(refused.value)


def test_an_arm_a_skill_or_a_script_that_is_another_in_the_next_generation_is_refused_by_its_name(
    world: World, tmp_path: Path
) -> None:
    # A skill that the arm loads and no candidate may change; the files of the others are bound one by one.
    other, arms = world.root / "other" / "SKILL.md", world.root / "given.yaml"
    other.parent.mkdir()
    other.write_text("---\nname: other\ndescription: Another.\n---\n")
    arms.write_text((world.root / "own.yaml").read_text().replace("skills: {", "skills: {other: other, "))
    asked = options_of(world)
    script = Path(str(asked.bench.script))
    options = replace(
        asked,
        bench=replace(asked.bench, arms_file=str(arms)),
        candidate=replace(asked.candidate, layout=replace(asked.candidate.layout, skills=("tally-work",))),
        generations=2,
    )
    bound, _ = bind_evolution(options, tmp_path)
    files = create_evolution(tmp_path / "e", now=utc_now(), base=tmp_path)
    write_evolution(files, {"schema": EVOLUTION_SCHEMA, "evolution": "e", "bound": bound.as_json()})
    write_intent(files, Step(generation=0, kind=StepKind.PROPOSE), evolution="e", now=utc_now())
    kept = StepOutcome(
        schema=OUTCOME_SCHEMA,
        evolution="e",
        generation=0,
        step=StepKind.PROPOSE,
        result=StepResult.KEPT,
        ended_utc=rfc3339(utc_now()),
    )
    write_outcome(files, kept)

    said = drift_of(arms, arms.read_text().replace("direct: {", "direct: {budget: {cost_usd: 5}, "), files, tmp_path)
    assert "arm.direct.sha256 was" in said
    assert "arm.direct.sha256 was" in drift_of(other, other.read_text() + "More.\n", files, tmp_path)
    assert "script.sha256 was" in drift_of(script, script.read_text() + "\n", files, tmp_path)
    assert not [*files.root.glob("generations/1/proposal*")]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--only", "amounts"), "is held out for the final gate"),
        (("--arms", "direct,candidate_direct"), "candidates are added"),
        (("--arms", "baseline"), "loads no skill"),
        (("--min-runs", 2), "--runs 1 is less than --min-runs 2"),
        (("--proposer-agent", "nop"), "speaks to no model"),
        (("--context", "ctags"), "bash-agent does not speak MCP; give the arm `context: none`"),
        (("--budget-usd", "nan"), "is no number of US dollars"),
        (("--seed-results", "nowhere"), "not a results directory"),
        (("--initial-overlay", "nowhere"), "overlay"),
        (("--learnings", "nowhere.jsonl"), "cannot be read"),
    ],
)
def test_what_could_not_end_well_is_refused_before_anything_is_made(
    world: World, tmp_path: Path, more: tuple[object, ...], why: str
) -> None:
    done = fairtrial(*world.evolve(tmp_path / "e", world.script(USELESS), *more))
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (2, 2), done.stderr
    assert why in done.stderr
    assert not (tmp_path / "e").exists()
