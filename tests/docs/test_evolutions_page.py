"""`evolutions.md` against the values that it describes."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.cli.evolved import evolved_json, print_plan
from fairtrial.evolve import evidence, learnings, material, proposal
from fairtrial.evolve.bound import Bound
from fairtrial.evolve.evolution import Evolved, PlannedEvolution
from fairtrial.evolve.holdout import HoldoutUse
from fairtrial.evolve.learnings import Learning
from fairtrial.evolve.record import EvolutionFiles
from fairtrial.evolve.values import (
    OUTCOME_SCHEMA,
    Ending,
    EndKind,
    EvolveOptions,
    StepKind,
    StepOutcome,
    StepResult,
)
from fairtrial.sweep.bench_plan import BenchOptions, CandidateOptions
from fairtrial.workspace.skill_layout import SkillLayout

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

PAGE = "evolutions.md"
OPTIONS = EvolveOptions(
    bench=BenchOptions(tasks="/t", arms=("a",), model="m", agent="bash-agent"),
    candidate=CandidateOptions(overlay="", layout=SkillLayout(root="s"), project="/p"),
    proposer_agent="bash-agent",
    proposer_model="m",
)
BOUND = Bound(
    options=OPTIONS,
    learning=(),
    holdout=(),
    held_out=(),
    inputs={},
    skills={"a": ("s",)},
    base_commit="c",
    base_digests={},
)
OUTCOME = StepOutcome(
    schema=OUTCOME_SCHEMA,
    evolution="e",
    generation=0,
    step=StepKind.MEASURE,
    result=StepResult.KEPT,
    ended_utc="u",
)


def fields_of(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


@pytest.mark.parametrize(
    ("heading", "kind"), [("bound", Bound), ("evolve-outcome/1", StepOutcome), ("holdout-use/1", HoldoutUse)]
)
def test_every_field_is_in_its_table_in_order(heading: str, kind: type, read_table: ReadTable) -> None:
    assert [line["field"].strip("`") for line in read_table(PAGE, heading)] == fields_of(kind)


def test_the_options_are_named(read_table: ReadTable, names: Names) -> None:
    assert names(read_table(PAGE, "bound")[0]["meaning"]) == fields_of(EvolveOptions)


def test_steps_results_and_endings_are_told_whole(read_table: ReadTable) -> None:
    lines = read_table(PAGE, "Steps")
    assert [line["step"].strip("`") for line in lines if "step" in line] == list(StepKind)
    assert [line["result"].strip("`") for line in lines if "result" in line] == list(StepResult)
    assert [line["ended"].strip("`") for line in read_table(PAGE, "Endings")] == list(EndKind)


def test_the_evidence_is_told_whole(read_table: ReadTable, names: Names) -> None:
    chosen = evidence.choose_rows([{"task": "t", "arm": "a", "error_kind": None}], {"t"})
    document = evidence.evidence_document(
        chosen, generation=0, gate=(), learnings=(), n_malformed_learnings=0, transcripts={}
    )
    lines = read_table(PAGE, "evolve-evidence/1")
    assert [line["field"].strip("`") for line in lines if "field" in line] == list(document)
    (row,) = document["rows"]  # type: ignore[misc, attr-defined] # the one that was chosen
    told = [name for line in lines if "field of a row" in line for name in names(line["field of a row"])]
    assert told == list(row)
    told = [line["member"].strip("`") for line in read_table(PAGE, "Learnings")]
    assert told == fields_of(Learning)


def test_the_score_of_a_review_is_told_whole(read_table: ReadTable, names: Names) -> None:
    (chosen,) = evidence.choose_rows([{"task": "t", "arm": "a", "error_kind": None, "review": {}}], {"t"})
    told = [name for line in read_table(PAGE, "The score of a review") for name in names(line["field of a score"])]
    assert told == list(chosen.compact["review"])  # type: ignore[call-overload] # a score


def test_the_limits_are_those_of_the_program(reference: Path) -> None:
    text = " ".join((reference / PAGE).read_text().split())
    assert f"at most {evidence.MAX_ROWS} runs on learning tasks" in text
    assert f"at most {learnings.MAX_LEARNINGS}, oldest first" in text
    assert f"the last {evidence.VERIFY_TAIL_CHARACTERS} characters" in text
    of_a_run, in_all = material.MAX_TRANSCRIPTS_OF_A_ROW, material.MAX_TRANSCRIPTS
    kib = material.MAX_TRANSCRIPT_BYTES // 1024
    assert f"at most {of_a_run} of a run, {in_all} in all, the last {kib} KiB of each" in text
    assert f"at most {proposal.MAX_PROPOSAL_BYTES // 1024} KiB" in text


def test_every_field_of_what_is_printed_is_in_its_table_in_order(read_table: ReadTable, tmp_path: Path) -> None:
    value = evolved_json(
        Evolved(
            files=EvolutionFiles(root=tmp_path),
            evolution="e",
            bound=BOUND,
            ending=Ending(kind=EndKind.ALL_RAN, detail="d", exit_code=0),
            outcomes=(OUTCOME,),
            spent_usd=None,
        )
    )
    told = [line["field"].strip("`") for line in read_table("commands.md", "evolve/1")]
    assert [each for each in told if "." not in each] == list(value)
    (step,) = value["steps"]  # type: ignore[misc, attr-defined] # the one outcome
    assert [re.sub(r"^steps\[\]\.", "", each) for each in told if "." in each] == list(step)


def test_every_field_of_a_plan_is_in_its_table_in_order(
    read_table: ReadTable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_plan(PlannedEvolution(bound=BOUND, n_measure=2, n_confirm=0), as_json=True) == 0
    value = json.loads(capsys.readouterr().out)
    assert [line["field"].strip("`") for line in read_table("commands.md", "evolve-plan/1")] == list(value)
