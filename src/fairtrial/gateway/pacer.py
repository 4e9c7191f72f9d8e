"""The paces of all providers, and waiting on them.

Nobody's pace is kept under the name None: a script whose faults are planned by us says nothing about a provider.
"""

from collections import defaultdict

from fairtrial.gateway.control import ProviderStatus
from fairtrial.gateway.pace import News, Pace
from fairtrial.wire.loop import Bell, loop_s

__all__ = ["Pacer"]


class Pacer:
    """Shared by all trials of the gateway, so that one trial's 429 slows all others."""

    def __init__(self) -> None:
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._bell = Bell()

    def try_place(self, name: str | None) -> bool:
        """Take a place without waiting, if there is one."""
        return name is None or self._paces[name].ask_s(loop_s(), held_s=0.0) == 0.0

    async def wait_for_place(self, name: str | None) -> None:
        """Wait for a place and take it."""
        if name is None:
            return
        pace, begun_s = self._paces[name], loop_s()
        while (wait_s := pace.ask_s(loop_s(), held_s=loop_s() - begun_s)) > 0:
            await self._bell.wait(wait_s)

    def heard(self, name: str | None, news: News) -> None:
        """Give a place back with what was learnt."""
        if name is None:
            return
        self._paces[name].heard(news.what, loop_s(), reason=news.reason, retry_after_s=news.retry_after_s)
        self._bell.ring()

    def due_probes(self) -> tuple[str, ...]:
        """Providers that are down, whose pause is over, and which nobody asks just now."""
        now_s = loop_s()
        return tuple(name for name, pace in self._paces.items() if pace.is_probe_due(now_s))

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
