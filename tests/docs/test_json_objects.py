"""The JSON objects of `commands.md` against what the commands print."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fairtrial.cli.main import run
from fairtrial.evidence.bench_remarks import CellRemarks
from fairtrial.evidence.controls import ControlVerdict
from fairtrial.sweep.rejudge import Rejudged

Capture = pytest.CaptureFixture[str]
ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]
Print = Callable[..., dict[str, Any]]

PAGE = "commands.md"
BY_NAME = {"medians", "counts"}
"""Objects whose keys are names, not fields."""
ONLY_AT_THE_END = {"results", "workspaces", "seal", "exit_code"}
ONLY_WHEN_ASKED = {"rejudged"}
on_the_sweep = [pytest.mark.needs("git"), pytest.mark.xdist_group("measurement"), pytest.mark.timeout(900)]


def paths_of(value: object, path: str = "") -> Iterator[str]:
    """Every field of an object as a path, as the page writes it."""
    if isinstance(value, list):
        for item in value:
            yield from paths_of(item, f"{path}[]")
    elif isinstance(value, dict):
        by_name = path.rpartition(".")[2] in BY_NAME
        for key, inner in value.items():
            below = f"{path}{{}}" if by_name else f"{path}.{key}".removeprefix(".")
            yield below
            yield from paths_of(inner, below)


@pytest.fixture
def printed(capsys: Capture) -> Print:
    """Runs a command line and reads the object that it prints."""

    def run_and_read(*argv: str, code: int = 0) -> dict[str, Any]:
        assert run(argv) == code
        value: dict[str, Any] = json.loads(capsys.readouterr().out)
        return value

    return run_and_read


def check(value: dict[str, Any], read_table: ReadTable) -> None:
    told = {line["field"].strip("`") for line in read_table(PAGE, value["schema"])}
    assert set(paths_of(value)) <= told
    top = {path for path in told if "." not in path and "[" not in path and "{" not in path}
    assert top - ONLY_AT_THE_END - ONLY_WHEN_ASKED <= value.keys()


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("plugins", "--json"), 0),
        (("loop", "--dry-run", "--runs", "1", "--transport", "file,ssh", "--json"), 0),
        (("loop", "--scenarios", "nothing", "--json"), 2),
    ],
)
@pytest.mark.needs("git")
def test_an_object_that_needs_no_sweep_is_in_the_reference(
    argv: tuple[str, ...], code: int, printed: Print, read_table: ReadTable
) -> None:
    check(printed(*argv, code=code), read_table)


@pytest.mark.needs("git")
def test_what_doctor_prints_is_in_the_reference(printed: Print, read_table: ReadTable) -> None:
    check(printed("doctor", "--json"), read_table)


class TestOnASweep:
    pytestmark = on_the_sweep

    def test_what_loop_prints_is_in_the_reference(self, sweep_printed: dict[str, Any], read_table: ReadTable) -> None:
        check(sweep_printed, read_table)
        assert sweep_printed.keys() >= ONLY_AT_THE_END

    def test_every_field_of_a_report_is_in_the_reference_and_no_other(
        self, sweep_rows: list[dict[str, Any]], tmp_path: Path, printed: Print, read_table: ReadTable
    ) -> None:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in [*sweep_rows, *rows_of_two_more(sweep_rows)]))
        told = {line["field"].strip("`") for line in read_table(PAGE, "loop-report/1")}
        found = {re.sub(r"\{\}.*", "{}", each) for each in paths_of(printed("report", str(path), "--json"))}
        assert found == told - ONLY_AT_THE_END

    def test_the_written_report_has_the_same_fields(self, sweep: Path, read_table: ReadTable) -> None:
        check(json.loads((sweep / "report.json").read_text()), read_table)

    def test_what_audit_prints_is_in_the_reference(self, sweep: Path, printed: Print, read_table: ReadTable) -> None:
        check(printed("audit", str(sweep), "--json", code=5), read_table)

    def test_what_audit_says_of_damage_is_in_the_reference(
        self, sweep: Path, printed: Print, read_table: ReadTable
    ) -> None:
        wrong = printed("audit", str(sweep), "--expect", "0" * 64, "--json", code=4)
        told = {line["field"].strip("`") for line in read_table(PAGE, "audit/1")}
        assert set(paths_of(wrong)) == {path for path in told if not path.startswith("rejudged")}


def rows_of_two_more(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Totals of git again, under two more names: of a subject to compare with it, and of one that failed."""
    for row in rows:
        if row["subject"] == "git" and row["operation"] == "task_loop.total" and row["error_kind"] is None:
            yield row | {"subject": "other", "key": f"{row['key']}/other"}
            yield row | {"subject": "failing", "key": f"{row['key']}/failing", "returncode": 1}


def test_a_report_of_the_agent_lane_has_the_fields_of_the_reference(
    tmp_path: Path, printed: Print, read_table: ReadTable, names: Names
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"task": "t", "arm": "baseline", "run": 0, "resolved": True, "class": "x"}) + "\n")
    lines = {line["field"].strip("`"): names(line["meaning"]) for line in read_table(PAGE, "bench-report/1")}
    report = printed("report", str(rows), "--json")
    assert report.keys() == lines.keys() - ONLY_AT_THE_END - {"promotion"}
    cell = {field.name for field in fields(CellRemarks)}
    assert set(lines["remarks"]) == report["remarks"].keys() | cell


def test_what_gate_prints_has_the_fields_of_the_reference_and_no_other(
    tmp_path: Path, printed: Print, read_table: ReadTable
) -> None:
    rows = tmp_path / "rows.jsonl"
    runs = [{"task": "t", "arm": arm, "cost_usd": 1.0, "resolved": True} for arm in ("old", "new") for _ in range(3)]
    rows.write_text("".join(f"{json.dumps(row)}\n" for row in runs))
    told = {line["field"].strip("`") for line in read_table(PAGE, "gate/1")}
    arms = ("--incumbent", "old", "--candidate", "new", "--model", "m")
    assert set(paths_of(printed("gate", str(rows), *arms, "--json", code=1))) == told


def test_what_apply_prints_has_the_fields_of_the_reference_and_no_other(
    tmp_path: Path, printed: Print, read_table: ReadTable
) -> None:
    told = {line["field"].strip("`") for line in read_table(PAGE, "apply/1")}
    assert printed("apply", "--recover", "--project", str(tmp_path), "--json").keys() == told


def test_what_init_prints_is_in_the_reference(tmp_path: Path, printed: Print, read_table: ReadTable) -> None:
    check(printed("init", str(tmp_path / "new"), "--json"), read_table)


def test_the_fields_of_a_control_are_in_the_reference(read_table: ReadTable) -> None:
    told = {line["field"].strip("`") for line in read_table(PAGE, "check/1")}
    controls = {f"controls[].{field.name}" for field in fields(ControlVerdict)}
    assert told == {"schema", "results", "exit_code", "controls", "warnings"} | controls


def test_the_fields_of_a_repeated_verdict_are_in_the_reference(read_table: ReadTable) -> None:
    told = {line["field"].strip("`") for line in read_table(PAGE, "audit/1")}
    assert {path for path in told if path.startswith("rejudged[]")} == {
        f"rejudged[].{field.name}" for field in fields(Rejudged)
    }
