"""What a reader of agent-lane figures must know beside them: where they come from, and what makes them doubtful.

Fed row by row beside `bench.BenchFold`; keeps counts, never rows.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, cast

from fairtrial.evidence.endings import is_void
from fairtrial.evidence.rows import Row, flag, text

__all__ = [
    "HISTORY_PROBE",
    "PROVENANCE_FIELDS",
    "REMOTE_FETCH",
    "TASK_FIELDS",
    "CellRemarks",
    "Disagreement",
    "RemarkFold",
    "Remarks",
]

HISTORY_PROBE: Final = "history_probe"
"""The model tried to read a history that its workspace does not have."""
REMOTE_FETCH: Final = "remote_fetch"
"""The model tried to fetch from elsewhere."""
TRIED: Final = frozenset({HISTORY_PROBE, REMOTE_FETCH})

PROVENANCE_FIELDS: Final = (
    "model",
    "effort",
    "agent",
    "agent_version",
    "sandbox_backend",
    "usage_source",
    "cost_source",
    "price_table",
    "fairtrial",
    "host",
    "platform",
    "timestamp_utc",
)
TASK_FIELDS: Final = (
    "task_base_sha",
    "sanitized_task_sha",
    "task_prompt_digest",
    "oracle_digest",
    "isolation",
    "controls",
    "setup_network",
)
MOST_VALUES: Final = 10
MOST_DISAGREEMENTS: Final = 200
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
        probes: The model tried to read a history, or to fetch from elsewhere.
        same_change: The change is byte for byte that of a run of another arm; of runs that a model had, not a script.
    """

    tests_edited: int = 0
    needs_its_tests: int = 0
    auto_loaded: int = 0
    disagreements: int = 0
    other_models: int = 0
    egress_refused: int = 0
    probes: int = 0
    same_change: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Where an agent's own words do not agree with what we saw, in one run.

    Attributes:
        task: The task.
        arm: The arm.
        run: The run; None where the row does not say.
        what: Phase and subject, such as `work: usage`.
        wire: What we saw.
        agent: What the agent says of it.
    """

    task: str
    arm: str
    run: int | None
    what: str
    wire: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remarks:
    """All of it.

    Attributes:
        cells: By task and arm.
        tasks: By task, the values of each field of `TASK_FIELDS` that occur, at most ten each.
        disagreements: The first 200 disagreements between the wire and agents; the counts in `cells` have all.
        provenance: Values of each field of `PROVENANCE_FIELDS` that occur, at most ten each.
        without_controls: Tasks whose controls are not known to hold, with what is known.
        scripted: Rows whose model was a script.
        uncontained: Rows of trials that ran without a sandbox.
        environment_differs: By task, what the arms saw differently that none of them declares.
    """

    cells: Mapping[str, Mapping[str, CellRemarks]] = field(default_factory=dict[str, Mapping[str, CellRemarks]])
    tasks: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict[str, Mapping[str, tuple[str, ...]]])
    disagreements: tuple[Disagreement, ...] = ()
    provenance: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    without_controls: Mapping[str, str] = field(default_factory=dict[str, str])
    scripted: int = 0
    uncontained: int = 0
    environment_differs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


class RemarkFold:
    """Reads rows one by one."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[str, CellRemarks]] = {}
        self._tasks: dict[str, dict[str, set[str]]] = {}
        self._disagreements: list[Disagreement] = []
        self._provenance: dict[str, Counter[str]] = {name: Counter() for name in PROVENANCE_FIELDS}
        self._controls: dict[str, str] = {}
        self._scripted = 0
        self._uncontained = 0
        self._environments: dict[str, dict[str, set[str]]] = {}
        self._changes: dict[tuple[str, str], Counter[str]] = {}

    def add(self, row: Row, *, task: str, arm: str) -> None:
        """Take one row."""
        known = text(row.get("controls")) or UNRECORDED
        if known not in NOTHING_TO_SAY:
            self._controls[task] = known
        self._scripted += flag(row.get("scripted_model")) is True
        self._uncontained += flag(row.get("sandboxed")) is False
        for name, values in self._provenance.items():
            value = text(row.get(name))
            if value is not None and (value in values or len(values) < MOST_VALUES):
                values[value] += 1
        of_task = self._tasks.setdefault(task, {name: set() for name in TASK_FIELDS})
        for name, known_values in of_task.items():
            if row.get(name) is not None and len(known_values) < MOST_VALUES:
                known_values.add(str(row[name]))
        if is_void(row):
            return
        self._disagreements += islice(
            _disagreements(row, task=task, arm=arm), MOST_DISAGREEMENTS - len(self._disagreements)
        )
        cell = self._cells.setdefault(task, {}).setdefault(arm, CellRemarks())
        cell.tests_edited += _is_nonempty(row.get("tests_edited"))
        cell.needs_its_tests += (
            flag(row.get("oracle_passed")) is True and flag(row.get("oracle_passed_source_only")) is False
        )
        cell.auto_loaded += _is_nonempty(row.get("auto_loaded"))
        flags = _flags(row)
        cell.disagreements += any(each not in TRIED for each in flags)
        cell.probes += any(each in TRIED for each in flags)
        change = text(row.get("diff_digest"))
        if change is not None and flag(row.get("scripted_model")) is not True:
            self._changes.setdefault((task, change), Counter())[arm] += 1
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
        same: Counter[tuple[str, str]] = Counter()
        for (task, _), runs in self._changes.items():
            if len(runs) > 1:
                same.update({(task, arm): n_runs for arm, n_runs in runs.items()})
        return Remarks(
            cells={
                task: {arm: replace(cell, same_change=same[task, arm]) for arm, cell in sorted(arms.items())}
                for task, arms in sorted(self._cells.items())
            },
            tasks={
                task: {name: tuple(sorted(values)) for name, values in found.items() if values}
                for task, found in sorted(self._tasks.items())
            },
            disagreements=tuple(self._disagreements),
            provenance={name: tuple(sorted(values)) for name, values in self._provenance.items() if values},
            without_controls=dict(sorted(self._controls.items())),
            scripted=self._scripted,
            uncontained=self._uncontained,
            environment_differs={
                task: tuple(sorted(name for name, values in seen.items() if len(values) > 1))
                for task, seen in sorted(self._environments.items())
                if any(len(values) > 1 for values in seen.values())
            },
        )


def _disagreements(row: Row, *, task: str, arm: str) -> Iterator[Disagreement]:
    run = row.get("run")
    for flagged in _flags(row):
        if flagged in TRIED:
            continue
        phase, _, subject = flagged.partition(": ")
        wire, agent = _both_sides(row, phase, subject)
        number = run if isinstance(run, int) else None
        yield Disagreement(task=task, arm=arm, run=number, what=flagged, wire=wire, agent=agent)


def _flags(row: Row) -> list[str]:
    flags: object = row.get("integrity_flags")
    return [str(each) for each in cast("list[object]", flags)] if isinstance(flags, list) else []


def _both_sides(row: Row, phase: str, subject: str) -> tuple[str, str]:
    """What each side says; of an attempt with several sessions the wire's figures are those of all of them."""
    reported: object = row.get("reported_usage")
    claim: dict[str, object] = {}
    for each in cast("list[object]", reported) if isinstance(reported, list) else []:
        if isinstance(each, dict) and cast("dict[str, object]", each).get("phase") == phase:
            claim = cast("dict[str, object]", each)
    match subject.split(" ", maxsplit=1)[0]:
        case "usage":
            usage: object = claim.get("usage")
            said = cast("dict[str, object]", usage) if isinstance(usage, dict) else {}
            return _tokens(row), _tokens(said)
        case "cost":
            return f"{row.get('cost_usd')} USD", f"{claim.get('cost_usd')} USD"
        case "skill":
            return f"skills proven: {row.get('skill_invoked')}", f"skills used: {claim.get('skills_used')}"
        case "other":
            wire: object = row.get("wire")
            others: object = cast("dict[str, object]", wire).get("other_models") if isinstance(wire, dict) else None
            return f"models: {others}", f"asked for: {row.get('model')}"
        case "effort":
            return "told another effort, or none", f"asked for: {row.get('effort')}"
        case "says":
            is_left = subject.endswith("did not wait for")
            return "its last reply had not ended" if is_left else "a fault of the provider", "success"
        case _:
            return f"the {subject}", "nothing of it"


def _tokens(found: Mapping[str, object]) -> str:
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    return " + ".join("unknown" if found.get(name) is None else str(found[name]) for name in names) + " tokens"


def _is_nonempty(value: object) -> bool:
    return isinstance(value, list) and bool(value)  # pyright: ignore[reportUnknownArgumentType]
