"""The fields of a total row that every play gives alike."""

from collections.abc import Sequence
from typing import Final

from fairtrial.evidence.loop import total_row
from fairtrial.host.clock import rfc3339, utc_now
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.stage import Stage
from fairtrial.model.loop import Transport

__all__ = ["common_total"]

SOURCES: Final = ("store", "wire", "integrity")


def common_total(
    stage: Stage, rows: Sequence[Row], planned: Sequence[str], *, holds: bool | None, failures: Sequence[str]
) -> Row:
    """Sums over the rows, and what the truth check says.

    Args:
        stage: Where it was played.
        rows: The trial's rows so far.
        planned: The operation of every row that the scenario demands.
        holds: What the truth check says of everything published together.
        failures: Every way in which it does not hold.
    """
    scenario, hosted = stage.scenario, stage.spec.loop.transport is Transport.HOSTED
    builder = RowBuilder.of(stage.spec, scenario)
    total = builder.total(scenario.stem, total_row(planned, rows, identity=builder.identity))
    if total["elapsed_ms"] is None:
        total["elapsed_ms_reason"] = "a step has no time, or none was run"
    return total | {
        "oracle_payload_on_remote_branch": holds,
        "truth_failures": list(failures),
        "truth_sources": ["wire"] if hosted else list(SOURCES),
        "oracle_probe_calls": stage.n_probe_calls,
        "harness_command_count": _count(total, "harness_command_count") + stage.n_probe_calls,
        "workspace_branches": {phase: place.branch for phase, place in stage.places.items()},
        "measurement_source": "wall clock around spawn and reap; kernel accounting of the child",
        "os_cache_state": "unknown",
        "os_cache_state_reason": "the page cache is neither dropped nor measured",
        "recorded_at": rfc3339(utc_now()),
        "error_kind": None,
        "transcript": "transcript.jsonl",
    }


def _count(row: Row, name: str) -> int:
    value = row[name]
    return value if isinstance(value, int) else 0
