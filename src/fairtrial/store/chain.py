"""One row as one line, and the chain that ties each line to the one before. Pure: bytes in, bytes out.

A line is one object: `schema`, then the envelope, then the members that the trial wrote. `prev` is the SHA-256 of the
line before with its newline; the first line's is that of `sweep.json`.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import BinaryIO, NamedTuple

from fairtrial.store.strict_json import (
    JsonObject,
    MalformedJsonError,
    MemberReader,
    encode_object,
    parse_object,
    render_parsed,
    take,
)

__all__ = [
    "MAX_LINE_BYTES",
    "MAX_ROW_BYTES",
    "ChainError",
    "ChainedRow",
    "EncodedRow",
    "Identity",
    "LineError",
    "LineFault",
    "Link",
    "RowTooLongError",
    "check_row",
    "cut_row",
    "encode_row",
    "follow_chain",
    "own_members",
    "read_lines",
    "read_row",
    "render_lines",
    "render_row",
]

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_ROW_BYTES = MAX_LINE_BYTES - 64 * 1024  # what is left is for the envelope


class EncodedRow(NamedTuple):
    """A trial's own row in JSON, cut where the journal puts its envelope.

    Attributes:
        head: `{"schema":"…"`.
        rest: The other members with the closing brace: `,"a":1}` or `}`.
    """

    head: bytes
    rest: bytes


class Identity(NamedTuple):
    """What all rows of an attempt share.

    Attributes:
        schema: Version of the row's form, such as `loop-row/1`.
        sweep: Id of the sweep.
        key: Key of the trial.
        attempt: Number of the attempt.
        plan_index: The trial's place in the plan.
    """

    schema: str
    sweep: str
    key: str
    attempt: int
    plan_index: int


class Link(NamedTuple):
    """What ties a row to its neighbours.

    Attributes:
        seq: The row's place in the journal, from 0.
        prev: SHA-256 of the line before, in hex.
        final: It is the last row of its attempt.
    """

    seq: int
    prev: str
    final: bool


_MEMBERS = Identity._fields + Link._fields
# The envelope as `render_lines` writes it. A string with an escape in it is not matched: the line is parsed instead.
_TEXT = rb'"([^"\\\x00-\x1f]*)"'
_NUMBER = rb"(0|[1-9][0-9]{0,14})"
_SCHEMA_FIRST = re.compile(rb'\{"schema":%b(?=[,}])' % _TEXT)
_OWN_FORM = re.compile(
    rb'\{"schema":%b,"sweep":%b,"key":%b,"attempt":%b,"plan_index":%b,"seq":%b,"prev":"([0-9a-f]{64})","final":(true|false)'
    % (_TEXT, _TEXT, _TEXT, _NUMBER, _NUMBER, _NUMBER)
)
_LINE_ENDS = b"}\n"
_NO_BEGIN = b"\n"  # no line begins so
_TYPES = (str, str, str, int, int, int, str, bool)
_OURS = frozenset(_MEMBERS) - {"schema"}


class LineFault(Enum):
    """What is wrong with a line."""

    TORN = "has no end"
    UNPARSABLE = "is not a JSON object"
    NO_ENVELOPE = "is no row of a journal"
    FOREIGN = "belongs to another sweep"
    UNLINKED = "does not follow from the line before"


class LineError(Exception):
    """A line is no row that follows from the line before.

    Attributes:
        fault: What is wrong.
    """

    def __init__(self, fault: LineFault, detail: str) -> None:
        super().__init__(f"{fault.value} ({detail})")
        self.fault = fault


class RowTooLongError(MalformedJsonError):
    """A row is longer than a journal takes."""


class ChainError(Exception):
    """The chain breaks at a line.

    Attributes:
        line: 1-based number.
        offset: Of the line's first byte.
        n_bytes: Length of the line as far as it was read.
        fault: What is wrong.
    """

    def __init__(self, error: LineError, *, line: int, offset: int, n_bytes: int) -> None:
        super().__init__(str(error))
        self.line = line
        self.offset = offset
        self.n_bytes = n_bytes
        self.fault = error.fault


class ChainedRow(NamedTuple):
    """A line of the journal that follows from the line before.

    Attributes:
        line: 1-based number.
        offset: Of its first byte.
        raw: Its bytes with the newline.
        digest: SHA-256 of `raw`, in hex.
        identity: Whose row it is.
        final: It is the last row of its attempt.
        rest_at: Where in `raw` the members of the trial begin, or -1 when the line is not written in our form.
        row: The parsed line, or None when nothing was parsed because its envelope is in our own form: see `parse`.
    """

    line: int
    offset: int
    raw: bytes
    digest: str
    identity: Identity
    final: bool
    rest_at: int
    row: JsonObject | None

    def parse(self) -> JsonObject:
        """Return the parsed line.

        Raises:
            ChainError: It is no row.
        """
        if self.row is not None:
            return self.row
        try:
            return read_row(self.raw, sweep=self.identity.sweep)[0]
        except LineError as error:
            raise ChainError(error, line=self.line, offset=self.offset, n_bytes=len(self.raw)) from None

    def read_members(self, reader: MemberReader) -> JsonObject:
        """Return a few members of the line; for a row that was parsed, or that its outcome holds in the same bytes.

        Raises:
            ChainError: It is no row, and neither is the outcome's.
        """
        if self.row is not None:
            return self.row
        try:
            return reader.read(self.raw)
        except ValueError:
            return self.parse()


def check_row(row: Mapping[str, object]) -> str:
    """Return the schema of a trial's own row.

    Raises:
        MalformedJsonError: It has none, or brings a member of the envelope.
    """
    schema = take(row, "schema", str)
    if not _OURS.isdisjoint(row):
        name = next(name for name in row if name in _OURS)
        raise MalformedJsonError(f"a row brings {name!r}, which the journal writes")
    return schema


def own_members(row: JsonObject) -> JsonObject:
    """Return what the trial wrote of a journal's row."""
    return {name: value for name, value in row.items() if name not in _OURS}


def encode_row(row: Mapping[str, object]) -> EncodedRow:
    """Write a trial's own row, without envelope.

    Raises:
        ValueError: It is no row or could not be read back, or a RowTooLongError.
    """
    schema = check_row(row)
    return cut_row(encode_object({"schema": schema, **row}))


def render_row(row: JsonObject) -> EncodedRow:
    """Write a parsed row of a journal as its trial wrote it, without envelope and unchecked."""
    schema = row["schema"]
    data = render_parsed({"schema": schema, **own_members(row)})
    cut = len(render_parsed({"schema": schema})) - 1
    return EncodedRow(data[:cut], data[cut:])


def cut_row(data: bytes) -> EncodedRow:
    """Cut a row in our own form, schema first, where the envelope goes.

    Raises:
        MalformedJsonError: It is in another form, or a RowTooLongError.
    """
    if len(data) > MAX_ROW_BYTES:
        raise RowTooLongError(f"a row of {len(data)} bytes: keep what is long in an artifact")
    match = _SCHEMA_FIRST.match(data)
    if match is None:
        raise MalformedJsonError("a row does not begin with a plain schema")
    return EncodedRow(data[: match.end()], data[match.end() :])


def render_lines(
    rows: Sequence[EncodedRow], *, sweep: str, key: str, attempt: int, plan_index: int, seq: int, prev: str
) -> tuple[bytes, str]:
    """Chain one attempt's rows onto a journal.

    Args:
        rows: In order; the last becomes the attempt's final row.
        sweep: Id of the sweep.
        key: Key of the trial.
        attempt: Number of the attempt.
        plan_index: The trial's place in the plan.
        seq: Rows in the journal so far.
        prev: The journal's head so far.

    Returns:
        The lines, and the journal's new head.
    """
    identity = _encode_identity(sweep=sweep, key=key, attempt=attempt, plan_index=plan_index)
    lines: list[bytes] = []
    for number, (head, rest) in enumerate(rows):
        final = b"true" if number == len(rows) - 1 else b"false"
        line = b'%b%b%d,"prev":"%b","final":%b%b\n' % (head, identity, seq + number, prev.encode(), final, rest)
        prev = hashlib.sha256(line).hexdigest()
        lines.append(line)
    return b"".join(lines), prev


def _encode_identity(*, sweep: str, key: str, attempt: int, plan_index: int) -> bytes:
    """Write the envelope as far as it is the same in all rows of an attempt."""
    members = render_parsed({"sweep": sweep, "key": key, "attempt": attempt, "plan_index": plan_index})
    return b',%b,"seq":' % members[1:-1]


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Read lines with their newlines, in constant memory: of a line longer than any of ours, pieces without one."""
    while raw := file.readline(MAX_LINE_BYTES):
        yield raw


def read_row(raw: bytes, *, sweep: str) -> tuple[JsonObject, Identity, Link]:
    """Parse one line of a journal.

    Args:
        raw: The line with its newline.
        sweep: Id that it must name.

    Raises:
        LineError: It is no row of this sweep.
    """
    if raw[-1:] != b"\n":
        raise LineError(LineFault.TORN, "no newline at its end")
    try:
        row = parse_object(raw[:-1])
    except MalformedJsonError as error:
        raise LineError(LineFault.UNPARSABLE, str(error)) from None
    try:
        values = tuple([row[name] for name in _MEMBERS])
    except KeyError as error:
        raise LineError(LineFault.NO_ENVELOPE, f"no {error}") from None
    if tuple(map(type, values)) != _TYPES:
        raise LineError(LineFault.NO_ENVELOPE, "a member of its envelope is of another type")
    identity, link = Identity._make(values[:5]), Link._make(values[5:])
    if identity.sweep != sweep:
        raise LineError(LineFault.FOREIGN, f"{identity.sweep!r}, not {sweep!r}")
    return row, identity, link


def follow_chain(lines: Iterable[bytes], *, sweep: str, genesis: str) -> Iterator[ChainedRow]:
    """Follow the chain from its beginning, line by line.

    Of a line in our own form only the envelope is looked at.

    Args:
        lines: With their newlines.
        sweep: Id that every row must name.
        genesis: SHA-256 of `sweep.json`, in hex.

    Raises:
        ChainError: At the first line that does not follow.
    """
    prev = genesis
    offset = 0
    identity = Identity("", "", "", -1, -1)
    begin = _NO_BEGIN
    for seq, raw in enumerate(lines):
        # Most rows are neither the first nor the last of their attempt: then the whole envelope is known beforehand.
        due = b'%b%d,"prev":"%b","final":false' % (begin, seq, prev.encode())
        if raw.startswith(due) and raw.endswith(_LINE_ENDS):
            row, final, rest_at = None, False, len(due)
        else:
            try:
                row, found, link, seq_at, rest_at = _read_envelope(raw, sweep=sweep)
                _check_link(link, seq=seq, prev=prev)
            except LineError as error:
                raise ChainError(error, line=seq + 1, offset=offset, n_bytes=len(raw)) from None
            if found != identity:
                identity = found
                begin = raw[:seq_at] if seq_at >= 0 else _NO_BEGIN
            final = link.final
        prev = hashlib.sha256(raw).hexdigest()
        yield ChainedRow(seq + 1, offset, raw, prev, identity, final, rest_at, row)
        offset += len(raw)


def _read_envelope(raw: bytes, *, sweep: str) -> tuple[JsonObject | None, Identity, Link, int, int]:
    """Read the envelope of a line, parsing the whole line only when it is not in our own form.

    The two numbers are the places of `seq`'s value and of the trial's own members; -1 when it was parsed.
    """
    match = _OWN_FORM.match(raw)
    if match is None or not raw.endswith(_LINE_ENDS):
        row, identity, link = read_row(raw, sweep=sweep)
        return row, identity, link, -1, -1
    schema, name, key, attempt, plan_index, seq, prev, final = match.groups()
    try:
        identity = Identity(schema.decode(), name.decode(), key.decode(), int(attempt), int(plan_index))
    except UnicodeDecodeError:
        raise LineError(LineFault.UNPARSABLE, "not UTF-8") from None
    if identity.sweep != sweep:
        raise LineError(LineFault.FOREIGN, f"{identity.sweep!r}, not {sweep!r}")
    return None, identity, Link(int(seq), prev.decode(), final == b"true"), match.start(6), match.end(8)


def _check_link(link: Link, *, seq: int, prev: str) -> None:
    if link.seq != seq:
        raise LineError(LineFault.UNLINKED, f"seq {link.seq} where {seq} is due")
    if link.prev != prev:
        raise LineError(LineFault.UNLINKED, "prev is not the digest of the line before")
