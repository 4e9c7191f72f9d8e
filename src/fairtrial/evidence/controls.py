"""Whether a task's controls held: nothing must not pass, the reference must, and no cheat may. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fairtrial.evidence.endings import is_void, kind_of
from fairtrial.evidence.rows import Row, flag, required_text

__all__ = ["ControlVerdict", "Held", "judge_controls"]

REFERENCE = "reference"


class Held(StrEnum):
    """What a control showed."""

    HELD = "held"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlVerdict:
    """One control of one task.

    Attributes:
        task: The task.
        control: `nop`, `reference`, or `cheat-…`.
        held: Whether it showed what it must.
        runs: Attempts that count.
        passed: Of these, how many the oracle passed.
        flaky: The same reference passed and failed.
        reason: What is wrong, in words; "" when it held.
    """

    task: str
    control: str
    held: Held
    runs: int
    passed: int
    flaky: bool
    reason: str


def judge_controls(rows: Iterable[Row]) -> tuple[ControlVerdict, ...]:
    """Judge every control, in the order of the rows."""
    cells: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for index, row in enumerate(rows):
        cells[required_text(row, "task", index=index), required_text(row, "arm", index=index)].append(row)
    return tuple(_judge(task, control, found) for (task, control), found in cells.items())


def _judge(task: str, control: str, rows: list[Row]) -> ControlVerdict:
    valid = [row for row in rows if not is_void(row)]
    passed = sum(flag(row.get("oracle_passed")) is True for row in valid)
    resolved = sum(flag(row.get("resolved")) is True and kind_of(row) is None for row in valid)
    held, reason = Held.HELD, ""
    if not valid:
        kinds = ", ".join(sorted({str(kind_of(row)) for row in rows}))
        held, reason = Held.UNKNOWN, f"it could not be tried: {kinds}"
    elif control == REFERENCE and resolved < len(valid):
        held, reason = Held.FAILED, _why_reference(valid, resolved=resolved)
    elif control != REFERENCE and passed:
        held, reason = Held.FAILED, "the oracle passes what solves nothing"
    elif control != REFERENCE and any(flag(row.get("oracle_passed")) is None for row in valid):
        held, reason = Held.UNKNOWN, "the oracle was not asked"
    elif len(valid) < len(rows):
        held, reason = Held.UNKNOWN, f"{len(rows) - len(valid)} of {len(rows)} runs are void"
    flaky = control == REFERENCE and 0 < resolved < len(valid)
    return ControlVerdict(
        task=task, control=control, held=held, runs=len(valid), passed=passed, flaky=flaky, reason=reason
    )


def _why_reference(valid: list[Row], *, resolved: int) -> str:
    details = sorted({_detail(row) for row in valid if kind_of(row) is not None})
    if resolved:
        return f"flaky: the reference was resolved {resolved} of {len(valid)} times ({'; '.join(details)})"
    return f"the reference does not pass ({'; '.join(details)})"


def _detail(row: Row) -> str:
    """Why a run was not resolved; of a failed check, which nobody hides, its last line too."""
    said = row.get("authored_test_output")
    last = (
        said.rstrip().rpartition("\n")[2] if isinstance(said, str) and row.get("authored_tests_passed") is False else ""
    )
    return f"{kind_of(row)}: {row.get('error_detail')}" + (f"; the check's last line: {last:.200}" if last else "")
