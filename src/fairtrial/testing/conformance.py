"""Compares the product's answers with cases whose right answers were produced independently.

`python -m fairtrial.testing.conformance FILE.json` tells the kind of file by its content, computes each case with the
functions that `report`, `gate` and `loop` use, and compares every expected field. Numbers are equal within 1e-9
relative, all else exactly; fields that the answer has beyond the expected ones are ignored, missing ones are found.
It exits 0 only without a mismatch.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias, cast

from fairtrial.errors import FairtrialError, UsageError
from fairtrial.evidence.bench import BenchFold, first_trip_index
from fairtrial.evidence.gate import GatePolicy, decide, decision_fields
from fairtrial.evidence.loop import has_lane_failures, loop_summary, total_row
from fairtrial.evidence.publication import observe_client, publication_fields
from fairtrial.evidence.rows import Row
from fairtrial.report.bench import bench_report_json

__all__ = ["check_file", "compare", "main"]

RELATIVE_TOLERANCE: Final = 1e-9
BREAKER_LIMIT: Final = 3

Case: TypeAlias = Mapping[str, object]


def main(arguments: list[str]) -> int:
    """Check one file; print `N cases, M mismatches` and each mismatch with its path."""
    try:
        if len(arguments) != 1:
            raise UsageError("usage: python -m fairtrial.testing.conformance FILE.json")
        n_cases, mismatches = check_file(Path(arguments[0]))
    except FairtrialError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write("\n".join([f"{n_cases} cases, {len(mismatches)} mismatches", *mismatches]) + "\n")
    return 1 if mismatches else 0


def check_file(path: Path) -> tuple[int, list[str]]:
    """Give the number of cases and every mismatch.

    Raises:
        UsageError: The file cannot be read, holds no cases, or cases of no known kind.
    """
    try:
        cases: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        message = f"{path}: cannot read cases: {error}; give a JSON file of cases"
        raise UsageError(message) from error
    if not isinstance(cases, list) or not cases:
        message = f"{path}: no cases; give a JSON file with a nonempty list of cases"
        raise UsageError(message)
    mismatches: list[str] = []
    for index, case in enumerate(cast("list[object]", cases)):
        where = f"{path}: case {index}"
        if not isinstance(case, dict):
            message = f"{where}: a case must be an object"
            raise UsageError(message)
        known = cast("Case", case)
        expected, compute = _kind_of(known, where)
        try:
            answer = compute(known)
        except FairtrialError as error:
            message = f"{where}: {error}"
            raise UsageError(message) from error
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            message = f"{where}: cannot be computed: {error!r}; its rows lack what every row has"
            raise UsageError(message) from error
        mismatches += [f"case {index}{path_in_case}" for path_in_case in compare(expected, answer, "")]
    return len(cast("list[object]", cases)), mismatches


def compare(expected: object, answer: object, path: str) -> Iterator[str]:
    """Yield each place where the answer is not what was expected, as `path: expected …, got …`."""
    if isinstance(expected, dict):
        if not isinstance(answer, dict):
            yield f"{path}: expected an object, got {answer!r}"
            return
        fields = cast("dict[str, object]", answer)
        for key, value in cast("dict[str, object]", expected).items():
            if key in fields:
                yield from compare(value, fields[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}: expected {value!r}, got no such field"
    elif isinstance(expected, list):
        items = cast("list[object]", expected)
        if not isinstance(answer, list) or len(cast("list[object]", answer)) != len(items):
            yield f"{path}: expected {items!r}, got {answer!r}"
            return
        for index, (value, got) in enumerate(zip(items, cast("list[object]", answer), strict=True)):
            yield from compare(value, got, f"{path}[{index}]")
    elif not _equal(expected, answer):
        yield f"{path}: expected {expected!r}, got {answer!r}"


def _equal(expected: object, answer: object) -> bool:
    """Compare two leaves; a boolean is no number."""
    if isinstance(expected, bool) or isinstance(answer, bool) or not isinstance(expected, int | float):
        return expected == answer and isinstance(expected, bool) == isinstance(answer, bool)
    if not isinstance(answer, int | float):
        return False
    try:
        return math.isclose(expected, answer, rel_tol=RELATIVE_TOLERANCE, abs_tol=0)
    except OverflowError:  # an integer beyond every float
        return expected == answer


def _kind_of(case: Case, where: str) -> tuple[Case, Callable[[Case], dict[str, object]]]:
    """Give what the case expects and the function that answers it.

    Raises:
        UsageError: The case is of no known kind.
    """
    if "cli_row" in case:
        pair = {"observation": case.get("expected_observation"), "evidence": case.get("expected_evidence")}
        if not all(pair.values()):
            message = f"{where}: nothing is expected; give 'expected_observation' and 'expected_evidence'"
            raise UsageError(message)
        return pair, _answer_publication
    expected = case.get("expected")
    if not isinstance(expected, dict) or not expected:
        message = f"{where}: nothing is expected; a case needs a nonempty 'expected'"
        raise UsageError(message)
    known = cast("Case", expected)
    if "planned_operations" in case and "rows" in case:
        return known, _answer_loop
    if "records" in case:
        return known, _answer_gate if "incumbent_arm" in case else _answer_records
    message = f"{where}: neither records, gate, loop nor publication; see the table of kinds in the reference"
    raise UsageError(message)


def _answer_records(case: Case) -> dict[str, object]:
    rows = cast("list[Row]", case["records"])
    fold = BenchFold()
    for row in rows:
        fold.add(row)
    report = bench_report_json(fold.summary(), sealed=False)
    return {
        **report,
        **cast("dict[str, object]", report["outage"]),
        f"first_trip_index_at_streak_{BREAKER_LIMIT}": first_trip_index(rows, limit=BREAKER_LIMIT),
    }


def _answer_gate(case: Case) -> dict[str, object]:
    fold = BenchFold()
    for row in cast("list[Row]", case["records"]):
        fold.add(row)
    policy = GatePolicy(
        incumbent_arm=cast("str", case["incumbent_arm"]),
        candidate_arm=cast("str", case["candidate_arm"]),
        model=cast("str | None", case["model"]),
        metric=cast("str", case["metric"]),
    )
    return decision_fields(decide(fold.summary().aggregates, policy))


def _answer_loop(case: Case) -> dict[str, object]:
    rows = cast("list[Row]", case["rows"])
    total = total_row(cast("list[str]", case["planned_operations"]), rows)
    return {"total": total, "loop_summary": loop_summary(rows), "has_lane_failures": has_lane_failures([*rows, total])}


def _answer_publication(case: Case) -> dict[str, object]:
    client = observe_client(cast("Row", case["cli_row"]), json_requested=case["json_requested"] is True)
    return {
        "observation": {"reported_outcome": client.reported_outcome, "observation": client.observation},
        "evidence": publication_fields(client, cast("Row", case["evidence_in"])),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
