import pytest

from fairtrial.gateway.control import ProviderState
from fairtrial.gateway.pace import MAX_HOLD_S, Heard, Pace, read_status


def _in_flight(pace: Pace, n: int, now_s: float = 0.0) -> None:
    for _ in range(n):
        assert pace.ask_s(now_s, held_s=0.0) == 0.0


def test_while_all_is_well_nobody_waits() -> None:
    pace = Pace()
    _in_flight(pace, 1000)
    assert pace.state(0.0) is ProviderState.UP


def test_nobody_asks_before_retry_after_is_over() -> None:
    pace = Pace()
    _in_flight(pace, 1)
    pace.heard(Heard.LIMITED, 10.0, reason="status 429", retry_after_s=7.0)
    assert pace.ask_s(10.0, held_s=0.0) == 7.0
    assert pace.ask_s(16.0, held_s=6.0) == 1.0
    assert (pace.state(16.0), pace.retry_in_s(16.0)) == (ProviderState.LIMITED, 1.0)
    assert pace.ask_s(17.0, held_s=7.0) == 0.0


def test_afterwards_half_as_many_are_let_out_and_one_more_with_each_success() -> None:
    pace = Pace()
    _in_flight(pace, 8)
    for _ in range(8):
        pace.heard(Heard.LIMITED, 0.0, retry_after_s=1.0)
    _in_flight(pace, 4, 1.0)
    assert pace.ask_s(1.0, held_s=0.0) > 0
    pace.heard(Heard.SUCCESS, 1.0)
    _in_flight(pace, 2, 1.0)
    assert pace.ask_s(1.0, held_s=0.0) > 0
    for _ in range(4):
        pace.heard(Heard.SUCCESS, 1.0)
    _in_flight(pace, 100, 1.0)
    assert pace.state(1.0) is ProviderState.UP
    assert pace.n_limited == 8


def test_many_replies_to_one_burst_are_one_piece_of_news() -> None:
    pace = Pace()
    _in_flight(pace, 64)
    for _ in range(64):
        pace.heard(Heard.LIMITED, 0.0)
    assert pace.retry_in_s(0.0) == 1.0  # not 2 ** 64


def test_without_retry_after_the_pauses_grow_up_to_a_minute_and_success_forgets_them() -> None:
    pace, now_s = Pace(), 0.0
    pauses: list[float] = []
    for _ in range(9):
        _in_flight(pace, 1, now_s)
        pace.heard(Heard.LIMITED, now_s)
        pauses.append(pace.retry_in_s(now_s))
        now_s += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    _in_flight(pace, 1, now_s)
    pace.heard(Heard.SUCCESS, now_s)
    _in_flight(pace, 1, now_s)
    pace.heard(Heard.LIMITED, now_s)
    assert pace.retry_in_s(now_s) == 1


def test_failures_in_a_row_are_an_outage_and_one_request_tries_it() -> None:
    pace, now_s = Pace(), 0.0
    for _ in range(3):
        _in_flight(pace, 1, now_s)
        pace.heard(Heard.FAILED, now_s, reason="status 500")
    assert (pace.state(now_s), pace.reason) == (ProviderState.DOWN, "status 500")
    now_s += pace.retry_in_s(now_s)
    assert pace.ask_s(now_s, held_s=1.0) == 0.0
    assert pace.ask_s(now_s, held_s=1.0) > 0
    pace.heard(Heard.SUCCESS, now_s)
    assert (pace.state(now_s), pace.reason) != (ProviderState.DOWN, "status 500")


def test_a_few_failures_slow_nobody() -> None:
    pace = Pace()
    for _ in range(2):
        _in_flight(pace, 1)
        pace.heard(Heard.FAILED, 0.0, reason="status 500")
    assert pace.ask_s(0.0, held_s=0.0) == 0.0


def test_what_the_request_itself_did_wrong_says_nothing() -> None:
    pace = Pace()
    for _ in range(100):
        _in_flight(pace, 1)
        pace.heard(Heard.NOTHING, 0.0)
    assert pace.state(0.0) is ProviderState.UP


def test_nobody_is_held_back_for_ever() -> None:
    pace = Pace()
    _in_flight(pace, 1)
    pace.heard(Heard.LIMITED, 0.0, retry_after_s=3600.0)
    assert pace.ask_s(0.0, held_s=0.0) == MAX_HOLD_S
    assert pace.ask_s(MAX_HOLD_S, held_s=MAX_HOLD_S) == 0.0


def _fail(pace: Pace, n: int, now_s: float) -> float:
    """Fail so often, each time when the pause is over; return when the last pause is."""
    for _ in range(n):
        now_s += pace.retry_in_s(now_s)
        _in_flight(pace, 1, now_s)
        pace.heard(Heard.FAILED, now_s, reason="status 500")
    return now_s + pace.retry_in_s(now_s)


def test_a_probe_is_due_when_the_pause_is_over_and_no_request_tries_it() -> None:
    pace = Pace()
    now_s = _fail(pace, 3, 0.0)
    assert not pace.is_probe_due(now_s - 0.5)
    assert pace.is_probe_due(now_s)
    _in_flight(pace, 1, now_s)
    assert not pace.is_probe_due(now_s)


def test_an_answered_probe_lets_one_request_try_and_its_failure_is_an_outage_with_a_longer_pause() -> None:
    pace = Pace()
    now_s = _fail(pace, 3, 0.0)
    _in_flight(pace, 1, now_s)
    pace.heard(Heard.REACHED, now_s)
    assert pace.state(now_s) is ProviderState.RETURNING
    _in_flight(pace, 1, now_s)
    assert pace.ask_s(now_s, held_s=0.0) > 0, "one at a time"
    pace.heard(Heard.FAILED, now_s, reason="status 500")
    assert (pace.state(now_s), pace.retry_in_s(now_s)) == (ProviderState.DOWN, 2.0)


def test_a_provider_is_back_when_a_request_is_answered() -> None:
    pace = Pace()
    now_s = _fail(pace, 3, 0.0)
    _in_flight(pace, 1, now_s)
    pace.heard(Heard.REACHED, now_s)
    _in_flight(pace, 1, now_s)
    pace.heard(Heard.SUCCESS, now_s)
    assert (pace.state(now_s), pace.reason) == (ProviderState.UP, None)
    _in_flight(pace, 100, now_s)


def test_a_probe_that_comes_late_does_not_undo_a_success() -> None:
    pace = Pace()
    now_s = _fail(pace, 3, 0.0)
    _in_flight(pace, 1, now_s)
    assert pace.ask_s(now_s, held_s=MAX_HOLD_S) == 0.0, "one that was held back for long enough goes out beside it"
    pace.heard(Heard.SUCCESS, now_s)
    pace.heard(Heard.REACHED, now_s)
    assert pace.state(now_s) is ProviderState.UP


@pytest.mark.parametrize(
    ("status", "retry_after", "what", "retry_after_s"),
    [
        (200, "", Heard.SUCCESS, None),
        (429, "7", Heard.LIMITED, 7.0),
        (529, "", Heard.LIMITED, None),
        (503, "3", Heard.LIMITED, 3.0),
        (503, "", Heard.FAILED, None),
        (500, "Wed, 21 Oct 2026 07:28:00 GMT", Heard.FAILED, None),
        (404, "", Heard.NOTHING, None),
    ],
)
def test_a_status_is_read_as_news_of_the_provider(
    status: int, retry_after: str, what: Heard, retry_after_s: float | None
) -> None:
    news = read_status(status, retry_after)
    assert (news.what, news.retry_after_s) == (what, retry_after_s)
