"""The worker's loop: one line in, one trial, one line out; the one place where a bug of ours becomes a void row."""

import json
import logging
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import TypeAdapter, ValidationError

from fairtrial.config.names import require_known, show_text
from fairtrial.errors import ConfigError, HostError
from fairtrial.host.clock import rfc3339, utc_now
from fairtrial.host.files import write_durably
from fairtrial.host.life import guard_life, kill_strays
from fairtrial.loop.rows import RowBuilder
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.trial import TrialRecord, run_loop_trial
from fairtrial.model.trial import TrialSpec
from fairtrial.store.attempts import (
    INTENT_SCHEMA,
    MAX_ATTEMPT,
    OUTCOME_SCHEMA,
    describe_artifacts,
    write_intent,
    write_outcome,
)
from fairtrial.store.layout import Results
from fairtrial.sweep.resolve import new_subject

__all__ = ["SPEC", "Answer", "parse_spec", "run_attempt", "serve"]

LOG: Final = logging.getLogger(__name__)
SPEC: Final[TypeAdapter[TrialSpec]] = TypeAdapter(TrialSpec)
_SPEC_REMEDY: Final = "send a spec as the sweep writes it: see the reference of trial specs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a worker says of one attempt.

    Attributes:
        key: The trial.
        attempt: The attempt.
        error: Why its outcome could not be written; None when it is on disk.
    """

    key: str
    attempt: int
    error: str | None = None

    def as_line(self) -> bytes:
        """One JSON line."""
        return (
            json.dumps({"done": True, "key": self.key, "attempt": self.attempt, "error": self.error}).encode() + b"\n"
        )


def parse_spec(data: bytes, *, path: Path) -> TrialSpec:
    """Read a trial's spec.

    Args:
        data: One JSON object.
        path: Where it was read, for the message.

    Raises:
        ConfigError: It is none, or asks for what is not there.
    """
    try:
        spec = SPEC.validate_json(data)
    except ValidationError as problem:
        first = problem.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = show_text(f"{key}: {first['msg']}" if key else first["msg"])
        raise ConfigError(f"{message}; {_SPEC_REMEDY}", path=path, key=key or None) from None
    if not 1 <= spec.attempt <= MAX_ATTEMPT:
        message = f"attempt: {spec.attempt} is not between 1 and {MAX_ATTEMPT}; {_SPEC_REMEDY}"
        raise ConfigError(message, path=path, key="attempt")
    require_known(spec.loop.scenario, SCENARIOS, what="scenario", where=f"{path}: loop.scenario")
    return spec


def serve(stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Run trials until the input ends. The guard ends this process and everything below it when the sweep is gone.

    Raises:
        ConfigError: A line is no spec; the trials before it were run and answered.
    """
    guard_life(stdin.fileno())
    for number, line in enumerate(iter(stdin.readline, b""), start=1):
        spec = parse_spec(line, path=Path(f"standard input:{number}"))
        stdout.write(run_attempt(spec).as_line())
        stdout.flush()
    return 0


def run_attempt(spec: TrialSpec) -> Answer:
    """One attempt: intent, trial, artifacts, outcome, in that order, each durable before the next."""
    results = Results(root=Path(spec.results))
    identity = {"sweep": spec.sweep, "key": spec.key, "attempt": spec.attempt}
    numbers = {"plan_index": spec.plan_index, "sweep_pass": spec.sweep_pass}
    try:
        directory = write_intent(results, {"schema": INTENT_SCHEMA, **identity, **numbers, "begun_utc": _now()})
        record = _record(spec)
        rows = [dict(row) for row in record.rows]
        rows[-1]["stray_processes"] = kill_strays()
        for name, content in record.artifacts.items():
            write_durably(directory / name, content, mode=0o644)
        ending = {"artifacts": describe_artifacts(directory), "rows": rows, "ended_utc": _now()}
        write_outcome(results, {"schema": OUTCOME_SCHEMA, **identity, **ending})
    except (HostError, OSError) as problem:
        return Answer(key=spec.key, attempt=spec.attempt, error=str(problem))
    return Answer(key=spec.key, attempt=spec.attempt)


def _record(spec: TrialSpec) -> TrialRecord:
    try:
        return run_loop_trial(spec, new_subject(spec.loop.variant))
    except Exception as bug:  # noqa: BLE001 - the one broad except of a trial: our bug voids the trial and the sweep goes on
        LOG.warning("%s: %s", type(bug).__name__, bug)  # the traceback is an artifact of the attempt
        scenario = SCENARIOS[spec.loop.scenario]
        row = RowBuilder.of(spec, scenario).void(scenario.stem, "unknown", f"{type(bug).__name__}: {bug}")
        return TrialRecord(rows=(row,), artifacts={"exception.txt": "".join(traceback.format_exception(bug)).encode()})


def _now() -> str:
    return rfc3339(utc_now())
