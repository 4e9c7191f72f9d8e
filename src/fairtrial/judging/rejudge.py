"""All that it takes to repeat a verdict, as one JSON object: which tree, which oracle, in what surroundings, said what.

Pure: whoever repeats it builds the tree from the commit and the stored change, finds the captured files by their
digests, and calls `judge_oracle` again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fairtrial.errors import IntegrityError
from fairtrial.evidence.endings import EndingKind
from fairtrial.judging.values import (
    CapturedFile,
    Counts,
    Isolation,
    OracleSpec,
    OracleVerdict,
    Place,
    Proof,
    Runner,
    Surroundings,
)
from fairtrial.model.sandbox import Limits

__all__ = [
    "SCHEMA",
    "JudgedFile",
    "JudgedMount",
    "Judgement",
    "Part",
    "describe_judgement",
    "encode_judgement",
    "oracle_of",
    "parse_judgement",
    "verdict_changes",
]

SCHEMA: Final = "judgement/1"


class Part(StrEnum):
    """How much of the credited change the tree holds."""

    WHOLE = "whole"
    SOURCE_ONLY = "source-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFile:
    """A file of the oracle.

    Attributes:
        target: Where it belongs.
        place: Below which root.
        sha256: Digest of its bytes, by which it is found again.
        n_bytes: Their number.
    """

    target: str
    place: Place
    sha256: str
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedMount:
    """What was mounted beside the tree.

    Attributes:
        source: On the host.
        target: Inside.
    """

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One run of an oracle, and what it said.

    Attributes:
        schema: `judgement/1`.
        commit: The template's commit.
        change_sha256: Digest of the stored change that was made in it.
        part: How much of that.
        command: The oracle's command, or its runner's arguments.
        runner: Shipped runner, or None.
        expect_tests: Tests that had to run, or None.
        isolation: Where the candidate's code ran.
        files: The oracle's files.
        env: Environment.
        mounts: Tool chains and dependencies.
        limits: What it might use.
        passed: It passed.
        kind: Why not, as a row tells it.
        proof: Whether it proved that it finished; None when it was not run.
        counts: What a runner counted.
        restored: Paths of the change that it ran without.
        returncode: Exit status; None when there is none.
    """

    schema: str
    commit: str
    change_sha256: str
    part: Part
    command: str
    runner: Runner | None
    expect_tests: int | None
    isolation: Isolation
    files: tuple[JudgedFile, ...]
    env: Mapping[str, str]
    mounts: tuple[JudgedMount, ...]
    limits: Limits
    passed: bool
    kind: EndingKind | None
    proof: Proof | None
    counts: Counts | None
    restored: tuple[str, ...]
    returncode: int | None


_JUDGEMENT: Final[TypeAdapter[Judgement]] = TypeAdapter(Judgement)


def describe_judgement(
    oracle: OracleSpec,
    surroundings: Surroundings,
    verdict: OracleVerdict,
    *,
    commit: str,
    change_sha256: str,
    part: Part,
) -> Judgement:
    """Describe a run."""
    files = [
        JudgedFile(target=file.target, place=file.place, sha256=file.sha256, n_bytes=file.n_bytes)
        for file in oracle.files
    ]
    mounts = [JudgedMount(source=str(bind.source), target=bind.target) for bind in surroundings.binds]
    return Judgement(
        schema=SCHEMA,
        commit=commit,
        change_sha256=change_sha256,
        part=part,
        command=oracle.command,
        runner=oracle.runner,
        expect_tests=oracle.expect_tests,
        isolation=oracle.isolation,
        files=tuple(files),
        env=dict(surroundings.env),
        mounts=tuple(mounts),
        limits=surroundings.limits,
        passed=verdict.passed,
        kind=verdict.kind,
        proof=verdict.proof,
        counts=verdict.counts,
        restored=verdict.restored,
        returncode=verdict.returncode,
    )


def encode_judgement(judgement: Judgement) -> bytes:
    """Write it as JSON."""
    return _JUDGEMENT.dump_json(judgement, indent=1) + b"\n"


def parse_judgement(text: bytes) -> Judgement:
    """Read it back.

    Raises:
        IntegrityError: It is none, or of another schema.
    """
    try:
        judgement = _JUDGEMENT.validate_json(text, strict=True, extra="forbid")
    except ValidationError as problem:
        raise IntegrityError(
            f"not a judgement: {problem.errors()[0]['msg']}; believe nothing derived from it"
        ) from problem
    if judgement.schema != SCHEMA:
        raise IntegrityError(f"a judgement of schema {judgement.schema}; read it with the version that wrote it")
    return judgement


def oracle_of(judgement: Judgement, find: Callable[[str], Path]) -> OracleSpec:
    """Rebuild the oracle.

    Args:
        judgement: The run.
        find: From a digest to where its bytes are kept; whether they are there is found out on judging.
    """
    files = [
        CapturedFile(
            target=file.target, place=file.place, source=find(file.sha256), sha256=file.sha256, n_bytes=file.n_bytes
        )
        for file in judgement.files
    ]
    return OracleSpec(
        command=judgement.command,
        files=tuple(files),
        runner=judgement.runner,
        expect_tests=judgement.expect_tests,
        isolation=judgement.isolation,
    )


def verdict_changes(judgement: Judgement, again: OracleVerdict) -> tuple[str, ...]:
    """One sentence for each thing that the oracle now says differently."""
    pairs: tuple[tuple[str, object, object], ...] = (
        ("passed", judgement.passed, again.passed),
        ("kind", judgement.kind, again.kind),
        ("proof", judgement.proof, again.proof),
        ("counts", judgement.counts, again.counts),
        ("restored", judgement.restored, again.restored),
        ("returncode", judgement.returncode, again.returncode),
    )
    return tuple(f"{name} was {_show(before)}, is {_show(now)}" for name, before, now in pairs if before != now)


def _show(value: object) -> str:
    if isinstance(value, Counts):
        return f"{value.n_passed} passed, {value.n_failed} failed, {value.n_skipped} skipped"
    return str(value)
