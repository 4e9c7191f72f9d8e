"""The worker's loop: one line in, one trial, one line out; the one place where a bug of ours becomes a void row."""

import json
import logging
import os
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from pydantic import TypeAdapter, ValidationError

from fairtrial.bench.node import Node
from fairtrial.bench.rows import broken_row, short_row, void_row
from fairtrial.bench.trial import run_bench_trial
from fairtrial.config.names import require_known, show_text
from fairtrial.errors import ConfigError, HostError
from fairtrial.evidence.endings import EndingKind
from fairtrial.host.clock import rfc3339, utc_now
from fairtrial.host.files import write_durably
from fairtrial.host.life import guard_life, kill_strays
from fairtrial.loop.rows import RowBuilder
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.trial import TrialRecord, run_loop_trial
from fairtrial.model.trial import AnySpec, BenchSpec, TrialSpec
from fairtrial.store.attempts import (
    INTENT_SCHEMA,
    MAX_ATTEMPT,
    OUTCOME_SCHEMA,
    describe_artifacts,
    write_intent,
    write_outcome,
)
from fairtrial.store.chain import RowTooLongError
from fairtrial.store.layout import Results, explain_failure
from fairtrial.store.redact import Redactor
from fairtrial.store.reserve import keeping_reserve
from fairtrial.sweep.resolve import new_subject

__all__ = ["SPEC", "Answer", "Desk", "parse_spec", "run_attempt", "serve"]

LOG: Final = logging.getLogger(__name__)
SPEC: Final[TypeAdapter[AnySpec]] = TypeAdapter(AnySpec)
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


def parse_spec(data: bytes, *, path: Path) -> AnySpec:
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
    if isinstance(spec, TrialSpec):
        require_known(spec.loop.scenario, SCENARIOS, what="scenario", where=f"{path}: loop.scenario")
    return spec


def serve(stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Run trials until the input ends. The guard ends this process and everything below it when the sweep is gone.

    Raises:
        ConfigError: A line is no spec; the trials before it were run and answered.
    """
    guard_life(stdin.fileno())
    with Desk() as desk:
        for number, line in enumerate(iter(stdin.readline, b""), start=1):
            spec = parse_spec(line, path=Path(f"standard input:{number}"))
            stdout.write(run_attempt(spec, desk).as_line())
            stdout.flush()
    return 0


class Desk:
    """What a worker keeps between trials; leaving its `with` block lets go of it."""

    def __init__(self) -> None:
        self._node: Node | None = None

    def node(self, spec: BenchSpec) -> Node:
        """The agent lane's part, made for its first trial.

        Raises:
            HostError: It cannot be made.
        """
        if self._node is None:
            self._node = Node.open(spec)
        return self._node

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._node is not None:
            self._node.close()


def run_attempt(spec: AnySpec, desk: Desk) -> Answer:
    """One attempt: intent, trial, artifacts, outcome, in that order, each durable before the next."""
    results = Results(root=Path(spec.results))
    identity = {"sweep": spec.sweep, "key": spec.key, "attempt": spec.attempt}
    numbers = {"plan_index": spec.plan_index, "sweep_pass": spec.sweep_pass}
    try:
        directory = write_intent(results, {"schema": INTENT_SCHEMA, **identity, **numbers, "begun_utc": _now()})
        record = _record(spec, desk, directory)
        rows = [dict(row) for row in record.rows]
        rows[-1]["stray_processes"] = kill_strays()
        for name, content in record.artifacts.items():
            keeping_reserve(results, partial(write_durably, directory / name, content, mode=0o644))
        ending = {"artifacts": describe_artifacts(directory), "rows": rows, "ended_utc": _now()}
        outcome = {"schema": OUTCOME_SCHEMA, **identity, **ending}
        try:
            write_outcome(results, outcome)
        except RowTooLongError as problem:
            write_outcome(results, outcome | {"rows": [_short_row(spec, rows[-1], str(problem))]})
    except HostError as problem:
        return Answer(key=spec.key, attempt=spec.attempt, error=str(problem))
    except OSError as problem:
        return Answer(key=spec.key, attempt=spec.attempt, error=str(explain_failure(results.root, problem)))
    return Answer(key=spec.key, attempt=spec.attempt)


def _record(spec: AnySpec, desk: Desk, directory: Path) -> TrialRecord:
    try:
        match spec:
            case BenchSpec():
                return TrialRecord(rows=(_bench_row(spec, desk, directory),))
            case TrialSpec():
                return run_loop_trial(spec, new_subject(spec.loop.variant))
    except Exception as bug:  # noqa: BLE001 - the one broad except of a trial: our bug voids the trial and the sweep goes on
        # What a bug says may be what a tool printed.
        given = spec.loop.credential_env if isinstance(spec, TrialSpec) else ()
        redactor = Redactor(os.environ.get(name, "") for name in given)
        said = redactor.redact_text(f"{type(bug).__name__}: {bug}")
        LOG.warning("%s", said)  # the traceback is an artifact of the attempt
        trace = "".join(traceback.format_exception(bug))
        artifacts = {"exception.txt": redactor.redact_text(trace).encode()}
        return TrialRecord(rows=(_bug_row(spec, said, directory),), artifacts=artifacts)


def _bench_row(spec: BenchSpec, desk: Desk, directory: Path) -> dict[str, object]:
    try:
        node = desk.node(spec)
    except HostError as problem:
        return void_row(spec, EndingKind.INFRA_ERROR, str(problem))
    return run_bench_trial(node, spec, directory)


def _bug_row(spec: AnySpec, detail: str, directory: Path) -> dict[str, object]:
    if isinstance(spec, BenchSpec):
        return broken_row(spec, EndingKind.UNKNOWN, detail, directory)
    scenario = SCENARIOS[spec.loop.scenario]
    return RowBuilder.of(spec, scenario).void(scenario.stem, EndingKind.UNKNOWN, detail)


def _short_row(spec: AnySpec, last: dict[str, object], detail: str) -> dict[str, object]:
    """The one row of an attempt of which one is too long: what a session made so counts against its arm."""
    LOG.warning("%s: %s", spec.key, detail)
    if isinstance(spec, BenchSpec):
        row = short_row(spec, last, detail)
    else:
        scenario = SCENARIOS[spec.loop.scenario]
        row = RowBuilder.of(spec, scenario).void(scenario.stem, EndingKind.LIMIT_EXCEEDED, detail)
        row["stray_processes"] = last["stray_processes"]
    return row


def _now() -> str:
    return rfc3339(utc_now())
