"""Chunked bodies in bulk: all the payload that has arrived, in one piece, and never a wait while some is held.

`http1.read_body` keeps the framing of each chunk, which a forwarder needs; a reader of replies needs the payload, fast.

Source: RFC 9112, section 7.1.
"""

from enum import Enum
from typing import Final

from fairtrial.wire.http1 import MAX_HEAD_BYTES, BadMessageError, is_field_line, parse_chunk_size

__all__ = ["Dechunker"]

_MAX_SIZE_LINE_BYTES: Final = 256


class _Next(Enum):
    """What comes next."""

    SIZE = "size"
    DATA = "data"
    DATA_END = "data-end"
    TRAILER = "trailer"
    NOTHING = "nothing"


class Dechunker:
    """Takes the framing off one chunked body.

    Attributes:
        surplus: Bytes that followed the end of the body.
    """

    def __init__(self) -> None:
        self.surplus: bytes = b""
        self._next = _Next.SIZE
        self._left = 0
        self._held: bytes = b""
        self._n_trailer_bytes = 0

    @property
    def ended(self) -> bool:
        """The end of the body has been seen."""
        return self._next is _Next.NOTHING

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, split anywhere, and return the payload in them.

        Raises:
            BadMessageError: The framing is broken.
        """
        if self._held:
            data = self._held + data
            self._held = b""
        parts: list[bytes] = []
        position = 0
        while position < len(data):
            before = position
            match self._next:
                case _Next.DATA:
                    part = data[position : position + self._left]
                    parts.append(part)
                    position += len(part)
                    self._left -= len(part)
                    self._next = self._next if self._left else _Next.DATA_END
                    continue
                case _Next.DATA_END:
                    position = self._read_data_end(data, position)
                case _Next.SIZE:
                    position = self._read_size(data, position)
                case _Next.TRAILER:
                    position = self._read_trailer_line(data, position)
                case _Next.NOTHING:
                    self.surplus += data[position:]
                    break
            if position == before:  # half a line
                self._held = data[position:]
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_data_end(self, data: bytes, position: int) -> int:
        end = data[position : position + 2]
        if not b"\r\n".startswith(end):
            raise BadMessageError(f"no line end after a chunk's data: {end!r}")
        if len(end) < 2:
            return position
        self._next = _Next.SIZE
        return position + 2

    def _read_size(self, data: bytes, position: int) -> int:
        end = data.find(b"\n", position, position + _MAX_SIZE_LINE_BYTES)
        if end < 0:
            if len(data) - position >= _MAX_SIZE_LINE_BYTES:
                raise BadMessageError("the chunk size line is too long")
            return position
        self._left = parse_chunk_size(data[position : end + 1])
        self._next = _Next.DATA if self._left else _Next.TRAILER
        return end + 1

    def _read_trailer_line(self, data: bytes, position: int) -> int:
        end = data.find(b"\n", position) + 1
        self._n_trailer_bytes += (end or len(data)) - position
        if self._n_trailer_bytes > MAX_HEAD_BYTES:
            raise BadMessageError("oversized trailer")
        if not end:
            self._n_trailer_bytes -= len(data) - position  # it comes again with its rest
            return position
        line = data[position:end]
        if line == b"\r\n":
            self._next = _Next.NOTHING
        elif not line.endswith(b"\r\n") or not is_field_line(line[:-2]):
            raise BadMessageError(f"malformed trailer {line[:80]!r}")
        return end
