"""Where everything of an evolution lies, and the two records that bracket each step: intent, then outcome.

After a kill at any moment the outcomes say what is done, and a step with an intent alone is done again or finished: a
sweep goes on by its own records, everything else is made anew.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evolve.values import OUTCOME_SCHEMA, Step, StepKind, StepOutcome
from fairtrial.host.clock import rfc3339
from fairtrial.host.files import fsync_directory, write_once
from fairtrial.store.documents import FILE_MODE, parse_document, read_bytes, read_document, write_document
from fairtrial.store.layout import create_results, explain_failure, explain_refusal
from fairtrial.store.strict_json import JsonObject, encode_object

__all__ = [
    "EVOLUTION_SCHEMA",
    "INTENT_SCHEMA",
    "EvolutionFiles",
    "GenerationFiles",
    "create_evolution",
    "is_evolution",
    "open_evolution",
    "read_evolution",
    "read_outcomes",
    "write_evolution",
    "write_intent",
    "write_outcome",
]

EVOLUTION_SCHEMA: Final = "evolution/1"
INTENT_SCHEMA: Final = "evolve-intent/1"
_OUTCOME: Final = TypeAdapter(StepOutcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFiles:
    """The paths of one generation.

        <root>/
          propose.intent.json propose.outcome.json   and so of each other step
          proposal/
            evidence/ tasks.yaml arms.yaml …         what the proposer was given, and its task
            results/                                 its session, as a results directory of one trial
          candidate/                                 the frozen overlay
          proposal.md                                what the proposer says of it
          measure/                                   results directory on the learning tasks
          confirm/                                   results directory on the holdout tasks
          measure-1/ confirm-1/ …                    the same once more, after stops in its trials: see decision 0015

    Attributes:
        root: The generation's directory.
    """

    root: Path

    @property
    def proposal(self) -> Path:
        """What the proposer was given, and its session."""
        return self.root / "proposal"

    @property
    def candidate(self) -> Path:
        """The frozen overlay."""
        return self.root / "candidate"

    @property
    def proposal_md(self) -> Path:
        """What the proposer says of its candidate."""
        return self.root / "proposal.md"

    def results(self, kind: StepKind, repeat: int = 0) -> Path:
        """The results directory of a step that measures; `repeat` counts how often it was measured before."""
        if kind is StepKind.PROPOSE:
            return self.proposal / "results"
        return self.root / (f"{kind}-{repeat}" if repeat else str(kind))

    def last_repeat(self, kind: StepKind) -> int:
        """How often a step was measured before its last results directory; 0 when there is none."""
        repeat = 0
        while self.results(kind, repeat + 1).exists():
            repeat += 1
        return repeat

    def intent(self, kind: StepKind) -> Path:
        """Written before a step."""
        return self.root / f"{kind}.intent.json"

    def outcome(self, kind: StepKind) -> Path:
        """Written when a step has ended."""
        return self.root / f"{kind}.outcome.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionFiles:
    """The paths of one evolution.

    Attributes:
        root: Its directory, held (flock) by the live evolution.
    """

    root: Path

    @property
    def evolve_json(self) -> Path:
        """What was asked and bound, written first."""
        return self.root / "evolve.json"

    def generation(self, number: int) -> GenerationFiles:
        """One generation."""
        return GenerationFiles(root=self.root / "generations" / str(number))


def create_evolution(out: Path | None, *, now: datetime, base: Path) -> EvolutionFiles:
    """Make a directory that nobody else uses.

    Raises:
        UsageError: `out` is in use or may not be written.
        HostError: The file system refuses.
    """
    results = create_results(out, lane="evolve", now=now, base=base)
    try:
        results.trials.rmdir()  # an evolution has generations where a sweep has trials
        (results.root / "generations").mkdir()
        fsync_directory(results.root)
    except OSError as error:
        raise explain_refusal(results.root, error) from error
    return EvolutionFiles(root=results.root)


def is_evolution(path: Path) -> bool:
    """Tell whether a directory holds an evolution."""
    return os.path.lexists(EvolutionFiles(root=path).evolve_json)


def open_evolution(path: Path) -> EvolutionFiles:
    """Open an existing one.

    Raises:
        UsageError: It is none.
    """
    if not is_evolution(path):
        raise UsageError(f"{path}: not an evolution (it has no evolve.json); name one that fairtrial evolve made")
    return EvolutionFiles(root=path)


def write_evolution(files: EvolutionFiles, document: Mapping[str, object]) -> None:
    """Write `evolve.json` durably, before anything else.

    Raises:
        HostError: The file system refuses.
    """
    try:
        write_document(files.evolve_json, document)
    except OSError as error:
        raise explain_failure(files.root, error) from error


def read_evolution(files: EvolutionFiles) -> JsonObject:
    """Read `evolve.json`.

    Raises:
        IntegrityError: It is damaged, or of a schema that is not known here.
    """
    return read_document(files.evolve_json, schema=EVOLUTION_SCHEMA)


def write_intent(files: EvolutionFiles, step: Step, *, evolution: str, now: datetime) -> GenerationFiles:
    """Note that a step begins; one that was begun before keeps its first note.

    Raises:
        HostError: The file system refuses.
    """
    here = files.generation(step.generation)
    intent = {"schema": INTENT_SCHEMA, "evolution": evolution, "generation": step.generation, "step": step.kind}
    try:
        if not here.root.is_dir():
            here.root.mkdir()
            fsync_directory(here.root.parent)
        if not here.intent(step.kind).exists():
            write_document(here.intent(step.kind), {**intent, "begun_utc": rfc3339(now)})
    except OSError as error:
        raise explain_failure(files.root, error) from error
    return here


def write_outcome(files: EvolutionFiles, outcome: StepOutcome) -> None:
    """End a step: once this returns, it is never done again.

    Raises:
        HostError: The file system refuses.
    """
    path = files.generation(outcome.generation).outcome(outcome.step)
    data = encode_object(_OUTCOME.dump_python(outcome, mode="json")) + b"\n"
    try:
        write_once(path, data, mode=FILE_MODE)
    except OSError as error:
        raise explain_failure(files.root, error) from error


def read_outcomes(files: EvolutionFiles, *, evolution: str) -> tuple[StepOutcome, ...]:
    """Read what the steps so far came to, in order.

    Raises:
        IntegrityError: A record is damaged, or of another evolution, or one is missing before a later one.
    """
    found: list[StepOutcome] = []
    numbers = sorted(int(path.name) for path in (files.root / "generations").iterdir() if path.name.isdecimal())
    for number in numbers:
        here = files.generation(number)
        for kind in StepKind:
            try:
                data = read_bytes(here.outcome(kind))
            except FileNotFoundError:
                continue
            outcome = _parse_outcome(here.outcome(kind), data)
            if (outcome.evolution, outcome.generation, outcome.step) != (evolution, number, kind):
                raise IntegrityError(f"{here.outcome(kind)}: belongs to another step; believe nothing derived from it")
            found.append(outcome)
    proposed = [outcome.generation for outcome in found if outcome.step is StepKind.PROPOSE]
    if proposed != list(range(len(proposed))) or {outcome.generation for outcome in found} != set(proposed):
        raise IntegrityError(f"{files.root}: the record of a generation is missing; restore it from a copy")
    return tuple(found)


def _parse_outcome(path: Path, data: bytes) -> StepOutcome:
    parse_document(path, data, schema=OUTCOME_SCHEMA)
    try:
        return _OUTCOME.validate_json(data, strict=True, extra="forbid")
    except ValidationError as problem:
        detail = problem.errors(include_url=False)[0]
        where = ".".join(map(str, detail["loc"]))
        raise IntegrityError(f"{path}: {where}: {detail['msg']}; it is not what was written") from problem
