"""What an agent printed, as it is kept: its events, redacted, and of a flood its two ends."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, cast

from fairtrial.store.artifacts import FileDigest, digest_file
from fairtrial.store.redact import Redactor
from fairtrial.store.strict_json import MalformedJsonError, parse_object

__all__ = ["TRANSCRIPT_SOURCE", "Transcript", "lines_of", "write_transcript"]

LONGEST_LINE_BYTES: Final = 16 << 20
"""No event is longer; what is, is cut into pieces that are none."""
LONGEST_TEXT_BYTES: Final = 64 << 10
MOST_LINES: Final = 1_000_000
"""An agent's events are fewer; half a gigabyte of empty lines would keep us for minutes."""
HEAD_LINES: Final = 100_000
MOST_BYTES: Final = 8 << 20
"""What a transcript may take of the results' disk."""
TAIL_BYTES: Final = 64 << 10
HEAD_BYTES: Final = MOST_BYTES - 20 * TAIL_BYTES
"""Of what is written: a byte of the tail may take sixteen (a line end becomes an object), and the note a few."""
TRANSCRIPT_SOURCE: Final = "parent-captured-stream-json"
"""Where every transcript comes from: a stream that we held, never a file that the agent could write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A transcript that was kept.

    Attributes:
        name: Its file's name in the attempt's directory.
        digest: What was written to it.
    """

    name: str
    digest: FileDigest


def lines_of(source: BinaryIO) -> Iterator[bytes]:
    """Lines of a stream, at most `MOST_LINES`, in bounded memory even where no line ends."""
    return islice(iter(lambda: source.readline(LONGEST_LINE_BYTES), b""), MOST_LINES)


def write_transcript(raw: Path, path: Path, redactor: Redactor) -> Transcript:
    """Keep what was printed: events re-serialised with sorted keys, anything else as text; all of it redacted.

    It takes at most `MOST_BYTES`. What was left out between head and tail, and of a text that is no event or of an
    event that alone is longer than a head, is counted as `omitted_bytes`: a flood would otherwise fill the results'
    disk, several times over since a byte that is no text takes five to write.

    Nobody but its owner may read it: of all files of an attempt it alone holds what a model and its tools said freely,
    and redaction is a guess. On return it is durable.

    Raises:
        OSError: It could not be written, or there is one.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as target, raw.open("rb") as source:
        n_read = n_written = 0
        for line in islice(lines_of(source), HEAD_LINES):
            kept = _redacted(line, redactor) + b"\n"
            n_written += len(kept)
            if n_written > HEAD_BYTES:
                break
            target.write(kept)
            n_read += len(line)
        if n_omitted := _skip(source, n_read):
            target.write(_serialised({"omitted_bytes": n_omitted}) + b"\n")
        for line in lines_of(source):
            target.write(_redacted(line, redactor) + b"\n")
        target.flush()
        os.fsync(fd)
    return Transcript(name=path.name, digest=digest_file(path))


def _skip(source: BinaryIO, here: int) -> int:
    """Go on where the last lines begin, if that is further on; return how many bytes lie between."""
    end = source.seek(0, 2)
    if end - here <= TAIL_BYTES:
        source.seek(here)
        return 0
    source.seek(end - TAIL_BYTES)
    return end - TAIL_BYTES - here + len(source.readline(TAIL_BYTES))


def _redacted(line: bytes, redactor: Redactor) -> bytes:
    """A line as it is kept, which still is one object when its secrets are out.

    A shape may hold the quotes between a key and its value, and two keys that were secrets are one mark: no reader
    could believe such an object, so it is kept as text.
    """
    event = _event(line, redactor)
    if len(event) >= HEAD_BYTES:
        event = _text(line)
    redacted = redactor.redact(event)
    if redacted != event:
        try:
            parse_object(redacted)
        except MalformedJsonError:
            return _serialised({"unparsed": redacted.decode("utf-8", "backslashreplace")})
    return redacted


def _event(line: bytes, redactor: Redactor) -> bytes:
    try:
        value: object = json.loads(line)
        if isinstance(value, dict):
            event = cast("dict[str, object]", value)
            redactor.redact_members(event)
            return _serialised(event)
    except (ValueError, RecursionError):  # what is only just read may be too deep to be written
        pass
    return _text(line)


def _text(line: bytes) -> bytes:
    kept = line[:LONGEST_TEXT_BYTES]
    text: dict[str, object] = {"unparsed": kept.decode("utf-8", "backslashreplace").rstrip("\n")}
    return _serialised(text if len(kept) == len(line) else text | {"omitted_bytes": len(line) - len(kept)})


def _serialised(value: dict[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
