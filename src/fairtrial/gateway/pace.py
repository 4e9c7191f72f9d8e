"""How fast one provider may be asked, over all trials of the gateway: pure, the clock is an argument.

A provider that says 429 or 529 is asked less: nobody asks before its Retry-After is over, half as many requests at once
are let out after it, and one more with each success. One that fails again and again counts as down: one request at a
time tries it, ever more seldom. When a probe that costs nothing has reached it, it counts as returning until a request
of a trial is answered: one more failure, and it is down again. Nobody is held back for longer than `MAX_HOLD_S`: then
the agent gets to see what the provider says, since its own patience is limited too.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from fairtrial.gateway.control import ProviderState

__all__ = ["LIMITED_STATUS", "MAX_HOLD_S", "Heard", "News", "Pace", "read_status"]

LIMITED_STATUS: Final = frozenset({429, 529})
MAX_HOLD_S: Final = 120.0
_FIRST_BACKOFF_S: Final = 1.0
_MAX_BACKOFF_S: Final = 60.0
_FAILURES_TO_DOWN: Final = 3
"""As often as the least patient agents try (gemini-cli, mini-swe-agent): an outage costs one of their trials."""


class Heard(Enum):
    """What a request told about the provider."""

    SUCCESS = "success"
    LIMITED = "limited"  # 429, 529, or 503 with Retry-After
    FAILED = "failed"  # another 5xx, or a broken connection
    REACHED = "reached"  # a probe was answered; whether requests are is still to be seen
    NOTHING = "nothing"  # the client left first, or the request was at fault


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What a pace is told.

    Attributes:
        what: What the request told.
        reason: Why, for people.
        retry_after_s: What the provider asked for.
    """

    what: Heard
    reason: str | None = None
    retry_after_s: float | None = None


def read_status(status: int, retry_after: str) -> News:
    """What a status says about the provider. A Retry-After that is a date counts as none."""
    retry_after_s = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    reason = f"status {status}"
    if status in LIMITED_STATUS or (status == 503 and retry_after_s is not None):
        return News(what=Heard.LIMITED, reason=reason, retry_after_s=retry_after_s)
    if status >= 500:
        return News(what=Heard.FAILED, reason=reason, retry_after_s=retry_after_s)
    return News(what=Heard.SUCCESS if 200 <= status < 300 else Heard.NOTHING)


class Pace:
    """The pace of one provider.

    Attributes:
        n_limited: Replies 429 and 529 so far.
        reason: What it last failed with; None once it has answered well again.
    """

    def __init__(self) -> None:
        self.n_limited = 0
        self.reason: str | None = None
        self._in_flight = 0
        self._limit: int | None = None
        self._top = 1
        self._closed_until_s = 0.0
        self._backoff_s = _FIRST_BACKOFF_S
        self._n_failures = 0
        self._is_returning = False

    def ask_s(self, now_s: float, *, held_s: float) -> float:
        """Seconds that a request must still wait, or 0: then it has its place, and `heard` must follow.

        When the answer is more than 0, ask again after so long or after any other request was heard of.

        Args:
            now_s: The time.
            held_s: How long the request has been held back so far.
        """
        wait_s = self._closed_until_s - now_s
        if wait_s <= 0 and self._limit is not None and self._in_flight >= self._limit:
            wait_s = _FIRST_BACKOFF_S
        if wait_s > 0 and held_s < MAX_HOLD_S:
            return min(wait_s, MAX_HOLD_S - held_s)
        self._in_flight += 1
        return 0.0

    def heard(
        self, what: Heard, now_s: float, *, reason: str | None = None, retry_after_s: float | None = None
    ) -> None:
        """Take a request's end, or its early news, into account and give its place back."""
        others = self._in_flight
        self._in_flight -= 1
        match what:
            case Heard.SUCCESS:
                self._recover()
            case Heard.LIMITED:
                self.n_limited += 1
                self._slow_down(now_s, others, reason, retry_after_s)
            case Heard.FAILED:
                self._n_failures += 1
                self.reason = reason
                if self._n_failures >= _FAILURES_TO_DOWN:
                    self._is_returning = False
                if self._n_failures >= _FAILURES_TO_DOWN or retry_after_s is not None:
                    self._slow_down(now_s, 1, reason, retry_after_s)
            case Heard.REACHED:
                if self._n_failures >= _FAILURES_TO_DOWN:  # else a request was answered while the probe was away
                    self._n_failures = _FAILURES_TO_DOWN - 1
                    self._is_returning = True
            case Heard.NOTHING:
                pass

    def _recover(self) -> None:
        self._n_failures = 0
        self._is_returning = False
        self.reason = None
        self._backoff_s = _FIRST_BACKOFF_S
        if self._limit is not None:
            self._limit = None if self._limit >= self._top else self._limit + 1

    def _slow_down(self, now_s: float, others: int, reason: str | None, retry_after_s: float | None) -> None:
        self.reason = reason
        if now_s >= self._closed_until_s:  # replies to what went out before it closed tell nothing new
            if self._limit is None:
                self._top = max(others, 1)
            self._limit = max(1, min(others, self._limit or others) // 2)
            pause_s = self._backoff_s if retry_after_s is None else retry_after_s
            self._backoff_s = min(self._backoff_s * 2, _MAX_BACKOFF_S)
            self._closed_until_s = now_s + pause_s
        elif retry_after_s is not None:
            self._closed_until_s = max(self._closed_until_s, now_s + retry_after_s)

    def state(self, now_s: float) -> ProviderState:
        """What is thought of the provider."""
        if self._n_failures >= _FAILURES_TO_DOWN:
            return ProviderState.DOWN
        if self._is_returning:
            return ProviderState.RETURNING
        closed = now_s < self._closed_until_s
        return ProviderState.LIMITED if closed or self._limit is not None else ProviderState.UP

    def is_probe_due(self, now_s: float) -> bool:
        """It is down, the pause after its last failure is over, and no request is there to try it."""
        return self.state(now_s) is ProviderState.DOWN and self.retry_in_s(now_s) == 0 and self._in_flight == 0

    def retry_in_s(self, now_s: float) -> float:
        """Seconds until it is asked again; 0 when it may be."""
        return max(0.0, self._closed_until_s - now_s)
