"""Review tasks and arms: what is refused before anything runs, and what stands for the agent in controls."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.bench.arms import ArmEntry, Defaults, PhaseEntry, build_arm, read_arms
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.controls import control_arm, exit_at_import
from fairtrial.bench.review import Left, judge_review, require_same_kind, review_changes, review_fields
from fairtrial.bench.tasks import bind_task, read_task_file
from fairtrial.errors import ConfigError, UsageError
from fairtrial.judging.review import Label, ReviewProblem, ReviewVerdict, Severity
from fairtrial.model.bench import PhaseKind, Task
from fairtrial.sweep.bench_plan import plan_controls

pytestmark = pytest.mark.needs("git")
WriteTasks = Callable[[str], Path]
ORACLE: Final = '      command: "true"\n      files: [{source: oracle.py, target: oracle.py}]\n'
REVIEW: Final = "      runner: review\n      files: [{source: labels.json, target: review-labels.json}]\n"
LABEL: Final = {
    "id": "l1",
    "severity": "high",
    "path": "calc.py",
    "line_start": 2,
    "line_end": 2,
    "category": "correctness",
}
APPROVAL: Final = {"schema_version": 1, "verdict": "approve", "findings": []}


@pytest.fixture
def text(task_text: str, world: Path) -> str:
    """A review task with one label and a reference."""
    (world / "labels.json").write_text(json.dumps({"schema_version": 1, "findings": [LABEL]}))
    (world / "review.json").write_text(json.dumps(APPROVAL))
    assert ORACLE in task_text
    return task_text.replace(ORACLE, REVIEW).replace("reference.patch", "review.json")


def bind(path: Path, blobs: BlobStore) -> Task:
    document, parsed = read_task_file(path)
    return bind_task(document, 0, parsed.tasks[0], blobs)


def written(script: bytes) -> Any:  # noqa: ANN401 - whatever the script's JSON is
    lines = script.decode().splitlines()
    assert (lines[0], lines[2]) == ("cat > /review/review-output.json <<'END-OF-REVIEW'", "END-OF-REVIEW")
    return json.loads(lines[1])


def test_a_review_task_has_its_reference_as_a_script_and_two_cheats(
    write_tasks: WriteTasks, text: str, blobs: BlobStore
) -> None:
    task = bind(write_tasks(text), blobs)
    assert task.is_review
    assert task.reference is not None
    assert written(blobs.read(task.reference)) == APPROVAL
    assert exit_at_import(task, blobs) is None
    cheats = {cheat.name: written(blobs.read(cheat.script)) for cheat in task.cheats if cheat.script is not None}
    assert list(cheats) == ["empty-review", "lists-everything"]
    assert cheats["empty-review"] == APPROVAL
    assert len(cheats["lists-everything"]["findings"]) == 100
    assert {finding["path"] for finding in cheats["lists-everything"]["findings"]} == {"calc.py"}
    labels = (Label(id="l1", severity=Severity.HIGH, path="calc.py", line_start=2, line_end=2, category="c"),)
    listed = judge_review(json.dumps(cheats["lists-everything"]).encode(), labels)
    assert (listed.problem, listed.score.true_positives, listed.score.false_positives) == (None, 1, 99)


def test_on_a_clean_control_the_empty_review_is_no_cheat(
    write_tasks: WriteTasks, text: str, blobs: BlobStore, world: Path
) -> None:
    (world / "labels.json").write_text('{"schema_version": 1, "findings": []}')
    assert [cheat.name for cheat in bind(write_tasks(text), blobs).cheats] == ["lists-everything"]


def test_each_control_of_a_review_reviews_and_the_reference_is_a_script(
    write_tasks: WriteTasks, text: str, blobs: BlobStore
) -> None:
    task = bind(write_tasks(text), blobs)
    planned = [each.bench for each in plan_controls([task], {}, reference_runs=2, timeout_s=1)]
    assert [(each.arm.name, each.run) for each in planned] == [
        ("nop", 0),
        ("reference", 0),
        ("reference", 1),
        ("cheat-empty-review", 0),
        ("cheat-lists-everything", 0),
    ]
    assert all(each.arm.reviews and each.arm.agent == "nop" and each.patch is None for each in planned)
    assert [each.cheat is None for each in planned] == [True, False, False, False, False]
    assert planned[1].cheat == task.reference


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("runner: review", "runner: review\n      command: 'true'", "leave 'command' and 'expect_tests' out"),
        ("runner: review", "runner: review\n      expect_tests: 1", "leave 'command' and 'expect_tests' out"),
        ("target: review-labels.json", "target: labels.json", "one file, with the target 'review-labels.json'"),
        ("review-labels.json}", "review-labels.json, into: workspace}", "one file, with the target"),
        ("review-labels.json}", "review-labels.json}, {source: b, target: b}", "one file, with the target"),
        ("    class:", "    cheats: [{name: a, patch: reference.patch}]\n    class:", "cannot be cheated by a patch"),
        (
            "    class:",
            "    cheats: [{name: empty-review, script: oracle.py}]\n    class:",
            "the name 'empty-review' is that of a cheat which every review task has",
        ),
        ("source: labels.json", "source: oracle.py", "the file of labels is not one strict JSON object"),
        ("source: labels.json", "source: review.json", "not labels: the file has the unknown key 'verdict'"),
        ("reference: review.json", "reference: labels.json", "the reference: not a review: the review lacks verdict"),
    ],
)
def test_what_is_no_review_task_is_refused_with_its_place(
    write_tasks: WriteTasks, text: str, blobs: BlobStore, old: str, new: str, words: str
) -> None:
    assert old in text
    path = write_tasks(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as refused:
        bind(path, blobs)
    assert words in str(refused.value)
    assert str(refused.value).startswith(f"{path}:")


def test_a_review_stands_alone_and_produces_nothing_in_the_tree() -> None:
    review = PhaseEntry(prompt="p", name="review", kind=PhaseKind.REVIEW)
    assert ArmEntry(phases=(review,)).phases == (review,)
    with pytest.raises(ValueError, match="is an arm's only phase"):
        ArmEntry(phases=(review, PhaseEntry(prompt="p")))
    with pytest.raises(ValueError, match="leave 'produces' out"):
        PhaseEntry(prompt="p", kind=PhaseKind.REVIEW, produces="review.md")


def test_only_arms_that_review_do_review_tasks(
    write_tasks: WriteTasks, text: str, task_text: str, blobs: BlobStore, world: Path
) -> None:
    (world / "SKILL.md").write_text("how")
    found = read_arms(None)
    defaults = Defaults(agent="bash-agent", model="m-1", skills={"review": world})
    review, baseline = (build_arm(found[name], defaults, blobs) for name in ("review", "baseline"))
    asks, works = bind(write_tasks(text), blobs), bind(write_tasks(task_text), blobs)
    require_same_kind([asks], [review])
    require_same_kind([works], [baseline])
    with pytest.raises(UsageError, match="arm 'baseline' has no phase of kind 'review'"):
        require_same_kind([asks], [review, baseline])
    with pytest.raises(UsageError, match="task 'mend-add' has no labels"):
        require_same_kind([works], [review])


def test_a_control_that_reviews_is_another_arm() -> None:
    assert control_arm("nop").digest != control_arm("nop", PhaseKind.REVIEW).digest


def test_a_score_that_comes_out_otherwise_is_named_and_one_without_its_review_cannot_be_repeated() -> None:
    judged = judge_review(json.dumps(APPROVAL).encode(), ())
    recorded = review_fields(judged, Left(review=None, prose=None, problem=None))["review"]
    assert isinstance(recorded, dict)
    assert judged.score.verdict is ReviewVerdict.APPROVE
    assert review_changes(recorded, judged) == ()
    assert review_changes({**recorded, "false_positives": 1}, judged) == ("false_positives was 1, is 0",)
    cut = review_fields(judged, Left(review=b"key sk-ant-" + b"a" * 30, prose=None, problem=None))["review"]
    assert isinstance(cut, dict)
    assert cut["stored_whole"] is False
    assert review_changes(cut, judged) == ("it cannot be scored again: what looked like secrets was taken out of it",)


def test_what_else_was_left_makes_the_evidence_invalid_and_not_the_score() -> None:
    judged = judge_review(json.dumps(APPROVAL).encode(), ())
    fields = review_fields(judged, Left(review=None, prose=None, problem="notes.txt"))
    assert (fields["review_evidence_valid"], fields["oracle_passed"], fields["oracle_output"]) == (
        False,
        False,
        "failed",
    )
    assert judge_review(b"", ()).problem is ReviewProblem.EMPTY
