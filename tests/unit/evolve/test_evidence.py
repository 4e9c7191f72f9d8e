"""What a proposer may see."""

import json

import pytest

from fairtrial.evolve.evidence import MAX_ROWS, choose_rows, evidence_document, gate_lines
from fairtrial.evolve.learnings import Learning
from fairtrial.evolve.values import OUTCOME_SCHEMA, StepKind, StepOutcome, StepResult

SECRETS = {
    "error_detail": "SECRET-of-the-oracle",
    "oracle_output": "SECRET-failed",
    "oracle_counts": {"SECRET": 1},
    "oracle_digest": "SECRET-digest",
    "task_prompt_digest": "SECRET-prompt",
    "judged": "SECRET-anything-new",
    "reference": "SECRET-patch",
}


def row(task: str = "a", *, arm: str = "workflow", run: int = 0, **more: object) -> dict[str, object]:
    return {
        "task": task,
        "arm": arm,
        "run": run,
        "key": f"bench/{task}/{arm}/{run}",
        "attempt": 1,
        "resolved": True,
        "error_kind": None,
        "cost_usd": 1.0,
        **SECRETS,
        **more,
    }


def failed(task: str = "a", **more: object) -> dict[str, object]:
    return row(task, resolved=False, error_kind="oracle-failed", **more)


def test_only_rows_of_learning_tasks_are_evidence() -> None:
    chosen = choose_rows([row("a"), row("held-out"), failed("held-out"), row("unknown")], {"a"})
    assert [each.compact["task"] for each in chosen] == ["a"]


@pytest.mark.parametrize("agent", ["nop", "reference"])
def test_references_and_cheats_are_no_evidence(agent: str) -> None:
    assert choose_rows([row(agent=agent, arm="cheat-half"), failed(agent=agent)], {"a"}) == ()


def test_no_field_is_shown_but_the_named_ones() -> None:
    (chosen,) = choose_rows([failed(verify_output="ran 3 tests")], {"a"})
    assert "SECRET" not in json.dumps(chosen.compact)
    assert chosen.compact["error_kind"] == "oracle-failed"
    assert chosen.compact["verify_tail"] == "ran 3 tests"


def test_a_review_is_shown_by_its_score_and_nothing_of_its_labels_is() -> None:
    score = {
        "true_positives": 1,
        "false_positives": 0,
        "false_negatives": 2,
        "weighted_precision": 1.0,
        "weighted_recall": 0.5,
        "weighted_f1": 0.666667,
        "blocker_recall": None,
        "verdict": "comment",
        "expected_verdict": "SECRET",
        "verdict_correct": False,
        "clean_control": False,
        "clean_pass": None,
        "matched_findings": ["SECRET"],
        "problem": None,
    }
    (chosen,) = choose_rows([failed(review=score)], {"a"})
    hidden = {"expected_verdict", "matched_findings", "clean_control"}
    assert chosen.compact["review"] == {name: value for name, value in score.items() if name not in hidden}
    assert "SECRET" not in json.dumps(chosen.compact)


def test_a_run_that_is_no_review_has_no_score() -> None:
    (chosen,) = choose_rows([failed(review=None)], {"a"})
    assert chosen.compact["review"] is None


def test_voids_are_no_evidence() -> None:
    kinds = ("infra-error", "session-error", "evidence-unverified", "cleanup-failure", "cancelled", "interrupted")
    assert choose_rows([row(error_kind=kind, resolved=False) for kind in kinds], {"a"}) == ()


def test_unresolved_rows_come_first_by_place_then_resolved_ones_by_cost_and_an_unknown_cost_counts_as_nothing() -> None:
    rows = [
        row("a", run=1, cost_usd=2.0),
        row("a", run=2, cost_usd=None),
        row("b", run=0, cost_usd=3.0),
        failed("b", arm="z"),
        failed("b", arm="y", run=1),
        failed("b", arm="y", run=0),
    ]
    chosen = choose_rows(rows, {"a", "b"})
    assert [(c.compact["task"], c.compact["arm"], c.compact["run"]) for c in chosen] == [
        ("b", "y", 0),
        ("b", "y", 1),
        ("b", "z", 0),
        ("b", "workflow", 0),
        ("a", "workflow", 1),
        ("a", "workflow", 2),
    ]


def test_there_are_never_more_than_twelve_rows() -> None:
    assert len(choose_rows([row(run=run) for run in range(40)], {"a"})) == MAX_ROWS == 12


def test_a_tail_is_the_last_600_characters_without_secrets() -> None:
    output = "x" * 1000 + "key sk-ant-abcdefghijklmnop end"
    (chosen,) = choose_rows([failed(verify_output=output)], {"a"})
    tail = chosen.compact["verify_tail"]
    assert isinstance(tail, str)
    assert len(tail) == 600
    assert tail.endswith("key [redacted:anthropic-key] end")


def test_what_was_not_measured_is_null() -> None:
    (chosen,) = choose_rows([row(cost_usd=float("nan"), num_turns="many")], {"a"})
    assert chosen.compact["cost_usd"] is None
    assert chosen.compact["num_turns"] is None


def test_the_gate_is_summed_up_by_three_reasons_a_decision_and_the_final_one_is_not_told() -> None:
    def outcome(step: StepKind, *reasons: str) -> StepOutcome:
        return StepOutcome(
            schema=OUTCOME_SCHEMA,
            evolution="e",
            generation=0,
            step=step,
            result=StepResult.KEPT,
            ended_utc="2026-11-29T13:01:00Z",
            reasons=reasons,
        )

    measured = outcome(StepKind.MEASURE, "one.", "two.", "three.", "four.")
    final = outcome(StepKind.CONFIRM, "task held-out: quality floor.")
    assert gate_lines((outcome(StepKind.PROPOSE), measured, final)) == ("generation 0: kept: one. two. three.",)


def test_the_document_joins_rows_with_their_transcripts() -> None:
    chosen = choose_rows([failed()], {"a"})
    document = evidence_document(
        chosen,
        generation=1,
        gate=("line",),
        learnings=(Learning(skill="s", text="t", task="a"),),
        n_malformed_learnings=2,
        transcripts={chosen[0].key: ("evidence/transcripts/00.jsonl",)},
    )
    assert document["schema"] == "evolve-evidence/1"
    assert document["rows"] == [{**chosen[0].compact, "transcripts": ["evidence/transcripts/00.jsonl"]}]
    assert document["learnings"] == [{"skill": "s", "text": "t"}]
    assert document["malformed_learnings"] == 2


def test_transcripts_are_found_by_the_records_of_their_rows() -> None:
    record = {"path": "transcript-work.jsonl", "sha256": "0" * 64, "bytes": 2, "source": "parent-captured-stream-json"}
    (chosen,) = choose_rows([json.loads(json.dumps(row(transcript_artifacts=[record])))], {"a"})
    assert chosen.transcripts == ("transcript-work.jsonl",)
