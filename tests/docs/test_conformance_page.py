"""`conformance.md` against the runner and the project's own cases."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from fairtrial.testing.agents import AGENT_CASES, AgentHands
from fairtrial.testing.conformance import RELATIVE_TOLERANCE, _kind_of
from fairtrial.testing.contexts import CONTEXT_CASES, ContextHands

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

PAGE = "conformance.md"


def test_every_file_of_cases_is_of_a_kind_of_the_reference(clone: Path, read_table: ReadTable, names: Names) -> None:
    told = {line["kind"]: line for line in read_table(PAGE, "The runner of cases")}
    cases = {path.stem: json.loads(path.read_text())[0] for path in (clone / "tests/conformance/cases").glob("*.json")}
    assert told.keys() == cases.keys()
    for kind, case in cases.items():
        assert set(names(told[kind]["told by"])) <= case.keys()
        expected, _ = _kind_of(case, kind)
        named = set(names(told[kind]["expected"]))
        if kind == "loop":
            assert named == expected.keys()
        if kind == "publication":
            assert named == {f"expected_{name}" for name in expected}


def test_the_tolerance_is_that_of_the_runner(reference: Path) -> None:
    assert f"within {RELATIVE_TOLERANCE:.0e}".replace("e-0", "e-") in (reference / PAGE).read_text()


def test_the_cases_of_the_suite_of_agents_are_told(read_table: ReadTable) -> None:
    told = [line["case"].strip("`") for line in read_table(PAGE, "The suite of agents") if "case" in line]
    assert told == [case.name for case in AGENT_CASES]


def test_what_the_suite_is_told_of_an_agent_is_told(read_table: ReadTable) -> None:
    lines = [line for line in read_table(PAGE, "The suite of agents") if "field" in line]
    assert [line["field"].strip("`") for line in lines] == [field.name for field in dataclasses.fields(AgentHands)]
    required = [line["field"].strip("`") for line in lines if line["default"] == "required"]
    fields = dataclasses.fields(AgentHands)
    missing = dataclasses.MISSING
    assert required == [each.name for each in fields if each.default is missing and each.default_factory is missing]


def test_the_suite_of_contexts_is_told(read_table: ReadTable) -> None:
    lines = read_table(PAGE, "The suite of contexts")
    assert [line["case"].strip("`") for line in lines if "case" in line] == [case.name for case in CONTEXT_CASES]
    told = [line["field"].strip("`") for line in lines if "field" in line]
    assert told == [field.name for field in dataclasses.fields(ContextHands)]
