"""The scripted model at work: its replies, its delays, and the faults that its turns plan."""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from fairtrial.gateway.dialect import Ask, Call, Dialect, ErrorKind, Piece, Rendered
from fairtrial.gateway.play import NoTurn, Selection, select_reply
from fairtrial.gateway.script import ErrorEventScript, Script
from fairtrial.gateway.source import Answer, Outgoing
from fairtrial.wire.faults import Fault
from fairtrial.wire.loop import loop_s, sleep_s
from fairtrial.wire.upstream import UpstreamBrokenError

__all__ = ["ScriptPlayer"]

_CHARACTERS_PER_TOKEN: Final = 4
_MOST_LATE_BYTES: Final = 256 * 1024
_STATUS_OF: Final = {
    ErrorKind.BAD_REQUEST: 400,
    ErrorKind.UNAUTHORIZED: 401,
    ErrorKind.FORBIDDEN: 403,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.TOO_LARGE: 413,
    ErrorKind.RATE_LIMITED: 429,
    ErrorKind.OVERLOADED: 529,
    ErrorKind.TIMEOUT: 504,
}
"""By which a reply in one piece is an error; 500 for any other."""


class ScriptPlayer:
    """Plays a script. It remembers nothing but how often each turn was tried, which planned faults count by."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tries: Counter[str] = Counter()

    @property
    def name(self) -> str | None:
        """What its pace is kept under, for all scripts that name the same provider; None where it names none."""
        return None if self._script.provider is None else f"script:{self._script.provider}"

    @property
    def reads_conversation(self) -> bool:
        """It answers what is said."""
        return True

    def plan_fault(self, call: Call, dialect: Dialect) -> Fault | None:
        """The fault of the turn that this request is for, while it has tries left to hit."""
        if call.route.ask is not Ask.GENERATE:
            return None
        chosen = select_reply(self._script, call, dialect.name)
        if isinstance(chosen, NoTurn) or chosen.fault is None:
            return None
        return chosen.fault.fault() if self._hits(chosen, chosen.fault.times) else None

    def _hits(self, chosen: Selection, times: int) -> bool:
        """Count a try of a turn, and say whether what is planned for so many of them hits it."""
        self._tries[chosen.key] += 1
        return times == 0 or self._tries[chosen.key] <= times

    @asynccontextmanager
    async def ask(self, outgoing: Outgoing) -> AsyncGenerator[Answer]:
        """Give the scripted reply; see `Source.ask`.

        Raises:
            UpstreamBrokenError: The request was cut, so there is nothing to answer.
        """
        if outgoing.cut_bytes is not None:
            raise UpstreamBrokenError("planned fault: the request was cut")
        rendered = self._render(outgoing.call, outgoing.dialect)
        first, *rest = rendered.pieces or (Piece(data=b""),)
        if first.delay_s:
            await sleep_s(first.delay_s)
        yield Answer(
            status=rendered.status,
            fields=tuple(rendered.headers.items()),
            n_bytes=None if rest or outgoing.call.stream else len(first.data),
            pieces=_play(first.data, rest),
        )

    def _render(self, call: Call, dialect: Dialect) -> Rendered:
        if call.route.ask is Ask.COUNT:
            n_characters = len(call.system) + sum(len(turn.text) for turn in call.turns)
            return dialect.render_count(n_characters // _CHARACTERS_PER_TOKEN)
        chosen = select_reply(self._script, call, dialect.name)
        if isinstance(chosen, NoTurn):
            return dialect.render_error(400, ErrorKind.BAD_REQUEST, chosen.message)
        rendered, event = dialect.render(chosen.reply, call), chosen.error_event
        if event is None or not self._hits(chosen, event.times):
            return rendered
        return _end_in_error(rendered, event, dialect, is_stream=call.stream)


def _end_in_error(rendered: Rendered, event: ErrorEventScript, dialect: Dialect, *, is_stream: bool) -> Rendered:
    """The same reply up to the error; the error alone where there is no stream that it could stand in."""
    message = "planned fault: error_event"
    if not is_stream:
        return dialect.render_error(_STATUS_OF.get(event.kind, 500), event.kind, message)
    before: list[Piece] = []
    for piece in rendered.pieces[:-1]:
        if sum(len(each.data) for each in before) >= event.after_bytes:
            break
        before.append(piece)
    return replace(rendered, pieces=(*before, Piece(data=dialect.render_stream_error(event.kind, message))))


async def _play(first: bytes, rest: list[Piece]) -> AsyncIterator[bytes]:
    """Give the pieces when they are due; what the receiver's slowness cost is made up for, as a provider would."""
    yield first
    due_s = loop_s()
    late: list[bytes] = []
    for piece in rest:
        due_s += piece.delay_s
        if late and (due_s > loop_s() or sum(map(len, late)) > _MOST_LATE_BYTES):
            yield b"".join(late)
            late = []
        wait_s = due_s - loop_s()
        if wait_s > 0:
            await sleep_s(wait_s)
        late.append(piece.data)  # goes out at once, unless the next one is due as well
        if not piece.delay_s:
            yield b"".join(late)
            late = []
    if late:
        yield b"".join(late)
