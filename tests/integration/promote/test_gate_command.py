"""`fairtrial gate` on results directories and bare files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.cli.main import run
from fairtrial.promote.binding import Binding, BoundPolicy, Origin
from fairtrial.store.layout import Results
from fairtrial.store.seal import read_seal
from fairtrial.workspace.skill_layout import SkillLayout

Row = dict[str, Any]
MakePairs = Callable[..., list[Row]]
WriteResults = Callable[..., Results]
Capture = pytest.CaptureFixture[str]
ARMS = ("--incumbent", "workflow", "--candidate", "candidate_workflow")
ASK = (*ARMS, "--model", "m-1")


def gate(path: object, capsys: Capture, *options: str, code: int) -> dict[str, Any]:
    assert run(["gate", str(path), *options, "--json"]) == code
    printed = capsys.readouterr()
    value: dict[str, Any] = json.loads(printed.out)
    return value


def test_a_sealed_win_is_promotable(make_pairs: MakePairs, write_results: WriteResults, capsys: Capture) -> None:
    results = write_results(make_pairs())
    said = gate(results.root, capsys, *ASK, code=0)
    assert (said["schema"], said["decision"], said["promotable"], said["sealed"]) == ("gate/1", "promote", True, True)
    assert said["median_improvement_pct"] == 50.0
    assert said["inadmissible"] == []
    assert said["as_failures"]["decision"] == "promote"
    assert said["policy"]["incumbent_arm"] == "workflow"
    assert said["false_promotion"]["n_resamples"] == 2000
    assert said["false_promotion"]["p_promoted"] == 0.0
    assert [task["task"] for task in said["tasks"]] == ["t0", "t1"]


def test_the_same_rows_bare_are_decided_and_not_promotable(
    make_pairs: MakePairs, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in make_pairs()))
    said = gate(path, capsys, *ASK, code=1)
    assert (said["decision"], said["promotable"], said["sealed"]) == ("promote", False, False)
    assert [reason["kind"] for reason in said["inadmissible"]] == ["unsealed"]


@pytest.mark.parametrize(
    ("bound", "options", "kinds", "words"),
    [
        (BoundPolicy(), (), [], ""),
        (BoundPolicy(min_improvement_pct=40.0), (), ["other-policy"], "--min-improvement-pct 40.0, not 5.0"),
        (BoundPolicy(min_improvement_pct=40.0), ("--min-improvement-pct", "40"), [], ""),
        (BoundPolicy(metric="num_turns"), (), ["other-policy"], "--metric num_turns, not cost_usd"),
        (BoundPolicy(), ("--min-runs", "2"), ["other-policy"], "--min-runs 3, not 2"),
        (
            BoundPolicy(),
            ("--max-task-regression-pct", "21"),
            ["other-policy"],
            "--max-task-regression-pct 20.0, not 21.0",
        ),
        (BoundPolicy(provisional=True), (), ["provisional"], "a final gate decides after it"),
    ],
)
def test_a_win_is_usable_by_the_policy_that_the_sweep_fixed_and_by_no_other(
    bound: BoundPolicy,
    options: tuple[str, ...],
    kinds: list[str],
    words: str,
    make_pairs: MakePairs,
    write_results: WriteResults,
    capsys: Capture,
) -> None:
    binding = Binding(
        benchmark_model="m-1",
        proposer_model=None,
        candidate_origin=Origin.MANUAL,
        candidate_overlay="candidate",
        candidate_overlay_digest="d",
        candidate_files=(),
        layout=SkillLayout(root="skills"),
        base_commit="c",
        target_base_digests={},
        required_candidate_arms=("candidate_workflow",),
        arms=(),
        policy=bound,
    )
    results = write_results(make_pairs(), more={"promotion": binding.as_json()})
    said = gate(results.root, capsys, *ASK, *options, code=1 if kinds else 0)
    assert (said["decision"], said["promotable"]) == ("promote", not kinds)
    assert [reason["kind"] for reason in said["inadmissible"]] == kinds
    assert words in " ".join(reason["detail"] for reason in said["inadmissible"])


def test_an_arm_that_does_not_occur_is_refused_with_the_near_miss(
    make_pairs: MakePairs, write_results: WriteResults, tmp_path: Path, capsys: Capture
) -> None:
    results = write_results(make_pairs()).root
    said = gate(results, capsys, "--incumbent", "workflw", "--candidate", "candidate_workflow", code=2)["message"]
    assert all(words in said for words in ("--incumbent", "did you mean 'workflow'"))
    assert "--candidate" in gate(results, capsys, "--incumbent", "workflow", "--candidate", "nope", code=2)["message"]
    bare = tmp_path / "rows.jsonl"
    bare.write_text("".join(f"{json.dumps(row)}\n" for row in make_pairs()))
    gate(bare, capsys, "--incumbent", "workflow", "--candidate", "nope", code=5)  # nothing says what was planned


def test_another_seal_than_the_expected_one_is_no_evidence_and_a_bare_file_has_none(
    make_pairs: MakePairs, write_results: WriteResults, tmp_path: Path, capsys: Capture
) -> None:
    results = write_results(make_pairs())
    digest = read_seal(results).digest
    assert gate(results.root, capsys, *ASK, "--expect", digest.upper(), code=0)["promotable"] is True
    assert f"{'0' * 64} is expected" in gate(results.root, capsys, *ASK, "--expect", "0" * 64, code=4)["message"]
    assert "is no SHA-256" in gate(results.root, capsys, *ASK, "--expect", "0", code=2)["message"]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(results.results_jsonl.read_bytes())
    assert "has no seal" in gate(path, capsys, *ASK, "--expect", digest, code=2)["message"]


def test_an_expected_seal_that_is_not_there_is_no_evidence(
    make_pairs: MakePairs, write_results: WriteResults, capsys: Capture
) -> None:
    results = write_results(make_pairs(), seal=False)
    gate(results.root, capsys, *ASK, "--expect", "0" * 64, code=4)


def test_an_unsealed_directory_is_not_promotable(
    make_pairs: MakePairs, write_results: WriteResults, capsys: Capture
) -> None:
    said = gate(write_results(make_pairs(), seal=False).root, capsys, *ASK, code=1)
    assert [reason["kind"] for reason in said["inadmissible"]] == ["unsealed"]


def test_a_losing_candidate_keeps_the_incumbent(
    make_pairs: MakePairs, write_results: WriteResults, capsys: Capture
) -> None:
    said = gate(write_results(make_pairs(cost_usd=0.99)).root, capsys, *ASK, code=1)
    assert (said["decision"], said["promotable"]) == ("keep_incumbent", False)


def test_without_a_model_there_is_not_enough_evidence(
    make_pairs: MakePairs, write_results: WriteResults, capsys: Capture
) -> None:
    said = gate(write_results(make_pairs()).root, capsys, *ARMS, code=5)
    assert said["decision"] == "insufficient_evidence"


def test_planned_trials_that_never_ran_are_not_enough_evidence(
    make_pairs: MakePairs, write_results: WriteResults, capsys: Capture
) -> None:
    said = gate(write_results(make_pairs(), n_more_planned=1).root, capsys, *ASK, code=5)
    assert (said["decision"], said["promotable"]) == ("promote", False)
    assert [reason["kind"] for reason in said["inadmissible"]] == ["incomplete"]


def test_a_changed_row_is_no_evidence_at_all(
    make_pairs: MakePairs, write_results: WriteResults, capsys: Capture
) -> None:
    results = write_results(make_pairs(cost_usd=0.99))
    text = results.results_jsonl.read_text()
    results.results_jsonl.write_text(text.replace('"cost_usd":0.99', '"cost_usd":0.49'))
    assert "fairtrial audit" in gate(results.root, capsys, *ASK, code=4)["message"]


def test_a_superseded_void_of_the_candidate_forbids_a_promotion(
    make_pairs: MakePairs, write_results: WriteResults, capsys: Capture
) -> None:
    rows = make_pairs()
    void = {**rows[1], "error_kind": "session-error", "resolved": False, "cost_usd": None}
    said = gate(write_results([void, *rows]).root, capsys, *ASK, code=1)
    assert (said["decision"], said["as_failures"]["decision"]) == ("promote", "keep_incumbent")
    assert not said["promotable"]
    assert said["inadmissible"] == []


def test_a_policy_reaches_the_decision(make_pairs: MakePairs, write_results: WriteResults, capsys: Capture) -> None:
    root = write_results(make_pairs(cost_usd=0.7)).root
    assert gate(root, capsys, *ASK, "--min-improvement-pct", "30.1", code=1)["decision"] == "keep_incumbent"
    assert gate(root, capsys, *ASK, "--min-runs", "4", code=5)["decision"] == "insufficient_evidence"
    said = gate(root, capsys, *ASK, "--metric", "num_turns", "--seed", "3", "--resamples", "2500", code=1)
    assert said["metric_warning"]
    assert (said["false_promotion"]["seed"], said["false_promotion"]["n_resamples"]) == (3, 2500)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--metric", "speed"), "unknown metric"),
        (("--min-runs", "0"), "--min-runs"),
        (("--resamples", "1999"), "--resamples"),
        (("--candidate", "workflow"), "incumbent itself"),
    ],
)
def test_a_meaningless_policy_is_a_usage_error(
    options: tuple[str, ...], words: str, tmp_path: Path, capsys: Capture
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"task":"t","arm":"workflow"}\n')
    assert words in gate(rows, capsys, *ASK, *options, code=2)["message"]


def test_the_other_lane_is_refused(make_pairs: MakePairs, write_results: WriteResults, capsys: Capture) -> None:
    assert "loop lane" in gate(write_results(make_pairs(), lane="loop").root, capsys, *ASK, code=2)["message"]


def test_a_person_reads_the_verdict_its_reasons_and_the_rate(
    make_pairs: MakePairs, write_results: WriteResults, capsys: Capture
) -> None:
    root = write_results(make_pairs(model="m-2")).root
    assert run(["gate", str(root), *ASK]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "candidate_workflow is not to be promoted over workflow." in printed
    assert "Not usable (other-model): 6 of 12 rows are of model 'm-2', not 'm-1'." in printed
    assert "About 0.0 % of candidates equal to the incumbent are promoted by this policy" in printed
    assert "+50.0" in printed
