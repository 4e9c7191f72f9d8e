"""The example's reviews, from `check` to `apply`, with the scripted model in the real sandbox."""

import ast
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.cli.main import run
from fairtrial.evidence import gate, review_gate
from fairtrial.host.files import remove_tree
from fairtrial.promote.binding import REVIEW_QUALITY_RULE

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(600), pytest.mark.xdist_group("reviews")]

MODEL: Final = "claude-sonnet-4-5"
SKILL: Final = "skills/tally-review/SKILL.md"
Done = subprocess.CompletedProcess[str]


def fairtrial(*arguments: object) -> Done:
    argv = [sys.executable, "-m", "fairtrial", "-q", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=500)


def git(directory: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True)


@pytest.fixture(scope="module")
def example() -> Iterator[Path]:
    """The example as a project whose skills are committed."""
    directory = Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"])) / "ex"
    assert fairtrial("init", directory).returncode == 0
    git(directory, "init", "-q")
    git(directory, "add", "skills")
    git(directory, "commit", "-qm", "skills")
    yield directory
    remove_tree(directory.parent)


@pytest.fixture(scope="module")
def checked(example: Path) -> dict[str, Any]:
    """What `check` says of the reviews."""
    done = fairtrial("check", example / "reviews.yaml", "--runs", 1, "--out", example / "checked", "--json")
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def bench(example: Path, *more: object, tasks: str = "reviews.yaml", arms: str = "review,review_alone") -> Done:
    return fairtrial(
        *("bench", "--tasks", example / tasks, "--arms", arms, "--arms-file", example / "arms.yaml", "--json"),
        *(f"--skill=review={example}/skills/tally-review", "--script", example / "reviews-script.yaml"),
        *("--agent", "bash-agent", "--model", MODEL, *more),
    )


def rows_of(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (results / "results.jsonl").read_text().splitlines()]


def test_every_control_of_the_shipped_reviews_holds(example: Path, checked: dict[str, Any]) -> None:
    held = {(each["task"], each["control"]): (each["held"], each["runs"]) for each in checked["controls"]}

    assert held == {
        ("review-options", "nop"): ("held", 1),
        ("review-options", "reference"): ("held", 1),
        ("review-options", "cheat-empty-review"): ("held", 1),
        ("review-options", "cheat-lists-everything"): ("held", 1),
        ("review-since", "nop"): ("held", 1),
        ("review-since", "reference"): ("held", 1),
        ("review-since", "cheat-lists-everything"): ("held", 1),
    }
    scores = {(row["task"], row["arm"]): row["review"] for row in rows_of(example / "checked")}
    options = {arm: score["weighted_f1"] for (task, arm), score in scores.items() if task == "review-options"}
    listed = options.pop("cheat-lists-everything")
    assert options == {"nop": 0.0, "reference": 1.0, "cheat-empty-review": 0.0}
    assert 0 < listed < 0.1
    assert scores["review-since", "cheat-lists-everything"]["false_positives"] == 100


def test_reviewers_are_compared_by_what_they_find(example: Path, checked: dict[str, Any], tmp_path: Path) -> None:
    done = bench(example, "--runs", 1, "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert checked["exit_code"] == 0

    report = json.loads(done.stdout)
    found = {(task, arm): cell["review"] for task, arms in report["aggregate"].items() for arm, cell in arms.items()}
    assert {cell: each["weighted_f1"] for cell, each in found.items()} == {
        ("review-options", "review"): 0.928571,
        ("review-options", "review_alone"): 0.666667,
        ("review-since", "review"): None,
        ("review-since", "review_alone"): None,
    }
    assert (found["review-since", "review"]["clean_passes"], found["review-since", "review_alone"]["clean_passes"]) == (
        1,
        0,
    )
    assert report["remarks"]["without_controls"] == {}
    text = (tmp_path / "r" / "report.md").read_text()
    assert "## Reviews" in text
    assert "| review-options | review | no | 0.929 | 1.000 | 0.867 | 1.000 | 0 | 1 | 1 / 1 |  |" in text
    audited = fairtrial("audit", tmp_path / "r", "--rejudge")
    assert (audited.returncode, audited.stdout.split("\n")[0]) == (0, "4 of 4 verdicts were repeated")


def bench_candidate(example: Path, candidate: str, out: Path) -> dict[str, Any]:
    """Measure a candidate of the reviewer's skill on both reviews; give what is decided."""
    done = bench(
        example,
        *("--candidate-overlay", example / "candidates" / candidate, "--skill-layout", example / "skills.yaml"),
        *("--project", example, "--rehearsal", "--runs", 1, "--min-runs", 1, "--out", out),
        arms="review,candidate_review",
    )
    assert done.returncode == 0, done.stderr
    (decided,) = json.loads(done.stdout)["promotion"]["decisions"]
    assert decided["candidate_arm"] == "candidate_review"
    value: dict[str, Any] = decided
    return value


@pytest.fixture(scope="module")
def better(example: Path, checked: dict[str, Any]) -> Path:
    """The results of the candidate that finds more."""
    assert checked["exit_code"] == 0
    assert bench_candidate(example, "edges", example / "better")["decision"] == "promote"
    return example / "better"


def test_a_better_reviewer_goes_from_bench_to_the_project(example: Path, better: Path) -> None:
    out = better
    ask = ("gate", out, "--incumbent", "review", "--candidate", "candidate_review", "--model", MODEL, "--rehearsal")
    ask = (*ask, "--min-runs", 1)
    said = fairtrial(*ask, "--json")
    assert said.returncode == 0, said.stdout
    found = json.loads(said.stdout)
    assert found["reasons"] == ["the largest gain in weighted F1 is 0.071429, at least 0.01."]
    assert [task["review"]["candidate"]["weighted_f1"] for task in found["tasks"]] == [1.0, None]
    assert "Arms that review are decided by these figures" in " ".join(fairtrial(*ask).stdout.split())

    before = (example / SKILL).read_bytes()
    done = fairtrial("apply", out, "--project", example, "--rehearsal")
    assert done.returncode == 0, done.stderr
    assert (example / SKILL).read_bytes() == (example / "candidates" / "edges" / SKILL).read_bytes() != before
    (example / SKILL).write_bytes(before)


def test_a_worse_reviewer_is_refused_for_everything_that_it_loses(
    example: Path, checked: dict[str, Any], tmp_path: Path
) -> None:
    assert checked["exit_code"] == 0
    assert bench_candidate(example, "hasty", tmp_path / "r")["decision"] == "keep_incumbent"
    promotion = json.loads((tmp_path / "r" / "promotion.json").read_text())
    assert promotion["binding"]["policy"]["quality_rule"] == REVIEW_QUALITY_RULE
    (decided,) = promotion["decisions"]
    assert decided["inadmissible"] == []
    assert decided["decision"]["reasons"] == [
        "task review-options: the candidate's verdict was right in 0 of 1 runs, not in every one.",
        "task review-options: blocker recall dropped from 1.0 to 0.0.",
        "task review-options: weighted F1 dropped from 0.928571 to 0.0.",
        "task review-since: the candidate's verdict was right in 0 of 1 runs, not in every one.",
        "task review-since: false positives on a clean control rose from 0 to 1.",
        "task review-since: the incumbent passes this clean control in every run, the candidate does not.",
    ]
    applied = fairtrial("apply", tmp_path / "r", "--project", example, "--rehearsal", "--check")
    assert applied.returncode == 1
    assert "not applied" in applied.stderr


OF_BOTH: Final = ("review", "candidate_review")
UNMEASURED: Final = {
    "a review that was scored": ("review-options", OF_BOTH[1:], None),
    "a clean control for one arm only": ("review-since", OF_BOTH[1:], {"clean_control": False}),
    "blocker recall was measured for one arm only": ("review-options", OF_BOTH[1:], {"blocker_recall": None}),
    "false positives were not counted": ("review-since", OF_BOTH, {"false_positives": None}),
    "weighted F1 was not measured": ("review-options", OF_BOTH, {"weighted_f1": None}),
}


def ask_about(rows: list[dict[str, Any]], path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What the gate says of bare rows; never that they may be used."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--incumbent", "review", "--candidate", "candidate_review", "--model", MODEL, "--min-runs", "1", "--json")
    assert run(["gate", str(path), *words]) in (1, 5)
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


@pytest.mark.parametrize("words", UNMEASURED)
def test_what_no_overlay_causes_is_refused_when_it_is_done_to_the_rows(
    words: str, better: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, arms, change = UNMEASURED[words]
    rows = rows_of(better)
    for row in rows:
        if row["task"] == task and row["arm"] in arms:
            row["review"] = None if change is None else row["review"] | change
    said = ask_about(rows, tmp_path / "rows.jsonl", capsys)
    assert said["decision"] == "insufficient_evidence"
    (reason,) = said["reasons"]
    assert words in reason


def test_where_nothing_is_to_be_found_no_reviewer_is_promoted(
    better: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for row in rows_of(better) if row["task"] == "review-since"]
    said = ask_about(rows, tmp_path / "rows.jsonl", capsys)
    assert said["decision"] == "keep_incumbent"
    assert said["reasons"] == ["no task has a defect in which a review could find more."]


def test_every_reason_of_the_gate_of_reviews_is_caused_here() -> None:
    """Ten by `review_gate` (five by `hasty`), and three by `_weigh_reviews`: `edges`, `thorough`, and the one above."""
    tree = ast.parse(inspect.getsource(review_gate))
    assert len([node for node in ast.walk(tree) if isinstance(node, ast.Yield)]) == len(UNMEASURED) + 5
    tree = ast.parse(inspect.getsource(gate._weigh_reviews))
    assert len([node for node in ast.walk(tree) if isinstance(node, ast.Return)]) == 3


def test_a_reviewers_skill_is_evolved_from_the_scores_of_the_generation_before(
    example: Path, checked: dict[str, Any], tmp_path: Path
) -> None:
    assert checked["exit_code"] == 0
    better = (example / "candidates" / "edges" / SKILL).read_text()
    command = (
        f"mkdir -p overlay/skills/tally-review; cat > overlay/{SKILL} <<'END'\n{better}END\necho why > proposal.md"
    )
    usage = {"uncached_input": 40, "output": 100}
    proposer = {
        "name": "proposer",
        "match": {"prompt_contains": "its reviews find more of the defects"},
        "turns": [
            {"usage": usage, "calls": [{"tool": "Bash", "input": {"command": command}}]},
            {"usage": usage, "text": "Proposed."},
        ],
    }
    script = (example / "reviews-script.yaml").read_text()
    (tmp_path / "script.yaml").write_text(script.replace("agents:\n", f"agents:\n  - {json.dumps(proposer)}\n", 1))

    out = tmp_path / "e"
    done = fairtrial(
        *("evolve", "--tasks", example / "reviews.yaml", "--only", "review-options", "--arms", "review", "--json"),
        *(f"--skill=review={example}/skills/tally-review", "--script", tmp_path / "script.yaml", "--rehearsal"),
        *("--agent", "bash-agent", "--model", MODEL, "--project", example, "--skill-layout", example / "skills.yaml"),
        *(
            "--initial-overlay",
            example / "candidates" / "thorough",
            "--generations",
            2,
            "--runs",
            1,
            "--min-runs",
            1,
            "--out",
            out,
        ),
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [(step["generation"], step["step"], step["result"]) for step in said["steps"]] == [
        (0, "propose", "proposed"),
        (0, "measure", "kept"),
        (1, "propose", "proposed"),
        (1, "measure", "promotable"),
    ]
    given = json.loads((out / "generations/1/proposal/repository/evidence/evidence.json").read_text())
    scores = {row["arm"]: row["review"] for row in given["rows"]}
    assert {arm: (score["weighted_f1"], score["false_negatives"]) for arm, score in scores.items()} == {
        "review": (0.928571, 1),
        "candidate_review": (0.928571, 1),
    }
    assert given["gate"] == [
        "generation 0: kept: candidate_review: the largest gain in weighted F1 is 0.0, less than 0.01."
    ]
    labels = json.loads((example / "labels" / "review-options.json").read_text())["findings"]
    shown = json.dumps(given)
    assert not [label["id"] for label in labels if label["id"] in shown]


@pytest.mark.parametrize(
    ("tasks", "arms", "words"),
    [
        ("tasks.yaml", "review", "arm 'review' reviews, and task 'amounts' has no labels"),
        ("reviews.yaml", "baseline", "task 'review-options' is a review, and arm 'baseline' has no phase of kind"),
    ],
)
def test_an_arm_that_does_not_do_what_a_task_asks_is_refused_before_anything_runs(
    tasks: str, arms: str, words: str, example: Path, tmp_path: Path
) -> None:
    done = bench(example, "--out", tmp_path / "r", tasks=tasks, arms=arms)

    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert not (tmp_path / "r").exists()
