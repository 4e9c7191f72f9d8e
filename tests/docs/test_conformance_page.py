"""`conformance.md` against the runner and the project's own cases."""

import json
from collections.abc import Callable
from pathlib import Path

from fairtrial.testing.conformance import RELATIVE_TOLERANCE, _kind_of

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

PAGE = "conformance.md"


def test_every_file_of_cases_is_of_a_kind_of_the_reference(clone: Path, read_table: ReadTable, names: Names) -> None:
    told = {line["kind"]: line for line in read_table(PAGE, "Conformance runner")}
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
