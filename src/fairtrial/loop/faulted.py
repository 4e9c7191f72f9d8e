"""`publication_under_fault_v1`: the same small publication once for each way of disturbing it."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, cast

from fairtrial.evidence.publication import Verdict
from fairtrial.loop.fault_cases import CONTROL, FaultCase, cases_elsewhere, chosen_cases
from fairtrial.loop.faulted_case import CaseResult, play_case
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.stage import Stage
from fairtrial.loop.totals import common_total
from fairtrial.loop.work import Meter, network_fields, prepare
from fairtrial.model.loop import Manner

__all__ = ["MATRIX_FIELDS", "play_faults"]

MATRIX_FIELDS: Final = (
    "fault_case", "fault_kind", "connection_reuse", "valid", "invalid_reason", "client_claim", "client_returncode",
    "delivery", "mutation_requests_observed", "blind_replay_requests", "server_truth", "fork_heads", "verdict",
    "retry_safe", "local_work_preserved", "server_integrity", "recovered", "recovery_calls", "recovery_bytes",
    "recovery_ms", "recovery_tokens", "server_repair",
)  # fmt: skip
"""What a report shows of a case."""


def play_faults(stage: Stage, builder: RowBuilder, rows: list[Row]) -> Row:
    """Play every case that was asked for and add them up; the control comes first, for it says what is usual."""
    prepare(stage, builder, rows)
    meter = Meter(stage)
    faults, transport = stage.spec.loop.faults, stage.spec.loop.transport
    cases = chosen_cases(faults, transport)
    n_usual = 1
    results: list[CaseResult] = []
    for case in cases:
        result = play_case(stage, builder, rows, case, meter, n_usual=n_usual)
        if case.name == CONTROL:
            result = _judged_control(result)
            n_usual = max(1, result.n_mutations or 1)
        rows.append(result.row)
        results.append(result)
    rows += [builder.hole(f"{name}.verdict", why) for name, why in cases_elsewhere(faults, transport).items()]
    return _total(stage, rows, cases, results) | network_fields(stage, meter.moved)


def _judged_control(result: CaseResult) -> CaseResult:
    """A publication that nothing disturbed must be a plain success, or nothing that follows is evidence."""
    if result.row.get("verdict") is not Verdict.TRUE_SUCCESS:
        result.row["returncode"] = 1
        result.row["stderr"] = f"the undisturbed publication is {result.row.get('verdict')}, not {Verdict.TRUE_SUCCESS}"
    return result


def _total(stage: Stage, rows: list[Row], cases: Sequence[FaultCase], results: Sequence[CaseResult]) -> Row:
    looked = [result.holds for result in results if result.holds is not None]
    holds = all(looked) if looked else None
    played = [result.row for result in results if "fault_case" in result.row]
    invalid = [str(row["fault_case"]) for row in played if row["valid"] is not True]
    failures = [
        f"{row['fault_case']}: {failure}"
        for row, result in zip((result.row for result in results), results, strict=True)
        if result.holds is False
        for failure in _failures(row)
    ]
    total = common_total(stage, rows, [f"{case.name}.verdict" for case in cases], holds=holds, failures=failures)
    total |= {
        "fault_cases": [case.name for case in cases],
        "invalid_cases": invalid,
        "verdicts": dict(sorted(Counter(str(row["verdict"]) for row in played if row.get("verdict")).items())),
        "publications": [{name: row.get(name) for name in MATRIX_FIELDS} for row in played],
        "acquisition_models": {"case": stage.subject.acquisition_models[Manner.FRESH]},
    }
    if holds is not True:
        total["returncode"] = 1
    if total["returncode"] != 0:
        problems = [f"no evidence: {', '.join(invalid)}"] * bool(invalid) + failures
        total["stderr"] = "publication_under_fault_failed" + (f": {'; '.join(problems)}" if problems else "")
    return total


def _failures(row: Row) -> list[str]:
    found = cast("list[str]", row.get("retry_failures") or [])
    return found or [str(row.get("recovery_reason"))]
