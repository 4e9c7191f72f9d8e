"""The few things of HTTP that all dialects share: targets, tokens, JSON answers."""

from collections.abc import Mapping
from typing import Final

from fairtrial.gateway.dialect import JsonObject, Piece, Rendered
from fairtrial.gateway.fields import render_compact

__all__ = [
    "EVENT_STREAM",
    "bearer_token",
    "render_event",
    "render_json",
    "render_stream",
    "split_target",
    "text_pieces",
]

EVENT_STREAM: Final = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


def split_target(target: str) -> tuple[str, str]:
    """Path and query of a request target, as they stand: routes match exactly, so nothing is normalized."""
    path, _, query = target.partition("?")
    return path, query


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """The bearer token of an Authorization header; None when it has none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def render_json(status: int, value: JsonObject | list[JsonObject], *, delay_s: float = 0.0) -> Rendered:
    """A JSON body in one piece."""
    piece = Piece(data=render_compact(value), delay_s=delay_s)
    return Rendered(status=status, headers={"content-type": "application/json"}, pieces=(piece,))


def render_event(value: JsonObject, *, name: str = "") -> bytes:
    """One event of a stream."""
    head = f"event: {name}\ndata: ".encode() if name else b"data: "
    return b"".join((head, render_compact(value), b"\n\n"))


def render_stream(events: list[bytes], *, first_delay_s: float, piece_delay_s: float) -> Rendered:
    """A stream of events."""
    pieces = tuple(
        Piece(data=event, delay_s=piece_delay_s if index else first_delay_s) for index, event in enumerate(events)
    )
    return Rendered(status=200, headers=EVENT_STREAM, pieces=pieces)


def text_pieces(text: str, n_characters: int) -> list[str]:
    """The text in pieces of at most so many characters."""
    return [text[start : start + n_characters] for start in range(0, len(text), n_characters)]
