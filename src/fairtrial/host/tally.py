"""One output stream as it passes: counted to the last byte, kept only at its two ends."""

import codecs

from fairtrial.model.process import StreamCapture

__all__ = ["StreamTally"]


class StreamTally:
    """Counts a stream and keeps its first and last bytes in bounded memory."""

    __slots__ = ("_capture_bytes", "_decoder", "_head", "_n_bytes", "_n_characters", "_tail", "_tail_bytes")

    def __init__(self, *, tail_bytes: int, capture_bytes: int) -> None:
        self._tail_bytes = tail_bytes
        self._capture_bytes = capture_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._n_bytes = 0
        self._n_characters = 0
        self._head = bytearray()
        self._tail = bytearray()

    def take(self, data: bytes) -> None:
        """Count the next bytes of the stream."""
        self._n_bytes += len(data)
        self._n_characters += len(self._decoder.decode(data))
        if len(self._head) < self._capture_bytes:
            self._head += data[: self._capture_bytes - len(self._head)]
        self._tail += data
        # Cutting only at twice the limit copies each byte once on average; cutting at the limit would copy all of it
        # each time.
        if len(self._tail) >= 2 * self._tail_bytes:
            del self._tail[: -self._tail_bytes]

    def capture(self) -> StreamCapture:
        """Return what the stream was, taken to have ended here."""
        unfinished = self._decoder.decode(b"", final=True)
        self._n_characters += len(unfinished)
        tail = bytes(self._tail[-self._tail_bytes :])
        return StreamCapture(
            n_bytes=self._n_bytes,
            n_characters=self._n_characters,
            head=bytes(self._head),
            head_truncated=self._n_bytes > len(self._head),
            tail=tail,
            tail_truncated=self._n_bytes > len(tail),
        )
