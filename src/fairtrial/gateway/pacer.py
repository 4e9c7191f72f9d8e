"""The paces of all providers, and waiting on them."""

from collections import defaultdict

from fairtrial.gateway.control import ProviderStatus
from fairtrial.gateway.pace import Heard, Pace
from fairtrial.wire.loop import Bell, loop_s

__all__ = ["Pacer"]


class Pacer:
    """Shared by all trials of the gateway, so that one trial's 429 slows all others."""

    def __init__(self) -> None:
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._bell = Bell()

    def try_place(self, name: str) -> bool:
        """Take a place without waiting, if there is one."""
        return self._paces[name].ask_s(loop_s(), held_s=0.0) == 0.0

    async def wait_for_place(self, name: str) -> None:
        """Wait for a place and take it."""
        pace, begun_s = self._paces[name], loop_s()
        while (wait_s := pace.ask_s(loop_s(), held_s=loop_s() - begun_s)) > 0:
            await self._bell.wait(wait_s)

    def heard(self, name: str, what: Heard, *, reason: str | None, retry_after_s: float | None) -> None:
        """Give a place back with what was learnt."""
        self._paces[name].heard(what, loop_s(), reason=reason, retry_after_s=retry_after_s)
        self._bell.ring()

    def status(self) -> tuple[ProviderStatus, ...]:
        """How the providers are, those that were asked so far."""
        now_s = loop_s()
        return tuple(
            ProviderStatus(
                upstream=name,
                state=pace.state(now_s),
                reason=pace.reason,
                retry_in_s=round(pace.retry_in_s(now_s), 3),
                n_limited=pace.n_limited,
            )
            for name, pace in sorted(self._paces.items())
        )
