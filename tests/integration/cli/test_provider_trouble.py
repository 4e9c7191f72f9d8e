"""A provider in trouble slows a sweep down, pauses it, and ends it when it lasts; no trial is burnt meanwhile."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(400), pytest.mark.xdist_group("trouble")]

Json = Any
Sweep = Any
StandIn = Any
Answer = tuple[int, dict[str, str], bytes]
Mended = Callable[..., Answer]

ERROR = json.dumps({"type": "error", "error": {"type": "api_error", "message": "Down"}}).encode()
DOWN: Answer = (500, {"retry-after": "1"}, ERROR)
URL = "--base-url"


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Set when the test is over: what waits for it hangs."""
    event = threading.Event()
    yield event
    event.set()


def kinds(sweep: Sweep) -> list[str | None]:
    return [row["error_kind"] for row in sweep.rows]


def test_a_provider_that_is_down_pauses_the_sweep_which_goes_on_when_it_is_back(
    sweep: Sweep, stand_in: StandIn, mended: Mended, provider_key: str
) -> None:
    def answer(_method: str, body: Json) -> Answer:
        return mended(body) if stand_in.n_seen("GET") >= 2 else DOWN

    stand_in.answer = answer
    done = sweep.run("--runs", 3, "--key-env", "ANTHROPIC_API_KEY", URL, stand_in.url)
    assert kinds(sweep) == ["session-error", None, None], done.stderr
    assert done.returncode == 5, "one planned trial has no counting attempt"
    first_probe = next(n for n, (method, _, _) in enumerate(stand_in.seen) if method == "GET")
    asked = [(method, status) for method, _, status in stand_in.seen]
    assert set(asked[:first_probe]) == {("POST", 500)}
    assert asked[first_probe : first_probe + 3] == [("GET", 500), ("GET", 500), ("GET", 200)]
    assert set(asked[first_probe + 3 :]) == {("POST", 200)}
    assert {key for _, key, _ in stand_in.seen} == {provider_key}
    assert "paused: anthropic-messages is down (status 500)" in done.stderr
    assert "goes on: anthropic-messages is back" in done.stderr
    assert [event["event"] for event in sweep.events] == ["paused", "resumed"]
    paused_s = sweep.events[1]["paused_s"]
    assert paused_s > 0
    assert [row["sweep_paused_s"] for row in sweep.rows] == [0.0, paused_s, paused_s]
    void = sweep.rows[0]["wire"]
    assert (void["requests"], void["failed_requests"]) == (6, 6)
    assert void["by_ending"] == {"error-status": 6}
    assert void["backed_off_ms"] > 10_000, "the agent waited 0.5, 1, 2, 4, 8 s, at least the 1 s that it was told"
    assert sweep.resume().returncode == 0
    assert kinds(sweep)[3:] == [None]


def test_a_pause_that_lasts_too_long_ends_the_sweep_which_can_be_resumed(
    sweep: Sweep, stand_in: StandIn, mended: Mended
) -> None:
    stand_in.answer = lambda _method, _body: DOWN
    done = sweep.run("--runs", 2, "--provider-wait", 3, URL, stand_in.url)
    assert done.returncode == 5, done.stderr
    assert kinds(sweep) == ["session-error"]
    assert "stopped: anthropic-messages is down (status 500) for 3 s; when it is back: fairtrial resume" in done.stderr
    assert [event["event"] for event in sweep.events] == ["paused", "given-up"]
    stand_in.answer = lambda _method, body: mended(body)
    done = sweep.resume()
    assert done.returncode == 0, done.stderr
    assert kinds(sweep) == ["session-error", None, None]


def test_a_stop_ends_a_pause_at_once(sweep: Sweep, stand_in: StandIn, wait_for: Callable[..., None]) -> None:
    stand_in.answer = lambda _method, _body: DOWN
    with sweep.start("--runs", 2, URL, stand_in.url) as process:
        wait_for(lambda: sweep.events)
        process.terminate()
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 128 + 15, stderr
    assert kinds(sweep) == ["session-error"]


def test_a_probe_that_hangs_is_given_up_and_the_sweep_goes_on_with_the_next(
    sweep: Sweep, stand_in: StandIn, mended: Mended, never: threading.Event
) -> None:
    n_probes = itertools.count()

    def answer(method: str, body: Json) -> Answer:
        if method == "GET" and next(n_probes) == 0:
            never.wait()
        return mended(body) if stand_in.n_seen("GET") or method == "GET" else (500, {}, ERROR)

    stand_in.answer = answer
    done = sweep.run("--runs", 2, URL, stand_in.url)
    assert kinds(sweep) == ["session-error", None], done.stderr
    assert [event["event"] for event in sweep.events] == ["paused", "resumed"]
    assert sweep.events[1]["paused_s"] > 15, "the first probe was waited for so long"
    asked = [(method, status) for method, _, status in stand_in.seen]
    assert asked == [*[("POST", 500)] * 6, ("GET", 200), ("POST", 200), ("POST", 200)]
    assert next(n_probes) == 2, "the one that hung was never answered"


def test_a_stop_ends_a_pause_at_once_while_a_probe_hangs(
    sweep: Sweep, stand_in: StandIn, wait_for: Callable[..., None], never: threading.Event
) -> None:
    hanging = threading.Event()

    def answer(method: str, _body: Json) -> Answer:
        if method == "GET":
            hanging.set()
            never.wait()
        return DOWN

    stand_in.answer = answer
    with sweep.start("--runs", 2, URL, stand_in.url) as process:
        wait_for(hanging.is_set)
        process.terminate()
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 128 + 15, stderr
    assert kinds(sweep) == ["session-error"]
    assert stand_in.n_seen("GET") == 0, "it was not waited for"
    assert "gateway (pid" not in stderr, "nor was the gateway killed over it"


@pytest.mark.parametrize("limit", [429, 529])
def test_a_limit_reaches_the_agent_and_slows_every_trial_and_none_is_burnt(
    sweep: Sweep, stand_in: StandIn, mended: Mended, limit: int, never: threading.Event
) -> None:
    """529 is Anthropic's own word for it, and this agent speaks Messages."""
    both, n_come = threading.Barrier(2), itertools.count()

    def answer(_method: str, body: Json) -> Answer:
        n = next(n_come)
        if n < 2:  # the first requests of both trials are under way at the same time
            both.wait(200)
        if n == 1:  # answered when the refusal is out and heard of: its next request is then held back for it
            while limit not in [status for _, _, status in stand_in.seen]:
                never.wait(0.01)
            never.wait(0.5)
        return (limit, {"retry-after": "5"}, ERROR) if n == 0 else mended(body)

    stand_in.answer = answer
    done = sweep.run("--runs", 2, "--workers", 2, URL, stand_in.url)
    assert done.returncode == 0, done.stderr
    assert kinds(sweep) == [None, None]
    assert sorted(row["wire"]["limited_requests"] for row in sweep.rows) == [0, 1]
    assert sum(status == limit for _, _, status in stand_in.seen) == 1
    limited, other = sorted((row["wire"] for row in sweep.rows), key=lambda wire: -wire["limited_requests"])
    assert limited["backed_off_ms"] >= 5000, "the agent was told to wait for 5 s, and did"
    assert other["waited_ms"] > 0, "the other trial was held back for it"
    assert other["failed_requests"] == 0
    assert sweep.events == [], "a short pause is sat out at the gateway"
