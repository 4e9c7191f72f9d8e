"""`scenarios.md` against the scenarios, and git's rows against those of a real sweep."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.loop.fault_cases import FAULT_CASES
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.seed import N_SEED_FILES, NOTES
from fairtrial.model.loop import Manner, Motion, Play, Setup

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

PAGE = "scenarios.md"
OF_OPERATIONS = [name for name, each in SCENARIOS.items() if each.play in {Play.TASKS, Play.OAK_LOCAL}]
OF_TASKS = [name for name, scenario in SCENARIOS.items() if scenario.play is Play.TASKS]


def test_every_scenario_has_a_section_and_nothing_else_has(reference: Path) -> None:
    headings = re.findall(r"^## ([a-z0-9_]+)$", (reference / PAGE).read_text(), re.MULTILINE)
    assert headings == list(SCENARIOS)


def test_every_motion_and_manner_is_in_the_reference(read_table: ReadTable, names: Names) -> None:
    table = read_table(PAGE, "Scenarios")
    assert [line["motion"].strip("`") for line in table] == [str(motion) for motion in Motion]
    manners = {name for line in table for name in names(line["what it means"])} & {str(each) for each in Manner}
    assert manners == {str(manner) for manner in Manner} - {"plain"}


def test_the_fault_cases_are_those_of_the_program_in_its_order(read_table: ReadTable, names: Names) -> None:
    table = read_table(PAGE, "publication_under_fault_v1")
    columns = ("case", "fault", "connection", "client's end")
    assert [tuple(line[column].strip("`") for column in columns) for line in table] == [
        (case.name, str((case.wire and case.wire.kind) or case.store or "none"), str(case.reuse), str(case.client_end))
        for case in FAULT_CASES.values()
    ]
    all_of_them = SCENARIOS["publication_under_fault_v1"].transports
    transports = [all_of_them if line["transports"] == "all" else set(names(line["transports"])) for line in table]
    assert transports == [case.transports for case in FAULT_CASES.values()]


@pytest.mark.parametrize("name", OF_OPERATIONS)
def test_the_operations_are_those_of_the_program_in_its_order(name: str, read_table: ReadTable) -> None:
    told = [
        (line["operation"].strip("`"), line["motion"].strip("`"), line["manner"].strip("`"))
        for line in read_table(PAGE, name)
    ]
    assert told == [
        (operation.name, str(operation.motion or "none"), str(operation.manner))
        for operation in SCENARIOS[name].operations
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_a_scenario_is_defined_for_is_told(name: str, reference: Path, names: Names) -> None:
    scenario = SCENARIOS[name]
    section = (reference / PAGE).read_text().partition(f"## {name}\n")[2].partition("\n## ")[0]
    where, phases, final = (line for line in section.splitlines() if line.startswith("- "))
    told = set(names(where))
    assert told == (scenario.transports or set()) | (scenario.subject_kinds or set())
    assert tuple(names(phases))[: len(scenario.phases)] == scenario.phases
    assert ("harness rows" in phases) is (scenario.setup is Setup.ROWS)
    assert names(final) == [f"{scenario.stem}.total", f"{scenario.stem}.skipped"]


def test_the_seed_is_described(reference: Path) -> None:
    text = (reference / PAGE).read_text()
    assert f"`{NOTES}` and {N_SEED_FILES} text files" in text


@pytest.mark.needs("git")
@pytest.mark.xdist_group("measurement")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", OF_TASKS)
def test_gits_rows_are_those_of_a_real_trial(
    name: str, read_table: ReadTable, names: Names, sweep_rows: list[dict[str, Any]]
) -> None:
    told = [each for line in read_table(PAGE, name) for each in names(line["git's rows"]) if "." in each]
    (total,) = (
        row
        for row in sweep_rows
        if row["scenario"] == name and row["subject"] == "git" and row["remote_transport"] == "file" and row["final"]
    )
    assert [row for row in total["summarized_operations"] if not row.startswith("setup.")] == told
