import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.store.conftest import Made

from fairtrial.errors import HostError, IntegrityError, UsageError
from fairtrial.store.rows import Upgrade, read_rows
from fairtrial.store.strict_json import JsonObject


def write(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"".join(line.encode() if isinstance(line, str) else line for line in lines))
    return path


def test_the_rows_of_a_sweep_are_streamed_in_order(made: Made) -> None:
    made.record(1, 0)
    rows = read_rows(made.results.results_jsonl, sweep_id=made.sweep.sweep)
    assert next(rows)["key"] == made.key(1)
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5]


def test_bare_rows_need_no_schema_and_no_last_newline(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", '{"arm": "a", "cost_usd": 1e-05}\n', '{"schema":"bench-row/1","arm":"b"}')
    assert list(read_rows(path)) == [{"arm": "a", "cost_usd": 1e-05}, {"schema": "bench-row/1", "arm": "b"}]
    assert list(read_rows(write(tmp_path / "empty.jsonl"))) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\n", "EOF"),
        (b"[]\n", "not a JSON object"),
        (b'{"a":NaN}\n', "expected value"),
        (b'{"a":1e999}\n', "too large"),
        (b'{"a":1,"a":2}\n', "duplicate key 'a'"),
        (b'{"a":"\xff"}\n', "unicode"),
        (b'{"a":1}\r{"b":1}\n', "trailing"),
        (b'{"schema":"loop-row/2"}\n', "schema 'loop-row/2' is not known here"),
        (b'{"schema":["loop-row/1"]}\n', "schema is of another type"),
        (b'{"schema":null}\n', "no schema"),
        (b'{"a":1', "EOF"),
    ],
)
def test_a_bare_row_that_cannot_be_believed_is_named_by_its_line(tmp_path: Path, line: bytes, why: str) -> None:
    path = write(tmp_path / "rows.jsonl", '{"a":1}\n', line)
    with pytest.raises(IntegrityError, match=rf"rows\.jsonl:2: .*{why}"):
        list(read_rows(path))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"schema":"loop-row/1","sweep":"other"}\n', "belongs to sweep 'other', not 's'; see `fairtrial audit`"),
        (b'{"schema":"loop-row/1"}\n', "belongs to sweep None"),
        (b'{"sweep":"s"}\n', "no schema"),
        (b'{"schema":"loop-row/1","sweep":"s"}', "is torn.*fairtrial resume"),
        (b'{"schema":"loop-row/1","sw', "is torn.*fairtrial resume"),
    ],
)
def test_a_row_of_a_sweep_must_be_whole_and_its_own_b43(tmp_path: Path, line: bytes, why: str) -> None:
    path = write(tmp_path / "rows.jsonl", '{"schema":"loop-row/1","sweep":"s"}\n', line)
    with pytest.raises(IntegrityError, match=rf"rows\.jsonl:2: .*{why}"):
        list(read_rows(path, sweep_id="s"))


def test_a_file_that_cannot_be_read_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file; name a results directory"):
        list(read_rows(tmp_path / "absent"))
    with pytest.raises(HostError, match=r"cannot be read \(Is a directory\)"):
        list(read_rows(tmp_path))


def upgrade_0_to_1(row: JsonObject) -> JsonObject:
    return {**row, "schema": "loop-row/1", "elapsed_ms": row["elapsed"]}


def upgrade_x_to_0(row: JsonObject) -> JsonObject:
    return {**row, "schema": "loop-row/0", "elapsed": 1}


def to_itself(row: JsonObject) -> JsonObject:
    return row


UPGRADES: dict[str, Upgrade] = {"loop-row/0": upgrade_0_to_1, "loop-row/x": upgrade_x_to_0, "loop-row/o": to_itself}


def test_older_rows_are_upgraded_on_reading_step_by_step_and_never_in_the_file(tmp_path: Path) -> None:
    text = '{"schema":"loop-row/x","sweep":"s"}\n{"schema":"loop-row/0","sweep":"s","elapsed":5}\n'
    path = write(tmp_path / "rows.jsonl", text)
    rows = list(read_rows(path, sweep_id="s", upgrades=UPGRADES))
    assert [(row["schema"], row["elapsed_ms"]) for row in rows] == [("loop-row/1", 1), ("loop-row/1", 5)]
    assert path.read_text() == text


@pytest.mark.parametrize("schema", ["loop-row/7", "loop-row/o"])
def test_a_version_without_a_way_to_a_known_one_is_refused(tmp_path: Path, schema: str) -> None:
    path = write(tmp_path / "rows.jsonl", json.dumps({"schema": schema}))
    with pytest.raises(IntegrityError, match=rf":1: schema '{schema}' is not known here; use the fairtrial"):
        list(read_rows(path, upgrades=UPGRADES))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary() | st.lists(st.sampled_from(['{"a":', "1", "}", "\n", '"', "[", "NaN", "\ud7ff"])).map("".join))
def test_any_bytes_are_rows_or_an_integrity_error(tmp_path: Path, text: bytes | str) -> None:
    path = write(tmp_path / "rows.jsonl", text)
    for sweep_id in (None, "s"):
        try:
            rows = list(read_rows(path, sweep_id=sweep_id))
        except IntegrityError as error:
            assert "rows.jsonl:" in str(error)  # noqa: PT017 - both endings are right
        else:
            assert all(isinstance(row, dict) for row in rows)
