"""The total of one tool trial: what its step rows add up to.

A step that ran without a time makes each sum over it unknown. A hole (return code 77) and a planned operation without
a row are left out of sums and named; the missing operation also fails the total, because nobody decided to leave it
out.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from fairtrial.evidence.rows import Row, measured, text, whole
from fairtrial.stats.summary import total

__all__ = [
    "HOLE_RETURNCODE",
    "cold_followup_summary",
    "cold_warm_summary",
    "has_lane_failures",
    "is_hole",
    "loop_summary",
    "row_failed",
    "scenario_stem",
    "total_row",
]

HOLE_RETURNCODE: Final = 77
IDENTITY_FIELDS: Final = ("subject", "subject_kind", "subject_label", "scenario", "run")
COUNT_FIELDS: Final = (
    "tool_call_count",
    "terminal_tool_call_count",
    "vcs_tool_call_count",
    "harness_command_count",
    "retry_count",
    "human_action_count",
)
TOKEN_FIELDS: Final = (
    "estimated_tokens",
    "estimated_tokens_with_envelope",
    "estimated_cost_weighted_tokens_with_envelope",
)
OUTPUT_FIELDS: Final = ("raw_output_bytes", "stdout_bytes", "stderr_bytes", "cpu_user_s", "cpu_system_s")
RULE_FIELDS: Final = ("token_method", "token_envelope", "token_weights")
HARNESS: Final = "harness"
MS_DECIMALS: Final = 3
CPU_DECIMALS: Final = 6

_STEMS: Final = {
    "agent_task_baseline_v1": "agent_task",
    "interrupted_publication_after_request_v1": "interrupted_publication",
}
"""Names of summary operations that the scenario's own name does not give by dropping its version."""


def scenario_stem(scenario: str) -> str:
    """Give the first part of a scenario's `*.total` and `*.skipped` operations."""
    return _STEMS.get(scenario) or re.sub(r"_v[0-9]+$", "", scenario)


def is_hole(row: Row) -> bool:
    """Tell whether the row stands for something that was deliberately not done."""
    return whole(row.get("returncode")) == HOLE_RETURNCODE


def row_failed(row: Row) -> bool:
    """Tell whether the row is a failure; a row without a return code is one."""
    return whole(row.get("returncode")) not in {0, HOLE_RETURNCODE}


def has_lane_failures(rows: Iterable[Row]) -> bool:
    """Tell whether any row failed, totals included."""
    return any(row_failed(row) for row in rows)


def total_row(
    planned_operations: Sequence[str], rows: Sequence[Row], *, identity: Row | None = None
) -> dict[str, object]:
    """Sum up one subject's run of one scenario.

    Args:
        planned_operations: Operations that the scenario promises to run, in order.
        rows: The step, harness and hole rows, in order.
        identity: `subject`, `scenario`, `run` and the like; by default those of the first row. Needed when there is
            no row.

    Returns:
        The fields of the total row that follow from the rows alone.
    """
    who = identity if identity is not None else rows[0]
    ran = [row for row in rows if not is_hole(row)]
    operations = [text(row.get("operation")) or "" for row in rows]
    seen = set(operations)
    missing = [operation for operation in planned_operations if operation not in seen]
    unmeasured = [
        operation
        for operation, row in zip(operations, rows, strict=True)
        if is_hole(row) or measured(row.get("elapsed_ms")) is None
    ]
    counts: dict[str, object] = {
        field: total(measured(row.get(field)) for row in ran) if ran else 0 for field in COUNT_FIELDS
    }
    return {
        **{field: who[field] for field in IDENTITY_FIELDS if field in who},
        "operation": f"{scenario_stem(str(who.get('scenario')))}.total",
        "step_kind": "summary",
        "elapsed_ms": _elapsed_ms(rows),
        "returncode": int(bool(missing) or has_lane_failures(rows)),
        "coverage_complete": not (missing or unmeasured),
        "unmeasured_operations": list(dict.fromkeys([*unmeasured, *missing])),
        "phase_elapsed_ms": {phase: _elapsed_ms(members) for phase, members in sorted(_by_phase(rows).items())},
        "command": [row.get("command") for row in rows],
        "summarized_operations": operations,
        **counts,
        "agent_tool_call_count": counts["tool_call_count"],
        **_token_sums(ran),
        **{field: _rounded(_sum_where_present(ran, field), CPU_DECIMALS) for field in _present(ran, OUTPUT_FIELDS)},
        **_peak_memory(ran),
    }


def loop_summary(rows: Sequence[Row]) -> dict[str, float | None]:
    """Give the phase times of `task_loop`, and what the second acquire cost more or less than the first, in ms."""
    return _two_phases(rows, "task", "followup", delta="followup_warm_delta_ms")


def cold_warm_summary(rows: Sequence[Row]) -> dict[str, float | None]:
    """Give the same for scenarios whose phases are called cold and warm."""
    return _two_phases(rows, "cold", "warm", delta="warm_acquire_delta_ms")


def cold_followup_summary(rows: Sequence[Row]) -> dict[str, float | None]:
    """Give the same for scenarios whose phases are called cold and followup."""
    return _two_phases(rows, "cold", "followup", delta="followup_acquire_delta_ms")


def _two_phases(rows: Sequence[Row], first: str, second: str, *, delta: str) -> dict[str, float | None]:
    phases = _by_phase(rows)
    first_ms, second_ms = _acquire_ms(phases.get(first, []), first), _acquire_ms(phases.get(second, []), second)
    return {
        f"{first}_phase_ms": _elapsed_ms(phases.get(first, [])),
        f"{second}_phase_ms": _elapsed_ms(phases.get(second, [])),
        f"acquire_ms_{first}": first_ms,
        f"acquire_ms_{second}": second_ms,
        delta: None if first_ms is None or second_ms is None else round(second_ms - first_ms, MS_DECIMALS),
    }


def _by_phase(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows by the first dotted part of their operation."""
    phases: dict[str, list[Row]] = {}
    for row in rows:
        phases.setdefault((text(row.get("operation")) or "").partition(".")[0], []).append(row)
    return phases


def _elapsed_ms(rows: Iterable[Row]) -> float | None:
    """Sum the times of what ran; unknown when one time is, and when nothing ran: that is no 0 ms."""
    return _rounded(total(measured(row.get("elapsed_ms")) for row in rows if not is_hole(row)), MS_DECIMALS)


def _acquire_ms(rows: Iterable[Row], phase: str) -> float | None:
    """Sum a phase's acquire, which may be several commands; only a measured success counts."""
    operation = f"{phase}.acquire"
    acquire = [
        row
        for row in rows
        if row.get("operation") == operation or str(row.get("operation")).startswith(f"{operation}.")
    ]
    succeeded = all(whole(row.get("returncode")) == 0 for row in acquire)
    return _elapsed_ms(acquire) if succeeded else None


def _present(rows: Iterable[Row], fields: Iterable[str]) -> list[str]:
    """Name those of the fields that any row has."""
    having = {field for row in rows for field in row}
    return [field for field in fields if field in having]


def _sum_where_present(rows: Iterable[Row], field: str) -> float | None:
    """Sum a field over the rows it applies to.

    Harness rows are not the agent's work and may lack it; a step of the agent that lacks what other steps have was
    not measured.
    """
    return total(measured(row.get(field)) for row in rows if field in row or row.get("step_kind") != HARNESS)


def _token_sums(ran: Sequence[Row]) -> dict[str, object]:
    """Sum token estimates and label them; estimates made by different rules have no sum."""
    rules: dict[str, object] = {}
    for field in _present(ran, RULE_FIELDS):
        found = {text(row[field]) for row in ran if field in row}
        rules[field] = found.pop() if len(found) == 1 else None
    one_rule = None not in rules.values()
    return {
        field: _sum_where_present(ran, field) if one_rule else None for field in _present(ran, TOKEN_FIELDS)
    } | rules


def _peak_memory(ran: Sequence[Row]) -> dict[str, object]:
    """Give the largest peak; unknown with a reason when a step's peak is, since that step may have been the largest.

    What it lies below is known as long as each step's is.
    """
    if not _present(ran, ["peak_memory_bytes"]):
        return {}
    peaks = [measured(row["peak_memory_bytes"]) for row in ran if "peak_memory_bytes" in row]
    known = [peak for peak in peaks if peak is not None]
    if len(known) == len(peaks):
        return {"peak_memory_bytes": max(known), "peak_memory_reason": None, "peak_memory_below_bytes": None}
    reason = f"{len(peaks) - len(known)} of {len(peaks)} steps have no figure"
    bounds = [
        measured(row.get("peak_memory_below_bytes")) if peak is None else peak
        for row, peak in zip((row for row in ran if "peak_memory_bytes" in row), peaks, strict=True)
    ]
    below = [bound for bound in bounds if bound is not None]
    return {
        "peak_memory_bytes": None,
        "peak_memory_reason": reason,
        "peak_memory_below_bytes": max(below) if len(below) == len(bounds) else None,
    }


def _rounded(value: float | None, decimals: int) -> float | None:
    return value if value is None or isinstance(value, int) else round(value, decimals)
