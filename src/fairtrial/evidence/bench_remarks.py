"""What a reader of agent-lane figures must know beside them: where they come from, and what makes them doubtful.

Fed row by row beside `bench.BenchFold`; keeps counts, never rows.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fairtrial.evidence.endings import is_void
from fairtrial.evidence.rows import Row, flag, text

__all__ = ["PROVENANCE_FIELDS", "CellRemarks", "RemarkFold", "Remarks"]

PROVENANCE_FIELDS: Final = (
    "model",
    "agent",
    "agent_version",
    "sandbox_backend",
    "fairtrial",
    "host",
    "kernel",
)
MOST_VALUES: Final = 10
NOTHING_TO_SAY: Final = frozenset({"held", "checking"})
"""What rows say of controls that held, and the rows of the check itself."""
UNRECORDED: Final = "unrecorded"


@dataclass(slots=True, kw_only=True)
class CellRemarks:
    """Runs of one arm on one task of which something is to be said; voids are left out.

    Attributes:
        tests_edited: The change edits tests.
        needs_its_tests: The oracle passes the change only with its own tests and settings.
        auto_loaded: The change adds or edits files that act by being there.
        disagreements: The agent's own words do not agree with the wire.
        other_models: A model answered that the arm does not name.
        egress_refused: A request asked for what the arm does not grant.
    """

    tests_edited: int = 0
    needs_its_tests: int = 0
    auto_loaded: int = 0
    disagreements: int = 0
    other_models: int = 0
    egress_refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remarks:
    """All of it.

    Attributes:
        cells: By task and arm.
        provenance: Values of each field of `PROVENANCE_FIELDS` that occur, at most ten each.
        without_controls: Tasks whose controls are not known to hold, with what is known.
        scripted: Rows whose model was a script.
        environment_differs: By task, what the arms saw differently that none of them declares.
    """

    cells: Mapping[str, Mapping[str, CellRemarks]] = field(default_factory=dict[str, Mapping[str, CellRemarks]])
    provenance: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    without_controls: Mapping[str, str] = field(default_factory=dict[str, str])
    scripted: int = 0
    environment_differs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


class RemarkFold:
    """Reads rows one by one."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[str, CellRemarks]] = {}
        self._provenance: dict[str, Counter[str]] = {name: Counter() for name in PROVENANCE_FIELDS}
        self._controls: dict[str, str] = {}
        self._scripted = 0
        self._environments: dict[str, dict[str, set[str]]] = {}

    def add(self, row: Row, *, task: str, arm: str) -> None:
        """Take one row."""
        known = text(row.get("controls")) or UNRECORDED
        if known not in NOTHING_TO_SAY:
            self._controls[task] = known
        self._scripted += flag(row.get("scripted_model")) is True
        for name, values in self._provenance.items():
            value = text(row.get(name))
            if value is not None and (value in values or len(values) < MOST_VALUES):
                values[value] += 1
        if is_void(row):
            return
        cell = self._cells.setdefault(task, {}).setdefault(arm, CellRemarks())
        cell.tests_edited += _is_nonempty(row.get("tests_edited"))
        cell.needs_its_tests += (
            flag(row.get("oracle_passed")) is True and flag(row.get("oracle_passed_source_only")) is False
        )
        cell.auto_loaded += _is_nonempty(row.get("auto_loaded"))
        cell.disagreements += _is_nonempty(row.get("integrity_flags"))
        wire = row.get("wire")
        if isinstance(wire, dict):
            cell.other_models += _is_nonempty(wire.get("other_models"))  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]
            cell.egress_refused += _is_nonempty(wire.get("egress_refused"))  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]
        environment = row.get("environment_undeclared")
        if isinstance(environment, dict):
            seen = self._environments.setdefault(task, {})
            for name, value in environment.items():  # pyright: ignore[reportUnknownVariableType]
                if len(shown := seen.setdefault(str(name), set())) < MOST_VALUES:  # pyright: ignore[reportUnknownArgumentType]
                    shown.add(repr(value))  # pyright: ignore[reportUnknownArgumentType]

    def remarks(self) -> Remarks:
        """Give what was found."""
        return Remarks(
            cells={task: dict(sorted(arms.items())) for task, arms in sorted(self._cells.items())},
            provenance={name: tuple(sorted(values)) for name, values in self._provenance.items() if values},
            without_controls=dict(sorted(self._controls.items())),
            scripted=self._scripted,
            environment_differs={
                task: tuple(sorted(name for name, values in seen.items() if len(values) > 1))
                for task, seen in sorted(self._environments.items())
                if any(len(values) > 1 for values in seen.values())
            },
        )


def _is_nonempty(value: object) -> bool:
    return isinstance(value, list) and bool(value)  # pyright: ignore[reportUnknownArgumentType]
