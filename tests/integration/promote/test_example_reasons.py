"""For each reason that the gate knows, a shipped candidate or a scripted cause that is refused for it."""

import ast
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.cli.main import run
from fairtrial.evidence import gate
from fairtrial.evidence.admit import ReasonKind
from fairtrial.host.files import remove_tree

sys.path.insert(0, str(Path(__file__).parent))
from example_project import MODEL, PAIR, bench, fairtrial, make_project, promotion_of, rows_of

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(900), pytest.mark.xdist_group("reasons")]

Row = dict[str, Any]
PROMOTE, KEEP, TOO_LITTLE = "promote", "keep_incumbent", "insufficient_evidence"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One candidate of the example, and what comes of it.

    Attributes:
        candidate: Its directory.
        decision: What the gate says.
        reasons: A piece of each reason, in order.
        script: The scripted model.
        only: The tasks.
        runs: Of each cell.
        unusable: Kinds of the reasons why the rows may not be used.
        code: The exit code of the sweep: 1 where the incumbent resolves nothing at all, whatever the candidate does.
    """

    candidate: str
    decision: str
    reasons: tuple[str, ...]
    script: str = "script"
    only: str = "linear"
    runs: int = 1
    unusable: tuple[str, ...] = ()
    code: int = 0


LESS, FLOOR = "the candidate resolved 0 of 1, the incumbent 1 of 1", "quality floor"
CASES: Final = (
    Case(candidate="quick", decision=PROMOTE, reasons=("at least the 5.0 %",)),
    Case(
        candidate="guided",
        decision=PROMOTE,
        reasons=("the candidate resolved 2 runs more",),
        script="weak",
        only="amounts",
        runs=2,
        code=1,
    ),
    Case(candidate="reworded", decision=KEEP, reasons=("less than the 5.0 %",)),
    Case(candidate="wordy", decision=KEEP, reasons=("more than 20.0 %",)),
    Case(
        candidate="wordy",
        decision=KEEP,
        reasons=("task amounts: cost_usd got worse by 319.6 %, more than 100.0 %",),
        script="weak",
        only="linear,amounts",
    ),
    Case(candidate="careless", decision=KEEP, reasons=(LESS, FLOOR)),
    Case(candidate="unused", decision=KEEP, reasons=(LESS, FLOOR)),
    Case(
        candidate="reworded",
        decision=TOO_LITTLE,
        reasons=("only 0 of 1 tasks can be gated",),
        script="weak",
        only="amounts",
        code=1,
    ),
    Case(
        candidate="uncounted",
        decision=TOO_LITTLE,
        reasons=("cost_usd was not measured in every valid run of both arms",),
    ),
    Case(
        candidate="unlucky",
        decision=TOO_LITTLE,
        reasons=(
            "candidate_workflow has 0 valid runs of the 1",
            "candidate_workflow has 1 void runs",
            "unequal numbers of valid runs, 1 and 0",
            "cost_usd was not measured",
        ),
        unusable=("incomplete",),
        code=5,
    ),
    Case(candidate="helper", decision=PROMOTE, reasons=("at least the 5.0 %",), unusable=("other-model",)),
)


@pytest.fixture(scope="module")
def example() -> Iterator[Path]:
    """The example, two tasks of which have fresh controls."""
    directory = Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"])) / "ex"
    make_project(directory, checked="linear,amounts")
    yield directory
    remove_tree(directory.parent)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.script}-{case.candidate}-{case.only}")
def test_a_candidate_of_the_example_is_promoted_or_refused_for_its_reasons(
    case: Case, example: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r"
    more = ("--runs", case.runs, "--min-runs", case.runs, "--rehearsal", "--outage-streak", 0, "--out", out)
    done = fairtrial(*bench(example, case.candidate, *more, only=case.only, script=case.script))
    assert done.returncode == case.code, done.stdout + done.stderr
    promotion = promotion_of(out)
    (decided,) = promotion["decisions"]
    found = decided["decision"]
    assert found["decision"] == case.decision, found["reasons"]
    assert len(found["reasons"]) == len(case.reasons), found["reasons"]
    for reason, words in zip(found["reasons"], case.reasons, strict=True):
        assert words in reason
        assert words in " ".join(done.stdout.split())
    assert tuple(each["kind"] for each in decided["inadmissible"]) == case.unusable
    is_promoted = case.decision == PROMOTE and not case.unusable
    assert promotion["promotable"] is is_promoted
    applied = fairtrial("apply", out, "--project", example, "--rehearsal", "--check")
    assert applied.returncode == (0 if is_promoted else 1)
    assert is_promoted or "not applied" in applied.stderr
    remove_tree(out)


@pytest.fixture(scope="module")
def measured(example: Path) -> Iterator[list[Row]]:
    """Rows of the example's candidate that wins, as they were measured."""
    out = example / "measured"
    done = fairtrial(*bench(example, "quick", "--runs", 1, "--min-runs", 1, "--rehearsal", "--out", out))
    assert done.returncode == 0, done.stderr
    yield rows_of(out)
    remove_tree(out)


def ask(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    words = ("gate", str(path), "--incumbent", PAIR[0], "--candidate", PAIR[1], "--min-runs", "1")
    assert run([*words, *more, "--json"]) in (1, 5)
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def rewritten(rows: list[Row], tmp_path: Path, change: Callable[[Row], Row | None]) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(new) + "\n" for row in rows if (new := change(dict(row))) is not None))
    return path


def of_incumbent(**fields: object) -> Callable[[Row], Row | None]:
    return lambda row: row | (fields if row["arm"] == PAIR[0] else {})


def of_candidate(**fields: object) -> Callable[[Row], Row | None]:
    return lambda row: row | (fields if row["arm"] == PAIR[1] else {})


def of_both(**fields: object) -> Callable[[Row], Row | None]:
    return lambda row: row | fields


@pytest.mark.parametrize(
    ("change", "more", "words"),
    [
        (of_both(), (), "no model is named"),
        (lambda row: row if row["arm"] == PAIR[0] else None, ("--model", MODEL), "candidate_workflow did not run"),
        (lambda row: row if row["arm"] == PAIR[0] else None, ("--model", MODEL), "no task was run by both"),
        (of_incumbent(cost_usd=0), ("--model", MODEL), "too near 0"),
    ],
    ids=["model", "arm", "task", "zero"],
)
def test_what_no_overlay_causes_is_refused_when_it_is_done_to_the_rows(
    change: Callable[[Row], Row | None],
    more: tuple[str, ...],
    words: str,
    measured: list[Row],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = ask(rewritten(measured, tmp_path, change), capsys, *more)
    assert said["decision"] == TOO_LITTLE
    assert any(words in reason for reason in said["reasons"])


def test_a_superseded_void_of_the_candidate_is_a_failed_run_of_it(
    measured: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def second(row: Row) -> Row:
        return row | {"attempt": 2} if row["arm"] == PAIR[1] else row

    void = {"error_kind": "session-error", "resolved": False, "cost_usd": None}
    lost = [row | void for row in measured if row["arm"] == PAIR[1]]
    said = ask(rewritten([*lost, *map(second, measured)], tmp_path, dict), capsys, "--model", MODEL, "--rehearsal")
    assert (said["decision"], said["as_failures"]["decision"]) == (PROMOTE, KEEP)
    assert "the candidate resolved 1 of 2, the incumbent 1 of 1" in said["as_failures"]["reasons"][0]


UNUSABLE: Final = {
    ReasonKind.UNSEALED: of_both(),
    ReasonKind.NO_ROWS: of_both(error_kind="infra-error", resolved=False),
    ReasonKind.UNCONTAINED: of_candidate(sandboxed=False),
    ReasonKind.UNENFORCED_LIMIT: of_candidate(limits_enforced={}),
    ReasonKind.UNPROVEN_ISOLATION: of_both(isolation="none"),
    ReasonKind.UNMETERED: of_candidate(usage_source="cli"),
    ReasonKind.LOWER_BOUND: of_candidate(usage_is_lower_bound=True),
    ReasonKind.UNCONTROLLED: of_both(controls="stale"),
    ReasonKind.OTHER_MODEL: of_candidate(model="m-2"),
    ReasonKind.MIXED_AGENT: of_candidate(agent_version="0"),
    ReasonKind.MIXED_SANDBOX: of_candidate(sandbox_backend="other"),
    ReasonKind.MIXED_HARNESS: of_candidate(source="fairtrial 0"),
    ReasonKind.MIXED_MACHINE: of_candidate(host="elsewhere"),
    ReasonKind.MIXED_PRICES: of_candidate(price_table="other"),
    ReasonKind.MIXED_TASK: of_candidate(oracle_digest="0" * 64),
    ReasonKind.MIXED_SETUP: of_candidate(setup_layer_digest="0" * 64),
    ReasonKind.MIXED_ARM: of_candidate(arm_digest=None),
    ReasonKind.MIXED_ENVIRONMENT: lambda row: row | {"environment_undeclared": {"tools": row["arm"]}},
    ReasonKind.TOO_OLD: of_candidate(recorded_at="2020-01-01T00:00:00Z"),
    ReasonKind.FROM_THE_FUTURE: of_candidate(recorded_at="2120-01-01T00:00:00Z"),
    ReasonKind.UNDATED: of_candidate(recorded_at=None),
}
BY_SWEEPS: Final = {ReasonKind.INCOMPLETE, ReasonKind.SCRIPTED, ReasonKind.OTHER_POLICY, ReasonKind.PROVISIONAL}
"""Caused by sweeps: `unlucky` above, one in test_candidate_sweeps.py, and what they fixed in test_gate_command.py."""


@pytest.mark.parametrize("kind", UNUSABLE)
def test_rows_that_may_not_be_used_are_refused_for_their_reason(
    kind: ReasonKind, measured: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metric = ("--metric", "duration_s") if kind is ReasonKind.MIXED_MACHINE else ()
    path = rewritten(measured, tmp_path, UNUSABLE[kind])
    said = ask(path, capsys, "--model", MODEL, "--rehearsal", *metric)
    assert said["promotable"] is False
    assert {each["kind"] for each in said["inadmissible"]} == {ReasonKind.UNSEALED, kind}


def test_every_reason_of_the_gate_is_caused_here() -> None:
    assert UNUSABLE.keys() | BY_SWEEPS == set(ReasonKind)
    tree = ast.parse(inspect.getsource(gate))
    yields = [node for node in ast.walk(tree) if isinstance(node, ast.Yield)]
    assert len(yields) == 12, "a reason came or went: cause it here, and count again"
