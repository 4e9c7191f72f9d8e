"""One open trial on its socket: every request of its session arrives here."""

import os
import secrets
from pathlib import Path
from typing import Final

from fairtrial.gateway.control import TrialClosed, TrialOpened
from fairtrial.gateway.exchange import Exchange
from fairtrial.gateway.ledger import Ending
from fairtrial.gateway.state import TrialState
from fairtrial.host.files import remove_tree
from fairtrial.wire.loop import in_thread
from fairtrial.wire.serve import HttpServer, Incoming

__all__ = ["Trial"]

_MAX_CONNECTIONS: Final = 128
"""Of one trial, so that it cannot use up the descriptors of all."""


class Trial:
    """A trial that listens."""

    def __init__(self, state: TrialState) -> None:
        self._state = state
        self._server = HttpServer(self, max_connections=_MAX_CONNECTIONS)
        self._directory: Path | None = None

    async def listen(self, base: Path) -> TrialOpened:
        """Listen on a socket of the trial's own, in a directory of its own below `base`.

        Raises:
            OSError: The socket cannot be made, or not be given to its owner.
        """
        directory = base / secrets.token_hex(4)
        directory.mkdir(mode=0o700)
        self._directory = directory
        path = directory / "m"
        await self._server.listen(path)
        path.chmod(0o600)
        uid = self._state.opening.owner_uid
        if uid is not None and uid != os.geteuid():
            os.chown(path, uid, -1)
            os.chown(directory, uid, -1)
        return TrialOpened(directory=str(directory), socket=str(path), token=self._state.token)

    async def on_request(self, incoming: Incoming) -> None:
        """Serve one request; see `wire.serve.Handler`."""
        if self._state.turns_away():
            incoming.break_off()
            return
        await Exchange(self._state, incoming).run()

    def on_bad_request(self, problem: str) -> None:
        """Note what was no HTTP request. A body with broken framing has its row by then."""
        if self._state.turns_away():
            return
        row = self._state.new_row(method="", path="")
        row.ending, row.refusal, row.client_status, row.detail = Ending.REFUSED, "http", 400, problem
        self._state.finish(row)

    async def close(self) -> TrialClosed:
        """Break off what is in flight, remove the socket, and say what the trial came to.

        Raises:
            OSError: The wire log cannot be made durable.
        """
        await self._server.stop()
        if self._directory is not None and self._directory.exists():
            remove_tree(self._directory)
        return await in_thread(self._state.close)  # it reads the whole log again, and other trials' streams go on
