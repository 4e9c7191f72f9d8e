"""The product's answers against cases produced independently, and proof that a wrong answer would be found."""

# ruff: noqa: ANN401 - JSON of any shape is what these functions take

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairtrial.testing.conformance import _kind_of, check_file, compare, main

CASES = Path(__file__).parent / "cases"
FILES = {"records": 12, "gate": 60, "loop": 15, "publication": 30}
Steps = tuple[str | int, ...]


def path_of(name: str) -> Path:
    return CASES / f"{name}.json"


@pytest.mark.parametrize(("name", "n_cases"), FILES.items())
def test_every_case_has_the_expected_answer(name: str, n_cases: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path_of(name))]) == 0
    assert capsys.readouterr().out == f"{n_cases} cases, 0 mismatches\n"


def leaves(value: Any, steps: Steps = ()) -> Iterator[Steps]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*steps, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, (*steps, index))
    else:
        yield steps


def changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + max(abs(value), 1.0) * 1e-6
    return 0 if value is None else [*value, 0] if isinstance(value, list) else f"{value}x"


def with_change(expected: Any, steps: Steps) -> Any:
    if not steps:
        return changed(expected)
    copy = expected.copy()
    copy[steps[0]] = with_change(copy[steps[0]], steps[1:])
    return copy


@pytest.mark.parametrize("name", FILES)
def test_every_single_changed_expected_value_is_found_with_its_path(name: str) -> None:
    n_leaves = 0
    for case in json.loads(path_of(name).read_text()):
        expected, compute = _kind_of(case, name)
        answer = compute(case)
        for steps in leaves(expected):
            found = list(compare(with_change(expected, steps), answer, ""))
            assert len(found) == 1, steps
            assert str(steps[-1]) in found[0]
            n_leaves += 1
    assert n_leaves > 400


@pytest.mark.parametrize("name", FILES)
def test_a_change_in_the_file_makes_the_runner_say_no(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = json.loads(path_of(name).read_text())
    key = "expected_evidence" if name == "publication" else "expected"
    cases[3][key] = with_change(cases[3][key], next(leaves(cases[3][key])))
    copy = tmp_path / "copy.json"
    copy.write_text(json.dumps(cases))
    assert main([str(copy)]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{len(cases)} cases, 1 mismatches"
    assert second.startswith("case 3.")


@pytest.mark.parametrize(
    ("expected", "answer", "same"),
    [
        (1, 1.0, True),
        (1.0, 1.0 + 1e-12, True),
        (1.0, 1.0 + 1e-8, False),
        (0, 1e-300, False),
        (1, True, False),
        (True, 1, False),
        (False, 0, False),
        (None, 0, False),
        (0, None, False),
        ("1", 1, False),
        (1, "1", False),
        (float("nan"), float("nan"), False),
        (10**400, 10**400, True),
        (10**400, 1, False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": None}, {}, False),
        ({}, [], False),
        ([1], [1, 2], False),
        ([1, 2], [2, 1], False),
        ([], {}, False),
        ([], None, False),
        ([{"a": 1}], [{"a": 1, "b": 2}], True),
    ],
)
def test_numbers_are_equal_within_tolerance_and_all_else_exactly(expected: Any, answer: Any, *, same: bool) -> None:
    assert (list(compare(expected, answer, "")) == []) == same


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read cases"),
        ("{", "cannot read cases"),
        ("\xff", "cannot read cases"),
        ("[" * 100_000, "cannot read cases"),
        ("[]", "no cases"),
        ("{}", "no cases"),
        ("[1]", "case 0: a case must be an object"),
        ('[{"records": []}]', "case 0: nothing is expected"),
        ('[{"records": [], "expected": {}}]', "case 0: nothing is expected"),
        ('[{"cli_row": {}, "expected_observation": {}, "expected_evidence": {}}]', "case 0: nothing is expected"),
        ('[{"other": 1, "expected": {"a": 1}}]', "case 0: neither records, gate, loop nor publication"),
        ('[{"records": [1], "expected": {"a": 1}}]', "case 0: cannot be computed"),
        ('[{"planned_operations": [], "rows": [], "expected": {"a": 1}}]', "case 0: cannot be computed"),
        ('[{"records": [], "incumbent_arm": "a", "expected": {"a": 1}}]', "case 0: cannot be computed"),
        ('[{"records": [{"task": 1}], "expected": {"a": 1}}]', "case 0: row 1: 'task' must be"),
    ],
)
def test_a_file_that_is_no_file_of_cases_is_refused_in_one_line(
    content: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cases.json"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    assert main([str(path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert words in shown.err
    assert shown.err.count("\n") == 1


def test_the_runner_takes_exactly_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["a", "b"]) == 2
    assert "usage: python -m fairtrial.testing.conformance FILE.json" in capsys.readouterr().err


def test_the_runner_is_a_program_of_its_own() -> None:
    command = [sys.executable, "-m", "fairtrial.testing.conformance", str(path_of("loop"))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "15 cases, 0 mismatches\n", "")


def test_a_file_is_told_by_its_content_not_by_its_name(tmp_path: Path) -> None:
    copy = tmp_path / "gate.json"
    copy.write_bytes(path_of("loop").read_bytes())
    assert check_file(copy) == (15, [])
