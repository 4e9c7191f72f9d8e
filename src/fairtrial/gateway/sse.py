"""Server-sent events from bytes that may be split anywhere, in bounded memory.

Source: WHATWG HTML, "Server-sent events". Two things are read more kindly than there, because clients do: an event at
the end of the body counts without its blank line, and what breaks the rules is named instead of lost.
"""

from typing import Final, NamedTuple

__all__ = ["MAX_EVENT_BYTES", "SseEvent", "SseReader"]

MAX_EVENT_BYTES: Final = 16 << 20
"""The last event of a Responses stream repeats the whole reply, so it may be large."""


class SseEvent(NamedTuple):
    """One event.

    Attributes:
        name: Its `event` field; "" without.
        data: Its data lines, joined by newlines.
    """

    name: str
    data: bytes


class SseReader:
    """Takes bytes and gives events.

    Attributes:
        problem: What broke the rules first, or None.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.problem: str | None = None
        self._max_event_bytes = max_event_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._held_return = False
        self._begun = False
        self._skipping = False

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that these bytes complete."""
        if self._held_return:
            data = b"\r" + data
            self._held_return = False
        if b"\r" in data:
            # Held back: whether a return at the end is a line end of its own is told by the byte after it.
            if data.endswith(b"\r"):
                data, self._held_return = data[:-1], True
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not self._buffer and not self._skipping and data.endswith(b"\n\n") and len(data) <= self._max_event_bytes:
            return self._read_whole(data)
        self._buffer += data
        return self._take_complete()

    def finish(self) -> list[SseEvent]:
        """The event that the end of the body completes, if there is one."""
        events = self.feed(b"\n\n") if self._buffer or self._held_return else []
        self._buffer.clear()
        return events

    def _take_complete(self) -> list[SseEvent]:
        end = self._buffer.rfind(b"\n\n", self._searched)
        events: list[SseEvent] = []
        if end >= 0:
            blocks = bytes(self._buffer[:end]).split(b"\n\n")
            del self._buffer[: end + 2]
            if self._skipping:
                self._skipping = False
                del blocks[0]
            events = self._read_blocks(blocks)
        # A blank line may begin with the last byte that is here.
        self._searched = max(len(self._buffer) - 1, 0)
        if len(self._buffer) > self._max_event_bytes:
            self._complain(f"an event of more than {self._max_event_bytes} bytes")
            self._skipping = True
            del self._buffer[:-1]
            self._searched = 0
        return events

    def _read_blocks(self, blocks: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        for block in blocks:
            if len(block) > self._max_event_bytes:
                self._complain(f"an event of more than {self._max_event_bytes} bytes")
            elif (event := self._read_block(block)) is not None:
                events.append(event)
        return events

    def _read_whole(self, data: bytes) -> list[SseEvent]:
        """Read whole events, as they mostly come; looking for one byte is far quicker than looking for two."""
        events: list[SseEvent] = []
        lines: list[bytes] = []
        for line in data.split(b"\n"):
            if line:
                lines.append(line)
            elif lines:
                if (event := self._read_lines(lines)) is not None:
                    events.append(event)
                lines = []
        return events

    def _read_block(self, block: bytes) -> SseEvent | None:
        return self._read_lines(block.split(b"\n"))

    def _read_lines(self, lines: list[bytes]) -> SseEvent | None:
        if not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        # Nearly every event is one line of data, with a line for its name or without.
        if lines[-1].startswith(b"data: "):
            if len(lines) == 1:
                return SseEvent("", lines[0][6:])
            if len(lines) == 2 and lines[0].startswith(b"event: "):
                return SseEvent(lines[0][7:].decode(errors="replace"), lines[1][6:])
        name = ""
        data: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line.startswith(b"event:"):
                name = line[6:].decode(errors="replace").removeprefix(" ")
            elif line and not line.startswith((b":", b"id:", b"retry:")) and line not in {b"data", b"event", b"id"}:
                self._complain("a line that is no field of an event")
        return SseEvent(name, b"\n".join(data)) if data else None

    def _complain(self, problem: str) -> None:
        self.problem = self.problem or problem
