"""A provider in trouble pauses its sweep: no trial begins, those under way go on, until it is back.

The gateway knows how its providers are, and has one that is down probed, ever more seldom. Here it is asked before each
trial, and every second while the sweep stands still.
"""

import time
from collections.abc import Callable
from typing import Final

from fairtrial.gateway.control import ProviderState, ProviderStatus, Status
from fairtrial.store.events import EventLog
from fairtrial.sweep.execute import Hold

__all__ = ["ProviderWatch"]

_LONGEST_CLOSED_S: Final = 10.0
"""A pause that the provider asked for and that a request can sit out at the gateway, whatever the agent's patience."""


class ProviderWatch:
    """Says before each trial whether it may begin.

    Attributes:
        given_up: Why the sweep ends; None while it does not.
    """

    def __init__(
        self, ask: Callable[[], Status], *, wait_s: float, say: Callable[[str], None], events: EventLog
    ) -> None:
        """Watch.

        Args:
            ask: Asks the gateway.
            wait_s: Seconds of one pause after which the sweep ends.
            say: Takes one line for the user.
            events: Where pauses are written down.
        """
        self.given_up: str | None = None
        self._ask = ask
        self._wait_s = wait_s
        self._say = say
        self._events = events
        self._since_s: float | None = None
        self._paused_s = 0.0
        self._upstream = ""

    @property
    def paused_s(self) -> float:
        """Seconds in which the sweep has stood still so far."""
        return self._paused_s + (0.0 if self._since_s is None else time.monotonic() - self._since_s)

    def hold(self, n_running: int) -> Hold:
        """Whether a trial may begin beside those that run.

        Raises:
            GatewayGoneError: There is no gateway.
        """
        if self.given_up is not None:
            return Hold.GIVE_UP
        providers = self._ask().providers
        trouble = next((each for each in providers if _is_in_trouble(each)), None)
        if trouble is not None:
            return self._pause(trouble)
        self._go_on()
        if n_running and any(each.state is ProviderState.RETURNING for each in providers):
            return Hold.WAIT  # one trial at a time tries it
        return Hold.BEGIN

    def _pause(self, trouble: ProviderStatus) -> Hold:
        now_s = time.monotonic()
        why = f"{trouble.upstream} is {trouble.state}{'' if trouble.reason is None else f' ({trouble.reason})'}"
        if self._since_s is None:
            self._since_s, self._upstream = now_s, trouble.upstream
            self._say(f"paused: {why}; no trial begins until it is back, for at most {self._wait_s:.0f} s")
            self._events.write("paused", upstream=trouble.upstream, state=str(trouble.state), reason=trouble.reason)
        if now_s - self._since_s < self._wait_s:
            return Hold.WAIT
        paused_s = round(now_s - self._since_s, 3)
        self.given_up = f"{why} for {paused_s:.0f} s"
        self._events.write("given-up", upstream=trouble.upstream, reason=trouble.reason, paused_s=paused_s)
        return Hold.GIVE_UP

    def _go_on(self) -> None:
        if self._since_s is None:
            return
        paused_s = round(time.monotonic() - self._since_s, 3)
        self._since_s, self._paused_s = None, self._paused_s + paused_s
        self._say(f"goes on: {self._upstream} is back after {paused_s:.0f} s")
        self._events.write("resumed", upstream=self._upstream, paused_s=paused_s)


def _is_in_trouble(provider: ProviderStatus) -> bool:
    return provider.state is ProviderState.DOWN or provider.retry_in_s > _LONGEST_CLOSED_S
