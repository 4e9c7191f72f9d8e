"""Whole trials of a review: what its session can write, what it must leave, and what it is worth."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.needs("bwrap", "git")

Row = dict[str, Any]
RunTrial = Callable[..., Row]
USAGE: Final = {"uncached_input": 100, "output": 10}
SKILL: Final = {"calls": [{"tool": "Skill", "input": {"skill": "acme-review"}}], "usage": USAGE}
DONE: Final = {"text": "Done.", "usage": USAGE}
LABEL: Final = {
    "id": "l1",
    "severity": "critical",
    "path": "calc.py",
    "line_start": 2,
    "line_end": 2,
    "category": "correctness",
}
FINDING: Final = {
    "id": "f1",
    "severity": "critical",
    "path": "calc.py",
    "line": 1,
    "end_line": 2,
    "category": "correctness",
    "scenario": "add(2, 3) is -1",
    "evidence": "it subtracts",
    "recommendation": "add",
    "blocking": True,
}
RIGHT: Final = {"schema_version": 1, "verdict": "request_changes", "findings": [FINDING]}
APPROVE: Final = {"schema_version": 1, "verdict": "approve", "findings": []}


def bash(command: str) -> dict[str, Any]:
    return {"calls": [{"tool": "Bash", "input": {"command": command}}], "usage": USAGE}


def writes(review: object, name: str = "review-output.json") -> str:
    return f"cat > /review/{name} <<'END'\n{json.dumps(review)}\nEND\n"


@pytest.fixture
def review(trial: RunTrial, world: Path) -> RunTrial:
    """Run one review; `labels` are what is hidden."""

    def run(*commands: str, labels: list[object] | None = None, **more: object) -> Row:
        known = {"schema_version": 1, "findings": [LABEL] if labels is None else labels}
        (world / "labels.json").write_text(json.dumps(known))
        oracle = {"runner": "review", "files": [{"source": "labels.json", "target": "review-labels.json"}]}
        turns = [SKILL, *map(bash, commands), DONE]
        entry: dict[str, Any] = {"oracle": oracle, "reference": None, "prompt": "Look at calc.py.", **more}
        return trial(turns, arm="review", **entry)

    return run


def of(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_a_review_that_finds_what_is_hidden_is_resolved(review: RunTrial) -> None:
    row = review("cat calc.py", writes(RIGHT), "echo 'It subtracts.' > /review/review-output.md")

    assert of(row, "error_kind", "resolved", "oracle_passed", "skill_invoked") == (None, True, True, True)
    assert of(row["review"], "weighted_f1", "blocker_recall", "verdict", "problem") == (
        1.0,
        1.0,
        "request_changes",
        None,
    )
    assert row["review"]["matched_findings"] == ["f1"]
    assert row["review_evidence_valid"] is True
    assert "l1" not in json.dumps({name: value for name, value in row.items() if name != "directory"})
    assert of(row, "authored_tests_passed", "diff_files") == (True, 0)
    directory = Path(row["directory"])
    assert json.loads((directory / "review-output.json").read_bytes()) == RIGHT
    assert (directory / "review-output.md").read_text() == "It subtracts.\n"


def test_a_review_that_misses_and_invents_is_scored_by_what_it_says(review: RunTrial) -> None:
    wrong = FINDING | {"path": "tests/test_calc.py", "severity": "low"}
    row = review(writes(RIGHT | {"findings": [FINDING | {"severity": "high"}, wrong | {"id": "f2"}]}))

    assert of(row, "error_kind", "resolved", "ok") == ("oracle-failed", False, True)
    assert row["error_detail"].startswith("0 defects were not found, 1 findings are false")
    assert of(row["review"], "true_positives", "false_positives", "weighted_precision") == (1, 1, 0.833333)


def test_a_clean_change_is_passed_by_an_approval(review: RunTrial) -> None:
    right, alarm = review(writes(APPROVE), labels=[]), review(writes(RIGHT), labels=[])

    assert of(right, "error_kind", "resolved") == (None, True)
    assert of(right["review"], "clean_control", "clean_pass", "weighted_f1") == (True, True, None)
    assert of(alarm, "error_kind", "resolved") == ("oracle-failed", False)
    assert of(alarm["review"], "clean_pass", "false_positives") == (False, 1)


def test_a_review_cannot_write_the_tree_and_does_not_find_the_labels(review: RunTrial) -> None:
    tries = "(echo x > calc.py) 2>/dev/null || (mkdir new) 2>/dev/null || echo refused"
    look = "find / -name 'review-labels*' -not -path '/proc/*' 2>/dev/null; echo $FAIRTRIAL_REVIEW_ROOT; ls -A /review"
    row = review(f"{{ {tries}; {look}; }} > /tmp/seen; cat /tmp/seen > /review/review-output.md", writes(RIGHT))

    assert of(row, "error_kind", "resolved", "diff_files") == (None, True, 0)
    seen = (Path(row["directory"]) / "review-output.md").read_text().split()
    assert seen == ["refused", "/review"]  # and nothing lay in it


def test_a_writer_that_goes_by_way_of_a_temporary_file_leaves_a_whole_review(review: RunTrial) -> None:
    row = review(writes(RIGHT, ".tmp") + "mv /review/.tmp /review/review-output.json")

    assert of(row, "error_kind", "resolved") == (None, True)


@pytest.mark.parametrize(
    ("command", "problem", "detail"),
    [
        ("true", "never-written", "never-written: the review was never written"),
        (": > /review/review-output.json", "empty", "empty: the review is empty"),
        ("echo '```json' > /review/review-output.json", "not-json", "not-json: "),
        ("echo '{}' > /review/review-output.json", "invalid", "invalid: not a review: the review lacks findings"),
        (writes(RIGHT) + "echo more > /review/notes.txt", None, "1 other paths, or no plain files: notes.txt"),
        ("ln -s /etc/passwd /review/review-output.json", "never-written", "no plain files: review-output.json"),
        ("mkfifo /review/review-output.json", "never-written", "no plain files: review-output.json"),
    ],
)
def test_a_review_that_is_not_what_it_must_be_is_the_arms_failure(
    review: RunTrial, command: str, problem: str | None, detail: str
) -> None:
    row = review(command)

    assert of(row, "error_kind", "resolved", "oracle_passed") == ("review-evidence-invalid", False, False)
    assert detail in row["error_detail"]
    assert row["review_evidence_valid"] is False
    assert row["review"]["problem"] == problem
    if problem is not None:
        assert of(row["review"], "weighted_f1", "blocker_recall", "verdict") == (0.0, 0.0, None)


def test_a_review_that_is_closed_to_others_is_no_void(review: RunTrial) -> None:
    row = review(writes(RIGHT) + "chmod 000 /review/review-output.json /review")

    assert row["error_kind"] in {None, "review-evidence-invalid"}  # by whether we may read what its owner may not


def test_a_review_that_fills_its_directory_ends_at_a_limit(review: RunTrial) -> None:
    row = review("head -c 40000000 /dev/zero > /review/review-output.json; sleep 20")

    assert of(row, "error_kind", "resolved") == ("limit-exceeded", False)


def test_a_review_without_the_skill_is_the_arms_failure_and_scored_all_the_same(review: RunTrial) -> None:
    row = review(writes(RIGHT), agents=[{"name": "main", "turns": [bash(writes(RIGHT)), DONE]}])

    assert of(row, "error_kind", "resolved", "ok") == ("skill-not-invoked", False, False)
    assert row["review"]["weighted_f1"] == 1.0


def test_a_failed_check_of_the_tree_comes_before_what_the_review_says(review: RunTrial) -> None:
    row = review(writes(APPROVE), verify="false")

    assert of(row, "error_kind", "authored_tests_passed", "resolved") == ("verify-failed", False, False)
