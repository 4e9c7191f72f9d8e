"""What an agent printed, as it is kept: its events, redacted, and of a flood its two ends."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, cast

from fairtrial.store.redact import Redactor

__all__ = ["lines_of", "write_transcript"]

LONGEST_LINE_BYTES: Final = 16 << 20
"""No event is longer; what is, is cut into pieces that are none."""
LONGEST_TEXT_BYTES: Final = 64 << 10
MOST_LINES: Final = 1_000_000
"""An agent's events are fewer; half a gigabyte of empty lines would keep us for minutes."""
HEAD_LINES: Final = 100_000
HEAD_BYTES: Final = 32 << 20
TAIL_BYTES: Final = 64 << 10


def lines_of(source: BinaryIO) -> Iterator[bytes]:
    """Lines of a stream, at most `MOST_LINES`, in bounded memory even where no line ends."""
    return islice(iter(lambda: source.readline(LONGEST_LINE_BYTES), b""), MOST_LINES)


def write_transcript(raw: Path, path: Path, redactor: Redactor) -> None:
    """Keep what was printed: events re-serialised with sorted keys, anything else as text; all of it redacted.

    What was left out between head and tail, and of a text that is no event, is counted as `omitted_bytes`: a flood
    would otherwise fill the results' disk, several times over since a byte that is no text takes six to write.
    """
    with raw.open("rb") as source, path.open("xb") as target:
        n_bytes = 0
        for line in islice(lines_of(source), HEAD_LINES):
            target.write(redactor.redact(_event(line)) + b"\n")
            n_bytes += len(line)
            if n_bytes > HEAD_BYTES:
                break
        if n_omitted := _skip(source, n_bytes):
            target.write(_serialised({"omitted_bytes": n_omitted}) + b"\n")
        for line in lines_of(source):
            target.write(redactor.redact(_event(line)) + b"\n")
    path.chmod(0o644)


def _skip(source: BinaryIO, here: int) -> int:
    """Go on where the last lines begin, if that is further on; return how many bytes lie between."""
    end = source.seek(0, 2)
    if end - here <= TAIL_BYTES:
        source.seek(here)
        return 0
    source.seek(end - TAIL_BYTES)
    return end - TAIL_BYTES - here + len(source.readline(TAIL_BYTES))


def _event(line: bytes) -> bytes:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return _serialised(cast("dict[str, object]", value))
    kept = line[:LONGEST_TEXT_BYTES]
    text: dict[str, object] = {"unparsed": kept.decode("utf-8", "backslashreplace").rstrip("\n")}
    return _serialised(text if len(kept) == len(line) else text | {"omitted_bytes": len(line) - len(kept)})


def _serialised(value: dict[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
