"""The two files that bracket an attempt: `intent.json` before it may spend, `outcome.json` when it has ended.

An outcome's last member is the attempt's rows, each written as the journal will hold it but for the envelope.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairtrial.errors import IntegrityError
from fairtrial.host.files import fsync_directory, write_once
from fairtrial.store.artifacts import (
    EntryKind,
    FileDigest,
    NotRegularError,
    digest_file,
    read_digests,
    render_digest,
    walk,
)
from fairtrial.store.chain import EncodedRow, check_row, cut_row, encode_row
from fairtrial.store.documents import (
    FILE_MODE,
    BrokenDocumentError,
    move_aside,
    parse_document,
    read_bytes,
    read_document,
    write_document,
)
from fairtrial.store.layout import INTENT, OUTCOME, Results, explain_failure, trial_name
from fairtrial.store.reserve import keeping_reserve
from fairtrial.store.strict_json import JsonObject, MalformedJsonError, encode_object, parse_object, take, take_objects
from fairtrial.store.sweep_file import SweepFile

__all__ = [
    "INTENT_SCHEMA",
    "MAX_ATTEMPT",
    "OUTCOME_SCHEMA",
    "ROWS_BEGIN",
    "ROWS_END",
    "ROWS_SEPARATOR",
    "AttemptRecord",
    "Outcome",
    "describe_artifacts",
    "encode_outcome",
    "parse_outcome",
    "read_attempt_name",
    "read_outcome",
    "scan_attempts",
    "write_intent",
    "write_outcome",
]

INTENT_SCHEMA = "intent/1"
OUTCOME_SCHEMA = "outcome/1"
MAX_ATTEMPT = 999_999
ROWS_BEGIN = b',"rows":[\n'
ROWS_SEPARATOR = b",\n"
ROWS_END = b"\n]}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended, as its `outcome.json` tells it.

    Attributes:
        sweep: Id of the sweep.
        key: Key of the trial.
        attempt: Number of the attempt.
        rows: The attempt's rows without envelope, in order; never empty.
        encoded: The same rows as the journal will hold them.
        artifacts: The other files of the attempt's directory, by relative path.
        document: The whole file.
    """

    sweep: str
    key: str
    attempt: int
    rows: tuple[JsonObject, ...]
    encoded: tuple[EncodedRow, ...]
    artifacts: Mapping[str, FileDigest]
    document: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """What an attempt's directory tells after a kill.

    Attributes:
        key: Key of the trial.
        attempt: Number of the attempt.
        plan_index: The trial's place in the plan.
        intent: Its `intent.json`, or None when there is none that can be read.
        outcome: How it ended, or None when that was never written or is damaged.
        problem: What was found damaged and where it is now, or None.
    """

    key: str
    attempt: int
    plan_index: int
    intent: JsonObject | None
    outcome: Outcome | None
    problem: str | None


def write_intent(results: Results, intent: Mapping[str, object]) -> Path:
    """Make an attempt's directory, for the first and only time, with its intent; both are durable before this returns.

    Args:
        results: Whose attempt.
        intent: `schema`, `sweep`, `key`, `attempt`, `begun_utc` and what else the sweep wants to remember.

    Returns:
        The attempt's directory.

    Raises:
        FileExistsError: The attempt was begun before: a bug of the caller.
        HostError: The file system refuses: do not start the trial.
        ValueError: The intent lacks a member: a bug of the caller.
    """
    _, key, attempt = _check_identity(intent, schema=INTENT_SCHEMA)
    directory = results.attempt_dir(key, attempt)
    try:
        if not directory.parent.is_dir():
            directory.parent.mkdir(exist_ok=True)
            fsync_directory(results.trials)
        directory.mkdir()
        write_document(directory / INTENT, intent)
        fsync_directory(directory.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise explain_failure(results.root, error) from error
    return directory


def write_outcome(results: Results, outcome: Mapping[str, object]) -> None:
    """End an attempt: once this returns, nothing that its outcome holds can be lost.

    On a full disk the reserve is given up for it.

    Args:
        results: Whose attempt.
        outcome: `schema`, `sweep`, `key`, `attempt`, `rows`, `artifacts` (see `describe_artifacts`), `ended_utc`, ….

    Raises:
        FileExistsError: The attempt has ended before: a bug of the caller.
        HostError: The file system refuses.
        RowTooLongError: A row is; nothing was written.
        ValueError: The outcome lacks a member or is not strict JSON: a bug of the caller.
    """
    data = encode_outcome(outcome)
    written = _parse_own_form(data)
    path = results.attempt_dir(written.key, written.attempt) / OUTCOME
    keeping_reserve(results, lambda: write_once(path, data, mode=FILE_MODE))


def encode_outcome(outcome: Mapping[str, object]) -> bytes:
    """Write an outcome as its file's bytes, rows last and one a line.

    Raises:
        RowTooLongError: A row is.
        ValueError: It is not strict JSON, or a row is none: a bug of the caller.
    """
    rows = [b"".join(encode_row(row)) for row in take_objects(outcome, "rows")]
    others = encode_object({name: value for name, value in outcome.items() if name != "rows"})
    return others[:-1] + ROWS_BEGIN + ROWS_SEPARATOR.join(rows) + ROWS_END


def describe_artifacts(directory: Path) -> dict[str, dict[str, object]]:
    """Digest every file of an attempt's directory but its intent and outcome, as an outcome's `artifacts`.

    Raises:
        IntegrityError: There is a symbolic link or a special file, which cannot be evidence.
        OSError: A file cannot be read.
    """
    artifacts: dict[str, dict[str, object]] = {}
    for entry in walk(directory):
        if entry.kind is EntryKind.DIRECTORY or entry.relative in {INTENT, OUTCOME}:
            continue
        try:
            artifacts[entry.relative] = render_digest(digest_file(directory / entry.relative))
        except NotRegularError as error:
            message = f"{error}: not a regular file, so no evidence; copy what it stands for"
            raise IntegrityError(message) from None
    return artifacts


def read_outcome(results: Results, key: str, attempt: int) -> Outcome | None:
    """Read how an attempt ended; None when that was never written.

    Raises:
        IntegrityError: A BrokenDocumentError when it is damaged, else its schema is not known here.
        HostError: It cannot be read.
    """
    path = results.attempt_dir(key, attempt) / OUTCOME
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return None
    outcome = parse_outcome(path, data)
    if (outcome.key, outcome.attempt) != (key, attempt):
        message = f"{path}: belongs to {outcome.key!r}, attempt {outcome.attempt}; restore it from a copy"
        raise BrokenDocumentError(message)
    return outcome


def parse_outcome(path: str | Path, data: bytes) -> Outcome:
    """Read the bytes of an outcome.

    Raises:
        IntegrityError: As for `read_outcome`.
    """
    try:
        return _parse_own_form(data)
    except MalformedJsonError:
        # What is wrong is told by reading the whole; or another program has written it, and nothing is wrong.
        document = parse_document(path, data, schema=OUTCOME_SCHEMA)
    try:
        return _check_outcome(document, [encode_row(row) for row in take_objects(document, "rows")])
    except MalformedJsonError as error:
        raise BrokenDocumentError(f"{path}: is damaged ({error}); restore it from a copy") from None


def _parse_own_form(data: bytes) -> Outcome:
    """Read an outcome as `encode_outcome` writes it: each row is a line, and need not be written once more."""
    # No string can hold the marks: a newline or quotation mark in one would be escaped.
    at = data.find(ROWS_BEGIN)
    if at < 0 or not data.endswith(ROWS_END):
        raise MalformedJsonError("is not in our own form")
    document = parse_object(data[:at] + b"}")
    if "rows" in document:
        raise MalformedJsonError("has its rows twice")
    lines = data[at + len(ROWS_BEGIN) : -len(ROWS_END)].split(ROWS_SEPARATOR)
    document["rows"] = [parse_object(line) for line in lines]
    return _check_outcome(document, [cut_row(line) for line in lines])


def _check_identity(document: Mapping[str, object], *, schema: str) -> tuple[str, str, int]:
    if document.get("schema") != schema:
        message = f"schema is not {schema!r}"
        raise MalformedJsonError(message)
    attempt = take(document, "attempt", int)
    if not 0 <= attempt <= MAX_ATTEMPT:
        message = f"attempt {attempt}"
        raise MalformedJsonError(message)
    return take(document, "sweep", str), take(document, "key", str), attempt


def _check_outcome(document: JsonObject, encoded: Sequence[EncodedRow]) -> Outcome:
    sweep, key, attempt = _check_identity(document, schema=OUTCOME_SCHEMA)
    rows = take_objects(document, "rows")
    if not rows:
        raise MalformedJsonError("no rows")
    for row in rows:
        check_row(row)
    return Outcome(
        sweep=sweep,
        key=key,
        attempt=attempt,
        rows=tuple(rows),
        encoded=tuple(encoded),
        artifacts=read_digests(document),
        document=document,
    )


def scan_attempts(
    results: Results, sweep: SweepFile, *, recorded: Container[tuple[str, int]] = ()
) -> Iterator[AttemptRecord]:
    """Read the attempts whose rows are not in the journal, in the plan's order; only under the directory's lock.

    An outcome that is damaged is moved to `set-aside/`, named in `problem`, and counts as absent.

    Args:
        results: The directory.
        sweep: Its plan; a directory that belongs to no planned trial is left to `audit`.
        recorded: The (key, attempt) pairs that need no look.

    Raises:
        IntegrityError: An outcome is of a schema that is not known here.
        HostError: A file cannot be read or moved.
    """
    for plan_index, key in enumerate(sweep.plan_keys):
        for attempt in _numbers(results.trial_dir(key)):
            if (key, attempt) not in recorded:
                yield _read_attempt(results, sweep, key=key, attempt=attempt, plan_index=plan_index)


def read_attempt_name(name: str) -> int | None:
    """Read the name of an attempt's directory; None for any other name."""
    if not name.isdecimal() or len(name) > len(str(MAX_ATTEMPT)):
        return None
    # Not isdecimal alone: it takes other scripts' digits, and 007.
    number = int(name)
    return number if str(number) == name else None


def _numbers(directory: Path) -> list[int]:
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(number for name in names if (number := read_attempt_name(name)) is not None)


def _read_attempt(results: Results, sweep: SweepFile, *, key: str, attempt: int, plan_index: int) -> AttemptRecord:
    directory = results.attempt_dir(key, attempt)
    problems: list[str] = []
    intent = None
    try:
        intent = read_document(directory / INTENT, schema=INTENT_SCHEMA)
        if (intent.get("sweep"), intent.get("key"), intent.get("attempt")) != (sweep.sweep, key, attempt):
            problems.append(f"{directory / INTENT}: belongs to another attempt")
            intent = None
    except FileNotFoundError:
        pass  # killed between the directory and its intent: nothing was spent
    except BrokenDocumentError as error:
        problems.append(str(error))
    try:
        outcome = _read_own_outcome(results, sweep, key=key, attempt=attempt)
    except BrokenDocumentError as error:
        outcome = None
        problems.append(f"{error}; set aside as {_move_outcome_aside(results, key, attempt)}")
    return AttemptRecord(
        key=key,
        attempt=attempt,
        plan_index=plan_index,
        intent=intent,
        outcome=outcome,
        problem="; ".join(problems) or None,
    )


def _read_own_outcome(results: Results, sweep: SweepFile, *, key: str, attempt: int) -> Outcome | None:
    outcome = read_outcome(results, key, attempt)
    if outcome is not None and outcome.sweep != sweep.sweep:
        message = f"{results.attempt_dir(key, attempt) / OUTCOME}: belongs to sweep {outcome.sweep!r}"
        raise BrokenDocumentError(message)
    return outcome


def _move_outcome_aside(results: Results, key: str, attempt: int) -> Path:
    path = results.attempt_dir(key, attempt) / OUTCOME
    try:
        return move_aside(results, path, f"{trial_name(key)}-{attempt}-{OUTCOME}")
    except OSError as error:
        raise explain_failure(results.root, error) from error
