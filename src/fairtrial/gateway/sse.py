"""Server-sent events from bytes that may be split anywhere, in bounded memory.

Source: WHATWG HTML, "Server-sent events". Two things are read more kindly than there, because clients do: an event at
the end of the body counts without its blank line, and what breaks the rules is named instead of lost. Only the data of
an event is given: every dialect says in it what kind of event it is.

Each byte is looked at once, by C: CPython finds one byte far quicker than two (a blank line), and splits byte by byte.
"""

from typing import Final

__all__ = ["MAX_EVENT_BYTES", "SseReader"]

MAX_EVENT_BYTES: Final = 16 << 20
"""The last event of a Responses stream repeats the whole reply, so it may be large."""

_OTHER_FIELDS: Final = (b"event:", b":", b"id:", b"retry:")


class SseReader:
    """Takes bytes and gives the data of events.

    Attributes:
        problem: What broke the rules first, or None.
        skipped: An event was too large to be read, and is not given.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.problem: str | None = None
        self.skipped = False
        self._max_event_bytes = max_event_bytes
        self._lines: list[bytes] = []
        self._line: list[bytes] = []  # parts of a line whose end has not come
        self._n_held = 0
        self._held_return = False
        self._begun = False
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """The data, lines joined by newlines, of the events that these bytes complete."""
        if self._held_return:
            data = b"\r" + data
            self._held_return = False
        if data.find(b"\r") >= 0:  # `in` costs bytes an exception, each time
            # Held back: whether a return at the end is a line end of its own is told by the byte after it.
            if data.endswith(b"\r"):
                data, self._held_return = data[:-1], True
            data = b"\n".join(data.splitlines()) + (b"\n" if data.endswith((b"\n", b"\r")) else b"")
        events: list[bytes] = []
        start = 0
        event_start = -self._n_held
        while (end := data.find(b"\n", start)) >= 0:
            line = data[start:end]
            if self._line:
                line = b"".join((*self._line, line))
                self._line.clear()
            if line:
                self._lines.append(line)
            else:
                if self._lines and (event := self._take_event(end - 1 - event_start)) is not None:
                    events.append(event)
                event_start = end + 1
            start = end + 1
        if start < len(data):
            self._line.append(data[start:])
        self._n_held = len(data) - event_start
        if self._n_held > self._max_event_bytes:
            self._skip()
        return events

    def finish(self) -> list[bytes]:
        """The event that the end of the body completes, if there is one."""
        return self.feed(b"\n\n") if self._n_held or self._held_return else []

    def _take_event(self, n_bytes: int) -> bytes | None:
        """The data of the event whose lines are here, which ends now."""
        lines, self._lines = self._lines, []
        if self._skipping:
            self._skipping = False
            return None
        if n_bytes > self._max_event_bytes:
            self._complain_of_size()
            return None
        return self._read_lines(lines)

    def _skip(self) -> None:
        """Drop what is here of an event that is too large, but for what tells whether the next line is blank."""
        self._complain_of_size()
        self._skipping = True
        self._lines = [b":"]
        self._line = [b":"] if self._line else []
        self._n_held = 1

    def _read_lines(self, lines: list[bytes]) -> bytes | None:
        if not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        # Nearly every event is one line of data, with a line for its name or without.
        if lines[-1].startswith(b"data: ") and (len(lines) == 1 or (len(lines) == 2 and lines[0][:6] == b"event:")):
            return lines[-1][6:]
        data: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line and not line.startswith(_OTHER_FIELDS) and line not in {b"data", b"event", b"id"}:
                self._complain("a line that is no field of an event")
        return b"\n".join(data) if data else None

    def _complain_of_size(self) -> None:
        self.skipped = True
        self._complain(f"an event of more than {self._max_event_bytes} bytes")

    def _complain(self, problem: str) -> None:
        self.problem = self.problem or problem
