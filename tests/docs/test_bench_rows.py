"""`bench-rows.md` and `wire-rows.md` against the rows of a real sweep, and the words against the program's."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.rows import lost_row, void_row
from fairtrial.evidence.endings import ENDINGS
from fairtrial.gateway.dialect import Ask
from fairtrial.gateway.egress import Grant
from fairtrial.gateway.ledger import Ending, SeenCall, SeenResult, WireRow
from fairtrial.gateway.policy import ServedModel
from fairtrial.model.trial import BenchSpec, ModelSource
from fairtrial.model.usage import TokenUsage
from fairtrial.store.layout import open_results
from fairtrial.store.sweep_file import read_sweep
from fairtrial.sweep.bench_inputs import open_inputs, recorded_options

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]
Row = dict[str, Any]

PAGE = "bench-rows.md"
WIRE = "wire-rows.md"
BY_THE_JOURNAL = {"sweep", "key", "attempt", "plan_index", "seq", "prev", "final"}
BY_THE_SWEEP = {
    *("bench_id", "timestamp_utc", "host", "platform", "machine", "fairtrial", "metric", "trial_order_seed"),
    *("scripted_model", "controls", "source", "price_table", "sweep_paused_s"),
    "measurement_lock_wait_ms",
}
on_a_sweep = [
    pytest.mark.needs("git", "bwrap"),
    pytest.mark.xdist_group("bench-docs"),
    pytest.mark.timeout(300),
]


def lines_of(read_table: ReadTable, *headings: str) -> dict[str, dict[str, str]]:
    lines = [line for heading in headings for line in read_table(PAGE, heading, deep=True)]
    told = {line["field"].strip("`"): line for line in lines}
    assert len(told) == len(lines)
    return told


class TestOnASweep:
    pytestmark = on_a_sweep

    def test_a_measured_row_has_the_fields_of_the_reference_and_no_other(
        self, bench_rows: list[Row], read_table: ReadTable
    ) -> None:
        told = lines_of(read_table, "Every row", "Measured attempts")
        usual = {name for name, line in told.items() if line["present"] in {"always", "measured"}} | {"stray_processes"}
        assert len(bench_rows) == 4
        for row in bench_rows:
            assert row.keys() == usual

    def test_only_a_field_whose_type_says_so_is_ever_null(self, bench_rows: list[Row], read_table: ReadTable) -> None:
        told = lines_of(read_table, "Every row", "Measured attempts")
        nullable = {name for name, line in told.items() if "null" in line["type"]}
        assert {name for row in bench_rows for name, value in row.items() if value is None} <= nullable

    def test_what_stands_inside_a_field_is_named(
        self, bench_rows: list[Row], read_table: ReadTable, names: Names
    ) -> None:
        told = lines_of(read_table, "Every row", "Measured attempts")
        for name in ("reported_usage", "sessions", "environment", "transcript_artifacts"):
            assert names(told[name]["meaning"]) == list(bench_rows[0][name][0]), name
        for name in ("agent_plugin", "limits_enforced", "oracle_counts"):
            assert names(told[name]["meaning"]) == list(bench_rows[0][name]), name
        wire = [line["field"].strip("`") for line in read_table(PAGE, "Wire")]
        assert wire == list(bench_rows[0]["wire"])

    def test_a_row_without_a_measurement_has_the_fields_that_are_always_there(
        self, bench: Path, tmp_path: Path, read_table: ReadTable
    ) -> None:
        spec = spec_of(bench, tmp_path)
        told = lines_of(read_table, "Every row", "Measured attempts")
        always = {name for name, line in told.items() if line["present"] == "always"} - BY_THE_JOURNAL - BY_THE_SWEEP
        plain = void_row(spec, "interrupted", "killed")
        assert plain.keys() == always | {"unmeasured_reason"}
        nullable = {name for name, line in told.items() if "null" in line["type"]}
        assert {name for name, value in plain.items() if value is None} <= nullable
        attempt = min(path.parent for path in bench.rglob("wire-work.jsonl"))
        lost = lost_row(spec, "interrupted", "killed", attempt)
        assert lost.keys() == plain.keys()
        assert (plain["usage_is_lower_bound"], lost["usage_is_lower_bound"]) == (None, True)
        assert lost["wire"] == {"requests": lost["num_turns"], "complete": False}
        assert lost["transcript_missing"] is False
        kept = sorted(path.name for path in attempt.glob("transcript-*"))
        assert [each["path"] for each in lost["transcript_artifacts"]] == kept != []
        under_way = tmp_path / "under-way"
        under_way.mkdir()
        begun = b'{"kind":"begun","n":99,"trial":"t","requested_model":"m"}\n'
        for log in attempt.glob("wire-*.jsonl"):
            (under_way / log.name).write_bytes(log.read_bytes() + begun)
        assert lost_row(spec, "interrupted", "killed", under_way)["cost_usd"] == lost["cost_usd"] is not None
        killed = tmp_path / "killed"
        killed.mkdir()
        assert lost_row(spec, "interrupted", "killed", killed)["transcript_missing"] is False, "it never began"
        (killed / "intent.json").write_bytes(b"{}")
        assert lost_row(spec, "interrupted", "killed", killed)["transcript_missing"] is True


def spec_of(bench: Path, scratch: Path) -> BenchSpec:
    """An attempt at the first trial of that sweep."""
    results = open_results(bench)
    options = recorded_options(results, read_sweep(results))
    trial = open_inputs(options, BlobStore(scratch / "blobs"), commits={}).plan[0]
    return BenchSpec(
        sweep="s",
        key=trial.key,
        attempt=1,
        plan_index=0,
        sweep_pass=0,
        results=str(bench),
        scratch=str(scratch),
        metadata={},
        bench=trial.bench,
        gateway=None,
        source=ModelSource(script="s"),
        n_workers=1,
    )


def test_every_ending_is_told_with_what_it_counts_as(read_table: ReadTable) -> None:
    told = {line["kind"].strip("`"): (line["counts as"], line["cause"]) for line in read_table(PAGE, "Endings")}
    assert told == {
        str(kind): ("void, outage" if rule.systemic else str(rule.counts_as), rule.when)
        for kind, rule in ENDINGS.items()
    }


def test_every_field_of_a_wire_row_is_told_in_its_order(read_table: ReadTable) -> None:
    told = {line["field"].strip("`"): line["type"] for line in read_table(WIRE, "A request")}
    assert list(told) == [field.name for field in dataclasses.fields(WireRow)]
    nullable = {name for name, hint in get_type_hints(WireRow).items() if str(hint).endswith("| None")}
    assert {name for name, kind in told.items() if "null" in kind} == nullable


def test_what_stands_inside_a_wire_row_is_named(read_table: ReadTable, names: Names) -> None:
    meaning = {line["field"].strip("`"): names(line["meaning"]) for line in read_table(WIRE, "A request")}
    for name, form in {"usage": TokenUsage, "tool_calls": SeenCall, "tool_results": SeenResult}.items():
        assert meaning[name] == [field.name for field in dataclasses.fields(form)]
    assert meaning["ask"] == [str(ask) for ask in Ask]
    assert meaning["served_as"] == [str(each) for each in ServedModel]


def test_every_ending_of_a_request_and_every_grant_is_told(read_table: ReadTable) -> None:
    assert [line["ending"].strip("`") for line in read_table(WIRE, "Endings")] == [str(each) for each in Ending]
    assert [line["grant"].strip("`") for line in read_table(WIRE, "Grants")] == [str(each) for each in Grant]
