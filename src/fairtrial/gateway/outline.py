"""What a large body is judged by: the body itself, with something short in the place of each long text.

A body of 100 MB is an image, a document, a tool's output: few values, and one or some texts of many bytes. What is
checked are its members and their kinds, and of a text at most its beginning. So the body is read in pieces, a long text
is checked, hashed and left out as it passes, and what is held in memory has a limit of its own, whatever the body's
size. The limit on values is for the gateway's sake: three bytes of `[],` are seventy in memory, and a session that
could end the gateway by a body would make its lost trial a void one.

A long text is checked as strictly as the parser would check it, and everything else stands in the outline byte by
byte, so the outline is a strict JSON object if and only if the body is one. A key is never left out.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

from pydantic_core import from_json, to_json

from fairtrial.gateway.egress import BadRequestError
from fairtrial.gateway.spool import Spool
from fairtrial.wire.loop import sleep_s

__all__ = ["LONG_BYTES", "MAX_OUTLINE_BYTES", "MAX_VALUES", "Outline", "read_outline"]

LONG_BYTES: Final = 4096
"""A text of more bytes, as it is written, is left out."""
MAX_OUTLINE_BYTES: Final = 32 << 20
"""More than any model takes in, several times."""
MAX_VALUES: Final = 250_000
"""Several times what a conversation has that fills the largest model in turns of a line each."""

_KEPT_CHARACTERS: Final = 100
"""The checks look at no more of a text that could be long: the scheme of a URL, the beginning of a document's data."""
_LONGEST_UNIT_BYTES: Final = 12
"""Two escapes that are one character."""
_QUOTE: Final = ord('"')
_SPACE: Final = b" \t\r\n"
# What a text is made of; what is wrong inside an escape is found by the parser. Halves of a character stay together.
_UNITS: Final = re.compile(rb'(?:[^"\\]++|\\[^u]|\\u[dD][89abAB]..\\u....|\\u(?![dD][89abAB])....)*', re.DOTALL)
# Most texts are short and go by many at a time: 64 parts of at most 62 bytes and an escape are `LONG_BYTES` at most.
# What a lookahead has found is never tried in another way; Python 3.11.2, as Debian has it, does a group's `++` wrong.
_SHORT_TEXTS: Final = re.compile(rb'(?:[^"]*+"(?=((?:[^"\\]{0,62}+(?:\\.)?){0,64}))\1")+', re.DOTALL)
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*"', re.DOTALL)
_MARK: Final = re.compile("<fairtrial:sha256:[0-9a-f]{64}>")
_MARK_BYTES: Final = re.compile(_MARK.pattern.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class _LongText:
    """A text that was left out.

    Attributes:
        literal: What stands for it in the outline, with its quotes: its beginning and its mark.
        start: Where it begins in the body, after its quote.
        n_bytes: How long it is there.
        n_hidden: Characters that it has more than what stands for it.
    """

    literal: bytes
    start: int
    n_bytes: int
    n_hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A body without its long texts.

    Attributes:
        data: JSON, if the body is.
        texts: What was left out, by its mark.
    """

    data: bytes
    texts: dict[str, _LongText]

    def n_characters(self, text: str) -> int:
        """How many characters a text of the outline has in the body."""
        marks = _MARK.findall(text) if self.texts else []
        return len(text) + sum(self.texts[mark].n_hidden for mark in marks if mark in self.texts)

    def restored(self, rendered: bytes, body: Spool) -> Iterator[bytes]:
        """What was rendered from the outline's values, with the long texts in their places again."""
        at = 0
        for found in _MARK_BYTES.finditer(rendered):
            long = self.texts.get(found[0].decode())
            if long is None:
                continue
            start = found.end() + 1 - len(long.literal)
            if start < at or rendered[start : found.end() + 1] != long.literal:
                continue  # the words of somebody who knows our marks
            yield rendered[at : start + 1]
            yield from body.part(long.start, long.n_bytes)
            at = found.end()
        yield rendered[at:]


async def read_outline(pieces: AsyncIterator[bytes]) -> Outline:
    """Read a body in its outline; between two pieces others may run.

    Raises:
        BadRequestError: It is too much beside its long texts, one of those is no JSON text, or a key is that long.
    """
    outliner = _Outliner()
    async for data in pieces:
        outliner.feed(data)
        await sleep_s(0)
    return outliner.finish()


class _Passing:
    """A long text while it passes."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._hasher = hashlib.sha256()
        self._n_bytes = 0
        self._n_characters = 0
        self._beginning = ""

    def take(self, data: bytes) -> None:
        """Check and count a part of it that splits no character.

        Raises:
            BadRequestError: It is no part of a JSON text.
        """
        try:
            text: str = from_json(b'"%b"' % data)
        except ValueError as error:
            message = f"the body is no strict JSON object: a text of more than {LONG_BYTES} bytes: {error}"
            raise BadRequestError(message) from None
        self._beginning += text[: _KEPT_CHARACTERS - len(self._beginning)]
        self._hasher.update(data)
        self._n_bytes += len(data)
        self._n_characters += len(text)

    def end(self) -> tuple[str, _LongText]:
        """Its mark, and what is known of it."""
        mark = f"<fairtrial:sha256:{self._hasher.hexdigest()}>"
        shown = self._beginning + mark
        return mark, _LongText(
            literal=to_json(shown),
            start=self._start,
            n_bytes=self._n_bytes,
            n_hidden=self._n_characters - len(shown),
        )


class _Outliner:
    """Takes a body in pieces."""

    def __init__(self) -> None:
        self._outline = bytearray()
        self._texts: dict[str, _LongText] = {}
        self._n_values = 0
        self._rest = b""
        self._n_done = 0
        self._is_in_text = False
        self._text = bytearray()
        self._text_start = 0
        self._passing: _Passing | None = None
        self._is_after_long = False

    def feed(self, data: bytes) -> None:
        """Take the next piece, split anywhere.

        Raises:
            BadRequestError: See `read_outline`.
        """
        data = self._rest + data
        at = 0
        while at < len(data):
            if self._is_in_text:
                end = _end_of_units(data, at)
                self._take_text(data[at:end])
                if end == len(data) or data[end] != _QUOTE:
                    at = end
                    break
                self._end_text()
            else:
                passed = _SHORT_TEXTS.match(data, at)
                found = data.find(b'"', at if passed is None else passed.end())
                end = len(data) if found < 0 else found
                self._take_around(data[at:end])
                self._is_in_text, self._text_start = found >= 0, self._n_done + end + 1
            at = end + 1
        self._rest = data[at:]
        self._n_done += len(data) - len(self._rest)

    def finish(self) -> Outline:
        """The outline; a body that ends inside a text ends so in its outline, where the parser finds it."""
        if self._is_in_text:
            self._outline += b'"' + self._text + self._rest
        return Outline(data=bytes(self._outline), texts=self._texts)

    def _take_around(self, data: bytes) -> None:
        """Take what stands before a text that needs a look, or is not all here: values, and texts that are short."""
        if self._is_after_long and (rest := data.lstrip(_SPACE)):
            self._is_after_long = False
            if rest.startswith(b":"):
                message = f"the body has a key of more than {LONG_BYTES} bytes"
                raise BadRequestError(message)
        between = _TEXT.sub(b"", data)
        self._n_values += between.count(b",") + between.count(b"[") + between.count(b"{")
        if self._n_values > MAX_VALUES:
            message = f"the body has more than {MAX_VALUES} values"
            raise BadRequestError(message)
        self._add(data)

    def _take_text(self, data: bytes) -> None:
        if self._passing is None and len(self._text) + len(data) <= LONG_BYTES:
            self._text += data
            return
        if self._passing is None:
            self._passing = _Passing(self._text_start)
            data, self._text = bytes(self._text) + data, bytearray()
        self._passing.take(data)

    def _end_text(self) -> None:
        self._is_in_text = False
        if self._passing is None:
            self._add(b'"%b"' % bytes(self._text))
            self._text = bytearray()
            return
        mark, long = self._passing.end()
        self._passing, self._is_after_long = None, True
        self._texts.setdefault(mark, long)
        self._add(long.literal)

    def _add(self, data: bytes) -> None:
        self._outline += data
        if len(self._outline) > MAX_OUTLINE_BYTES:
            message = f"the body has more than {MAX_OUTLINE_BYTES} bytes beside its texts of more than {LONG_BYTES}"
            raise BadRequestError(message)


def _end_of_units(data: bytes, start: int) -> int:
    """Where a text, or as much of it as is here and splits no character, ends.

    Raises:
        BadRequestError: It cannot go on so.
    """
    found = _UNITS.match(data, start)
    end = start if found is None else found.end()
    if end < len(data) and data[end] == _QUOTE:
        return end
    if len(data) - end >= _LONGEST_UNIT_BYTES:
        message = "the body is no strict JSON object: half a character in a text"
        raise BadRequestError(message)
    return _before_split_character(data, start, end)


def _before_split_character(data: bytes, start: int, end: int) -> int:
    """The end, or where the character of UTF-8 begins that is not all here."""
    for place in range(end - 1, max(start, end - 4) - 1, -1):
        if data[place] < 0x80:
            break
        if data[place] >= 0xC0:
            n_bytes = 2 if data[place] < 0xE0 else 3 if data[place] < 0xF0 else 4
            return place if place + n_bytes > end else end
    return end
