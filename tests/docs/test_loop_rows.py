"""`loop-rows.md` against the rows of a real sweep."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairtrial.evidence.endings import ENDINGS, CountsAs
from fairtrial.evidence.publication import ClientClaim, Delivery, ServerTruth, Verdict
from fairtrial.model.process import ProcessState

pytestmark = [pytest.mark.needs("git"), pytest.mark.xdist_group("measurement"), pytest.mark.timeout(900)]

Table = list[dict[str, str]]
ReadTable = Callable[..., Table]
Names = Callable[[str], list[str]]

PAGE = "loop-rows.md"
HEADINGS = {
    "step": ("Step rows",),
    "harness": ("Harness rows",),
    "verdict": ("Verdicts",),
    "hole": ("Holes",),
    "skip": ("Skips",),
    "void": ("Voids",),
    "total of task_loop": ("Totals", "Totals of `task_loop`"),
    "total of publication_under_fault_v1": ("Totals", "Totals of `publication_under_fault_v1`"),
    "total of parallel_tasks_v1": ("Totals", "Totals of `parallel_tasks_v1`"),
    "total of agent_task_baseline_v1": ("Totals", "Totals of `agent_task_baseline_v1`"),
}
ONLY_AFTER_A_FAILURE = {"stderr", "elapsed_ms_reason", "error_detail"}
ONLY_OVER_HTTP = {"network_up_bytes", "network_down_bytes", "network_requests"}
BY_PHASE = {"published_heads", "published_sha256"}
ELSEWHERE = {
    "total of agent_task_baseline_v1": ONLY_OVER_HTTP,
    "step": {"stdout"},
    "total of publication_under_fault_v1": BY_PHASE | {"network_bytes_reason"},
}
"""Fields that other scenarios' totals carry, or other transports'."""


def kind_of(row: dict[str, Any]) -> str:
    """The kind of a row, as the page tells them apart."""
    if row["step_kind"] in {"vcs", "edit"}:
        return "step"
    if row["step_kind"] == "harness":
        return "verdict" if row["operation"].endswith(".verdict") else "harness"
    if row["returncode"] == 77:
        return "skip" if row["operation"].endswith(".skipped") else "hole"
    return "void" if row["error_kind"] is not None else f"total of {row['scenario']}"


def documented(read_table: ReadTable, names: Names, kind: str) -> Iterator[tuple[str, bool]]:
    """The fields that the page gives to a kind of row, and whether it says that they are always there."""
    tables = [read_table(PAGE, "Every row", deep=True), *(read_table(PAGE, heading) for heading in HEADINGS[kind])]
    for line in (line for table in tables for line in table if "field" in line):
        for field in names(line["field"]):
            yield field, line["present"] == "always"


def test_the_kinds_of_row_are_those_of_the_sections(read_table: ReadTable) -> None:
    kinds = [line["kind"] for line in read_table(PAGE, "Rows of the tool lane")]
    assert sorted(kinds) == sorted({kind.partition(" ")[0] for kind in HEADINGS})


@pytest.mark.parametrize("kind", HEADINGS)
def test_each_field_that_a_row_carries_is_in_the_reference(
    kind: str, read_table: ReadTable, names: Names, sweep_rows: list[dict[str, Any]]
) -> None:
    known = {field for field, _ in documented(read_table, names, kind)}
    rows = [row for row in sweep_rows if kind_of(row) == kind]
    assert rows
    assert {field for row in rows for field in row} <= known


@pytest.mark.parametrize("kind", HEADINGS)
def test_each_field_that_is_said_to_be_always_there_is(
    kind: str, read_table: ReadTable, names: Names, sweep_rows: list[dict[str, Any]]
) -> None:
    promised = {field for field, always in documented(read_table, names, kind) if always}
    for row in sweep_rows:
        if kind_of(row) == kind:
            assert promised <= row.keys(), f"{row['operation']} of {row['scenario']}"


@pytest.mark.parametrize("kind", HEADINGS)
def test_no_field_is_in_the_reference_that_no_row_carries(
    kind: str, read_table: ReadTable, names: Names, sweep_rows: list[dict[str, Any]]
) -> None:
    carried = {field for row in sweep_rows if kind_of(row) == kind for field in row}
    elsewhere = ONLY_AFTER_A_FAILURE | ELSEWHERE.get(kind, set())
    assert {field for field, _ in documented(read_table, names, kind)} - elsewhere <= carried


@pytest.mark.parametrize("kind", HEADINGS)
def test_each_field_has_one_line_for_a_kind_of_row(kind: str, read_table: ReadTable, names: Names) -> None:
    fields = [field for field, _ in documented(read_table, names, kind)]
    assert sorted(set(fields)) == sorted(fields)


def test_only_a_field_whose_type_says_so_is_ever_null(
    read_table: ReadTable, names: Names, sweep_rows: list[dict[str, Any]]
) -> None:
    headings = {heading for several in HEADINGS.values() for heading in several}
    tables = [read_table(PAGE, "Every row", deep=True), *(read_table(PAGE, heading) for heading in headings)]
    lines = (line for table in tables for line in table if "null" in line.get("type", ""))
    nullable = {field for line in lines for field in names(line["field"])}
    assert {field for row in sweep_rows for field, value in row.items() if value is None} <= nullable


def test_the_kinds_of_void_are_those_that_the_tool_lane_can_end_in(read_table: ReadTable, names: Names) -> None:
    void = {str(kind) for kind, rule in ENDINGS.items() if rule.counts_as is CountsAs.VOID}
    agent_lane = {"session-error", "evidence-unverified", "oracle-unavailable"}
    kinds = {names(line["kind"])[0] for line in read_table(PAGE, "Voids") if "kind" in line}
    assert kinds == void - agent_lane


def test_every_verdict_and_every_fact_behind_it_is_named(read_table: ReadTable, names: Names) -> None:
    kinds = [line["verdict"].strip("`") for line in read_table(PAGE, "Kinds of verdict")]
    assert kinds == [str(verdict) for verdict in Verdict]
    meaning = {line["field"].strip("`"): set(names(line["meaning"])) for line in read_table(PAGE, "Verdicts")}
    for field, words in {"client_claim": ClientClaim, "delivery": Delivery, "server_truth": ServerTruth}.items():
        assert meaning[field] == {str(word) for word in words}


def test_every_state_of_a_process_is_named(read_table: ReadTable, names: Names) -> None:
    (line,) = (line for line in read_table(PAGE, "Step rows") if line["field"] == "`process_state`")
    assert set(names(line["meaning"])) == {str(state) for state in ProcessState}
