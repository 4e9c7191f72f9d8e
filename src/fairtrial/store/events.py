"""`events.jsonl`: what happened to a sweep beside its trials, one JSON object a line; made when there is something."""

import os
from typing import Final

from fairtrial.host.clock import rfc3339, utc_now
from fairtrial.store.layout import Results, explain_failure
from fairtrial.store.strict_json import JsonObject, encode_object

__all__ = ["EVENT_SCHEMA", "EventLog"]

EVENT_SCHEMA: Final = "sweep-event/1"


class EventLog:
    """Appends events; each is durable when `write` returns."""

    def __init__(self, results: Results) -> None:
        self._path = results.events_jsonl

    def write(self, event: str, **facts: str | float | None) -> None:
        """Append one event.

        Raises:
            HostError: The file system refuses.
        """
        line: JsonObject = {"schema": EVENT_SCHEMA, "utc": rfc3339(utc_now()), "event": event, **facts}
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(self._path, flags, 0o644)
            try:
                os.write(fd, encode_object(line) + b"\n")
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise explain_failure(self._path, error) from error
